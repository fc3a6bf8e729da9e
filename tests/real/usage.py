"""Usage against the recorder: what a gateway has counted is what its clients have sent.

What it does: it reads `GET /usage` of a testbed's gateway and compares it with every exchange that the
recorder in front of that gateway has seen since the gateway was started, whatever test sent it.

Rules: the product of a client is read from its User-Agent here, not by the gateway's code.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from tests.real.recorder import Exchange
from tests.real.testbed import Testbed

OTHER = "other"
NONE = "none"
"""Client of requests without a User-Agent."""


def product(exchange: Exchange) -> str:
    agent = exchange.request.get("User-Agent") or NONE
    return re.split(r"[/ ]", agent.strip())[0]


def rows(testbed: Testbed) -> list[dict[str, Any]]:
    """Returns the rows of `GET /usage`, with one for each client and kind of requested version."""
    status, text = testbed.gateway.admin(f"/usage?service={testbed.api.service}")
    assert status == 200, f"/usage responded {status}: {text}"
    answer = json.loads(text)
    assert not answer["incomplete"], answer["incomplete"]
    found: list[dict[str, Any]] = answer["rows"]
    return found


def assert_complete(testbed: Testbed) -> None:
    """Fails where the gateway has counted another number of requests than the recorder has seen."""
    exchanges = testbed.front.exchanges(0)
    sent = Counter(product(each) for each in exchanges)
    accepted = Counter(product(each) for each in exchanges if each.status is not None and each.status < 400)
    counted: Counter[str] = Counter()
    for row in rows(testbed):
        counted[row["client"]] += row["requests"]

    assert counted.total() == sent.total(), f"{counted} of {sent}"
    for client, number in accepted.items():
        # What a product sent before its first response below 400 counts as `other`.
        assert number <= counted[client] <= sent[client], f"{client}: {counted} of {sent}, {accepted}"
    assert set(counted) <= {*accepted, OTHER, NONE}, f"{counted} of {sent}, {accepted}"


def versions_of(testbed: Testbed, client: str) -> Counter[str]:
    """Returns the number of requests of one client by the version at which they were executed."""
    found: Counter[str] = Counter()
    for row in rows(testbed):
        if row["client"] == client:
            found.update(row["versions"])
    return found
