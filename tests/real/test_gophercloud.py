"""gophercloud through a gateway, in front of old and new servers.

It finds the microversion for its calls in the object `version` of `/v1`, and nowhere else. A document without
one makes it send no version, which Ironic takes for 1.1.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json

import pytest

from tests.real.gophercloud import Gophercloud
from tests.real.testbed import Testbed
from tests.scenarios.fakes import OWN, Ironic
from tests.scenarios.testbed import in_front_of

pytestmark = pytest.mark.real

SESSIONS = 12
"""So many that each of two servers has nearly always answered one. No assertion depends on that."""


async def test_R3_V15_gophercloud_finds_the_offer_whichever_server_answers(gophercloud: Gophercloud) -> None:
    """Rocky, whose `/v1` has no range, beside a newer one. Real servers of that age do not run here."""
    old, new = Ironic(46, document_range=False), Ironic(90)
    async with in_front_of(old, new) as testbed:
        for _ in range(SESSIONS):
            session = await gophercloud.session(testbed.base, "range", "nodes")

            assert (session.version, session.values()) == ("1.46", [["1.1", "1.46"], 0])
        requested = [head.get(OWN) for head in testbed.forwarded if head.target == "/v1/nodes"]
        assert requested == ["1.46"] * SESSIONS


async def test_gophercloud_in_front_of_real_servers(guaranteed: Testbed, gophercloud: Gophercloud) -> None:
    session = await gophercloud.session(guaranteed.url, "range", "nodes")
    assert session.version == "1.82"
    assert session.values()[0] == ["1.1", "1.82"]

    chosen = await gophercloud.session(guaranteed.url, "nodes", version="1.50")
    assert len(chosen.values()) == 1

    refused = (await gophercloud.session(guaranteed.url, "nodes", version="1.115")).only_error()
    assert refused.error == "gophercloud.ErrUnexpectedResponseCode"
    assert "[1.1, 1.82]" in json.dumps(refused.text)
