"""The sequences K1 to K4 and K6 of real clients through the gateway, request by request.

K4 is the purpose of the gateway. Behind a plain load balancer, a client that has negotiated `latest` is
refused by the older server and gives up. Behind the gateway, it is served whichever server gets the request.
"""

from __future__ import annotations

import pytest

from tests.real.clients import LIBRARY_DEFAULT, Clients
from tests.real.ironic import NEW, OLD
from tests.real.testbed import Testbed

pytestmark = pytest.mark.real

NODES = "/v1/nodes"


def test_k1_a_default_above_the_offer_is_lowered_once_and_kept(capped: Testbed, clients: Clients) -> None:
    session = clients.ironicclient(capped.url, [("list", None)] * 3)
    session.values()
    assert capped.conversation() == [
        ("GET", NODES, LIBRARY_DEFAULT, 406),
        ("GET", "/v1", None, 200),
        ("GET", NODES, "1.6", 200),
        ("GET", NODES, "1.6", 200),
        ("GET", NODES, "1.6", 200),
    ]
    refused, shown = capped.seen()[:2]
    assert refused.offered == shown.offered == ("1.1", "1.6")
    assert (session.version, session.negotiated) == ("1.6", True)


def test_k2_latest_is_read_from_v1_and_then_requested_by_number(
    guaranteed: Testbed, clients: Clients
) -> None:
    clients.ironicclient(guaranteed.url, [("list", None)], version="latest").values()
    assert guaranteed.conversation() == [("GET", "/v1", None, 200), ("GET", NODES, OLD.top, 200)]


def test_k3_an_explicit_version_outside_the_offer_ends_the_client(
    guaranteed: Testbed, clients: Clients
) -> None:
    error = clients.ironicclient(guaranteed.url, [("list", None)], version="1.99").only_error()
    assert guaranteed.conversation() == [("GET", NODES, "1.99", 406), ("GET", "/v1", None, 200)]
    assert error.error == "UnsupportedVersion"


@pytest.mark.parametrize("policy", ["guaranteed", "reachable"])
def test_k4_a_negotiated_version_is_always_served(
    request: pytest.FixtureRequest, clients: Clients, policy: str
) -> None:
    """One negotiation, then 40 calls of two kinds. None is refused, although the two maxima differ."""
    testbed: Testbed = request.getfixturevalue(policy)
    top = {"guaranteed": OLD.top, "reachable": NEW.top}[policy]
    session = clients.ironicclient(
        testbed.url, [("list", None), ("owned by", "nobody")] * 20, version="latest"
    )
    session.values()
    first, *others = testbed.seen()
    assert (first.path, first.requested, first.offered) == ("/v1", None, ("1.1", top))
    assert {(one.requested, one.served, one.status) for one in others} == {(top, top, 200)}
    assert len(others) == 40
    busy = {
        member
        for member in testbed.recorders
        if [one for one in testbed.forwarded(member) if one.path != "/v1"]
    }
    assert busy == ({"old", "new"} if policy == "guaranteed" else {"new"})


def test_k6_the_sdk_reads_both_documents_and_sends_both_fields(guaranteed: Testbed, clients: Clients) -> None:
    clients.sdk(guaranteed.url, [("list", None)]).values()
    assert guaranteed.conversation() == [
        ("GET", "/", None, 200),
        ("GET", "/v1/", None, 200),
        ("GET", NODES, OLD.top, 200),
    ]
    assert guaranteed.seen()[-1].requested_standard == OLD.top


def test_a_feature_newer_than_the_version_is_refused_by_the_server(
    guaranteed: Testbed, clients: Clients
) -> None:
    """I18 with a client: the 406 has the served version. The gateway changes only the range in it, and does
    not learn from it that the server has other versions."""
    for _ in range(8):
        response = guaranteed.send("/v1/nodes?conductor_group=x", "1.31")
        assert response.status == 406
        assert b"The minimal required API version should be 1.46" in response.body
    assert {(one.served, one.offered) for one in guaranteed.seen()} == {("1.31", guaranteed.offer.range)}
    assert guaranteed.gateway.knows_all()
    error = clients.ironicclient(guaranteed.url, [("owned by", "x")], version="1.31").only_error()
    assert error.error == "UnsupportedVersion"
