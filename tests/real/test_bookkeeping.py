"""What the gateway says about itself against what the recorders saw: /metrics, /status, /explain."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.real.clients import Clients
from tests.real.gateway_process import SERVICE, Metrics
from tests.real.hop import OWN_HEADER, Exchange
from tests.real.ironic import NEW, OLD
from tests.real.processes import wait_for
from tests.real.stand import EXACT, Stand

pytestmark = pytest.mark.real

NODES = "/v1/nodes"
NEGOTIATIONS = "skewgate_negotiations_total"
SERVED_VERSION = "skewgate_served_version_total"
REQUESTS = "skewgate_requests_total"

ASKS = ("exact", "latest", "silent", "garbled")
OUTCOMES = ("served", "below_min", "above_max", "malformed", "unavailable", "transparent")

# Each kind of ask with each way it can end, as a client writes it.
EVERY_KIND = (None, "1.31", OLD.top, "1.90", NEW.top, "1.999", "1.0", "2.1", "latest", "spam")


def labels_due(one: Exchange) -> tuple[str, str]:
    """The labels `ask` and `outcome` that this exchange, as the client saw it, must be counted under."""
    version = one.asked
    if version is None:
        ask = "silent"
    elif version.lower() == "latest":
        ask = "latest"
    else:
        ask = "exact" if EXACT.fullmatch(version) else "garbled"
    if one.status == 503:
        return ask, "unavailable"
    if one.status != 406 or one.served is not None:
        return ask, "served"
    if ask == "garbled":
        return ask, "malformed"
    return ask, "below_min" if version == "1.0" else "above_max"


def growth(metric: str, before: Metrics, after: Metrics, **labels: str) -> float:
    return after.total(metric, **labels) - before.total(metric, **labels)


@pytest.mark.parametrize("policy", ["guaranteed", "reachable"])
def test_the_counters_say_what_the_recorders_saw(
    request: pytest.FixtureRequest, clients: Clients, policy: str
) -> None:
    stand: Stand = request.getfixturevalue(policy)
    before = stand.gateway.metrics()
    for version in EVERY_KIND:
        stand.ask(NODES, version)
    clients.ironicclient(stand.url, [("list", None)] * 3, version="latest").values()
    clients.baremetal(stand.url, "node", "list", "-f", "json").json()
    if policy == "reachable":
        stand.cut("new")
        stand.ask(NODES, "1.90")

    seen = stand.seen()
    # A reply is counted when its last byte has gone, which a client may know first.
    wait_for(
        lambda: growth(REQUESTS, before, stand.gateway.metrics()) == len(seen),
        f"skewgate_requests_total has grown by {len(seen)}",
    )
    after = stand.gateway.metrics()

    due = Counter(labels_due(one) for one in seen)
    counted = {
        (ask, outcome): growth(NEGOTIATIONS, before, after, service=SERVICE, ask=ask, outcome=outcome)
        for ask, outcome in itertools.product(ASKS, OUTCOMES)
    }
    assert {labels: number for labels, number in counted.items() if number} == dict(due)

    served = Counter(one.served for one in seen if one.served is not None)
    versions = {labels["version"] for labels in after.labels(SERVED_VERSION)}
    grown = {version: growth(SERVED_VERSION, before, after, version=version) for version in versions}
    assert {version: number for version, number in grown.items() if number} == dict(served)

    for member in stand.backends:
        assert growth(REQUESTS, before, after, backend=member) == len(stand.reached(member))
    own = [one for one in seen if one.served is None]
    assert growth(REQUESTS, before, after, backend="none") == len(own)


def test_the_gauges_say_what_stands(guaranteed: Stand) -> None:
    metrics = guaranteed.gateway.metrics()
    offers = [labels for labels in metrics.labels("skewgate_offer_info")
              if metrics.value("skewgate_offer_info", **labels) == 1]  # fmt: skip
    assert offers == [{"service": SERVICE, "min": "1.1", "max": OLD.top}]
    for name, release in (("old", OLD), ("new", NEW)):
        backend = {"service": SERVICE, "backend": name}
        assert metrics.value("skewgate_backend_info", **backend, min="1.1", max=release.top) == 1
        assert metrics.value("skewgate_backend_up", **backend) == 1
    assert metrics.value("skewgate_phase", service=SERVICE, phase="mixed") == 1


def test_status_says_what_holds_the_offer_down(guaranteed: Stand) -> None:
    status = guaranteed.gateway.service()
    assert (status["dialect"], status["phase"]) == ("ironic", "mixed")
    assert status["offer"] == {
        "min": "1.1", "max": OLD.top, "policy": "guaranteed", "ceiling": None,
        "held_by": ["new"], "held_rule": "guaranteed",
    }  # fmt: skip
    assert status["guaranteed"] == {"min": "1.1", "max": OLD.top}
    assert status["reachable"] == {"min": "1.1", "max": NEW.top}
    ranges = {name: (one["min"], one["max"]) for name, one in status["backends"].items()}
    assert ranges == {"old": ("1.1", OLD.top), "new": ("1.1", NEW.top)}


@pytest.mark.parametrize("policy", ["guaranteed", "reachable"])
@pytest.mark.parametrize("version", EVERY_KIND)
def test_explain_says_what_then_happens(
    request: pytest.FixtureRequest, policy: str, version: str | None
) -> None:
    stand: Stand = request.getfixturevalue(policy)
    headers = [] if version is None else [f"{OWN_HEADER}: {version}"]
    told = stand.gateway.explain("GET", NODES, *headers)
    assert stand.seen() == [], "explaining a request must not send it"
    reply = stand.ask(NODES, version)
    (seen,) = stand.seen()
    reached = {member for member in stand.backends if stand.reached(member)}
    candidates = {one["backend"] for one in told["candidates"]}
    assert told["service"] == SERVICE
    assert (told["ask"]["kind"], told["outcome"]) == labels_due(seen)
    if reached:
        able = {name for name, backend in stand.backends.items() if backend.release.serves(told["version"])}
        assert (told["decision"], told["status"], told["version"]) == ("forward", None, seen.served)
        assert reached <= candidates == able
        assert {one["backend"]: one["reason"] for one in told["left_out"]} == dict.fromkeys(
            set(stand.backends) - able, "version"
        )
    else:
        assert (told["decision"], told["status"]) == ("refuse", reply.status)
        assert (told["reply"]["status"], told["reply"]["body"]) == (reply.status, reply.body.decode())
        assert candidates == set()
