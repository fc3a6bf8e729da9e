"""/metrics, /status and /explain of the gateway agree with the recorders."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.kit.metrics import Scrape
from tests.kit.waiting import wait_until
from tests.real.apis import EXACT
from tests.real.clients import Clients
from tests.real.gateway_process import SERVICE
from tests.real.ironic import NEW, OLD
from tests.real.recorder import OWN_HEADER, Exchange
from tests.real.testbed import Testbed

pytestmark = pytest.mark.real

NODES = "/v1/nodes"
NEGOTIATIONS = "skewgate_negotiations_total"
SERVED_VERSION = "skewgate_served_version_total"
REQUESTS = "skewgate_requests_total"

REQUESTED = ("exact", "latest", "none", "malformed")
RESULTS = ("served", "below_min", "above_max", "malformed", "unavailable", "transparent")

# A requested version for every combination of the labels, as a client writes it.
EVERY_KIND = (None, "1.31", OLD.top, "1.90", NEW.top, "1.999", "1.0", "2.1", "latest", "spam")


def expected_labels(exchange: Exchange) -> tuple[str, str]:
    """The labels `requested` and `result` under which this exchange of a client must be counted."""
    version = exchange.requested
    if version is None:
        requested = "none"
    elif version.lower() == "latest":
        requested = "latest"
    else:
        requested = "exact" if EXACT.fullmatch(version) else "malformed"
    if exchange.status == 503:
        return requested, "unavailable"
    if exchange.status != 406 or exchange.served is not None:
        return requested, "served"
    if requested == "malformed":
        return requested, "malformed"
    return requested, "below_min" if version == "1.0" else "above_max"


def increase(metric: str, before: Scrape, after: Scrape, **labels: str) -> float:
    return after.total(metric, **labels) - before.total(metric, **labels)


@pytest.mark.parametrize("policy", ["guaranteed", "reachable"])
def test_the_counters_agree_with_the_recorders(
    request: pytest.FixtureRequest, clients: Clients, policy: str
) -> None:
    testbed: Testbed = request.getfixturevalue(policy)
    before = testbed.gateway.metrics()
    for version in EVERY_KIND:
        testbed.send(NODES, version)
    clients.ironicclient(testbed.url, [("list", None)] * 3, version="latest").values()
    clients.baremetal(testbed.url, "node", "list", "-f", "json").json()
    if policy == "reachable":
        testbed.disconnect("new")
        testbed.send(NODES, "1.90")

    seen = testbed.seen()
    # A response is counted after its last byte was sent. The client may read that byte first.
    wait_until(
        lambda: increase(REQUESTS, before, testbed.gateway.metrics()) == len(seen),
        f"skewgate_requests_total is {len(seen)} higher",
    )
    after = testbed.gateway.metrics()

    expected = Counter(expected_labels(exchange) for exchange in seen)
    counted = {
        (requested, result): increase(
            NEGOTIATIONS, before, after, service=SERVICE, requested=requested, result=result
        )
        for requested, result in itertools.product(REQUESTED, RESULTS)
    }
    assert {labels: number for labels, number in counted.items() if number} == dict(expected)

    served = Counter(exchange.served for exchange in seen if exchange.served is not None)
    versions = {labels["version"] for labels in after.labels(SERVED_VERSION)}
    counted_versions = {
        version: increase(SERVED_VERSION, before, after, version=version) for version in versions
    }
    assert {version: number for version, number in counted_versions.items() if number} == dict(served)

    for member in testbed.recorders:
        assert increase(REQUESTS, before, after, backend=member) == len(testbed.forwarded(member))
    local = [exchange for exchange in seen if exchange.served is None]
    assert increase(REQUESTS, before, after, backend="none") == len(local)


def test_the_gauges_show_the_offer_and_the_backends(guaranteed: Testbed) -> None:
    metrics = guaranteed.gateway.metrics()
    offers = [
        labels
        for labels in metrics.labels("skewgate_offer_info")
        if metrics.value("skewgate_offer_info", **labels) == 1
    ]
    assert offers == [{"service": SERVICE, "min": "1.1", "max": OLD.top}]
    for name, release in (("old", OLD), ("new", NEW)):
        backend = {"service": SERVICE, "backend": name}
        assert metrics.value("skewgate_backend_info", **backend, min="1.1", max=release.top) == 1
        assert metrics.value("skewgate_backend_up", **backend) == 1
    assert metrics.value("skewgate_phase", service=SERVICE, phase="mixed") == 1


def test_status_shows_what_holds_the_offer(guaranteed: Testbed) -> None:
    status = guaranteed.gateway.service()
    assert (status["dialect"], status["phase"]) == ("ironic", "mixed")
    assert status["offer"] == {
        "min": "1.1",
        "max": OLD.top,
        "policy": "guaranteed",
        "ceiling": None,
        "floor": None,
        "floor_suspended": False,
        "held_by": ["old"],
        "held_rule": "guaranteed",
        "held_by_replicas": [],
    }
    assert status["guaranteed"] == {"min": "1.1", "max": OLD.top}
    assert status["reachable"] == {"min": "1.1", "max": NEW.top}
    ranges = {name: (backend["min"], backend["max"]) for name, backend in status["backends"].items()}
    assert ranges == {"old": ("1.1", OLD.top), "new": ("1.1", NEW.top)}


@pytest.mark.parametrize("policy", ["guaranteed", "reachable"])
@pytest.mark.parametrize("version", EVERY_KIND)
def test_explain_predicts_the_decision(
    request: pytest.FixtureRequest, policy: str, version: str | None
) -> None:
    testbed: Testbed = request.getfixturevalue(policy)
    headers = [] if version is None else [f"{OWN_HEADER}: {version}"]
    explanation = testbed.gateway.explain("GET", NODES, *headers)
    assert testbed.seen() == [], "/explain must not send the request"
    response = testbed.send(NODES, version)
    (seen,) = testbed.seen()
    used = {member for member in testbed.recorders if testbed.forwarded(member)}
    candidates = {candidate["backend"] for candidate in explanation["candidates"]}
    assert explanation["service"] == SERVICE
    assert (explanation["requested"]["kind"], explanation["result"]) == expected_labels(seen)
    if used:
        able = {
            name for name, server in testbed.servers.items() if server.release.serves(explanation["version"])
        }
        assert (explanation["decision"], explanation["status"], explanation["version"]) == (
            "forward",
            None,
            seen.served,
        )
        assert used <= candidates == able
        assert {
            excluded["backend"]: excluded["reason"] for excluded in explanation["left_out"]
        } == dict.fromkeys(set(testbed.recorders) - able, "version")
    else:
        assert (explanation["decision"], explanation["status"]) == ("refuse", response.status)
        assert (explanation["response"]["status"], explanation["response"]["body"]) == (
            response.status,
            response.body.decode(),
        )
        assert candidates == set()
