"""The upgrade in the specification of Ironic's rolling upgrades, with real Ironic servers.

Four APIs on one database go from 12.1.6 to 39.0.0 pinned to 12.1, and then to 39.0.0 unpinned. They are
replaced one at a time, by SIGTERM and the next release on the same port (UPGRADE-4.2 to 6.4). Meanwhile, five
clients send requests: two libraries, and plain clients that send one version, `latest` or no version. The
upgrade happens once, and each test checks one promise against its records.

These failures are allowed:

* 500 to POST and PATCH of a node by an API of 12.1.6. In 4.2 and 5.1 its conductor is 39.0.0 already. That
one executes the request and returns a list of traits that 12.1.6 cannot read. The server has written the node
and responds 500: the gateway forwards the 500 once and never retries.
* 500 to writes while the one conductor restarts unpinned (6.2): the API reports that it cannot reach it, or
that the conductor ended in the middle of its response to the API. Or 400: the conductor that starts has
cleared the lock that the API took before.
* 400 to writes at any time: the lock of the node is gone when Ironic gives it back, after the write. On a
busy machine SQLite makes it do so twice (`sqlite_retries`), and a conductor that misses its own heartbeat for
a minute clears its own locks.
* 502 to POST and PATCH without a response, at a server that was ending (12.1.6 completes nothing). It is
  unknown whether they were executed, so they are not sent again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real.apis import IRONIC
from tests.real.conftest import FIGURES, NOTES
from tests.real.continuous_clients import NAMES, Call, ContinuousClients, client_of
from tests.real.environments import build_all
from tests.real.ledger import ONCE, Excuse, Ledger, judge
from tests.real.rolling_fleet import FROM, MEMBERS, TO, TO_PINNED, RollingFleet
from tests.real.rolling_upgrade import STABILIZATION, UpgradeRun
from tests.real.testbed import Testbed

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

F, T = FROM.top, TO.top
UNREADABLE = "Version 1.2 of TraitList is not supported"
NO_CONDUCTOR = "Unable to establish connection to"
CONDUCTOR_ENDED = "Connection broken: IncompleteRead"
LOCK_CLEARED = "found not to be locked on release"
WRITES = frozenset({"POST", "PATCH", "DELETE"})
LOCKS_LOST = [Excuse(release, WRITES, LOCK_CLEARED, status=400) for release in (FROM, TO_PINNED, TO)]
# The newest version at which openstacksdk 4.22.0 requests nodes.
SDK_NEWEST = "1.109"


@dataclass(frozen=True, slots=True)
class Upgraded:
    """All records of the upgrade."""

    run: UpgradeRun
    testbed: Testbed
    calls: list[Call]
    ledger: Ledger


@pytest.fixture(scope="module")
def upgraded(folder: Path, pytestconfig: pytest.Config) -> Iterator[Upgraded]:
    environments = build_all([FROM.environment, TO.environment, "client-new"])
    fleet = RollingFleet(environments, folder / "rolling")
    try:
        fleet.start()
        policy = {"policy": "guaranteed", "stabilization": f"{STABILIZATION:g}s"}
        with Testbed("rolling", folder, fleet.members, policy, FROM).running() as testbed:
            run = UpgradeRun(fleet, testbed)
            clients = ContinuousClients(environments["client-new"], testbed.front.port, folder)
            with clients.running():
                run.run()
            excuses = [
                Excuse(FROM, ONCE, UNREADABLE),
                Excuse(TO_PINNED, WRITES, NO_CONDUCTOR, run.without_conductor),
                Excuse(TO_PINNED, WRITES, CONDUCTOR_ENDED, run.without_conductor),
                Excuse(TO_PINNED, WRITES, LOCK_CLEARED, run.without_conductor, status=400),
                *LOCKS_LOST,
            ]
            offers = [(IRONIC.default_version, F), (IRONIC.default_version, T)]
            ledger = judge(clients.calls, testbed.seen(), run.arrivals(), run.windows, excuses, offers)
            pytestconfig.stash[FIGURES] += testbed.figures()
            pytestconfig.stash[NOTES] += _notes(run, ledger, testbed)
            yield Upgraded(run, testbed, clients.calls, ledger)
    finally:
        fleet.stop()


def _notes(run: UpgradeRun, ledger: Ledger, testbed: Testbed) -> list[str]:
    """The lines of the final report, whatever the result is."""
    metrics = testbed.gateway.metrics()
    retries = {
        labels["reason"]: int(metrics.total("skewgate_retries_total", reason=labels["reason"]))
        for labels in metrics.labels("skewgate_retries_total")
    }
    bad = ("lost", "duplicated", "desynced", "misdirected", "forgotten")
    head = (
        f"rolling upgrade {FROM.number} -> {TO.number} pinned -> {TO.number}:",
        f"{ledger.calls} calls, {ledger.requests} requests, {ledger.refusals} refusals,",
        f"retries {', '.join(f'{reason}: {number}' for reason, number in retries.items() if number) or 0},",
        f"500 of servers forwarded {ledger.passed_500.total()},",
        f"in doubt (their server ended) {len(ledger.in_doubt)},",
        *(f"{kind} {len(getattr(ledger, kind))}" for kind in bad),
    )
    return [
        " ".join(head),
        *(f"  500, {number} times: {failure}" for failure, number in sorted(ledger.passed_500.items())),
        *(
            f"  {step.scenario:<20} {step.member or '':<6} {step.phase:<12} {step.top:<6}"
            f" {step.seconds:5.1f} s"
            for step in run.steps
        ),
    ]


def test_phase_and_offer_are_right_at_every_step(upgraded: Upgraded) -> None:
    """The offer is the range of FromVer until the last API is unpinned, and that of ToVer after
    stabilization."""
    uniform = ("uniform", F)
    assert [(step.scenario, step.phase, step.top) for step in upgraded.run.steps] == [
        ("UPGRADE-4.2", *uniform),
        *[("UPGRADE-5.1", *uniform)] * 3,
        ("UPGRADE-5.2", *uniform),
        ("UPGRADE-6.2", *uniform),
        *[("UPGRADE-6.3", "mixed", F)] * 3,
        ("UPGRADE-6.4", "stabilizing", F),
        ("UPGRADE-6.4 stable", "uniform", T),
    ]


def test_nothing_else_was_visible_in_between(upgraded: Upgraded) -> None:
    """Servers that are down for a restart change neither phase nor offer. The offer never falls."""
    changes = upgraded.run.poller.changes()
    assert [(sample.phase, sample.offer.highest) for sample in changes] == [
        ("uniform", F),
        ("mixed", F),
        ("stabilizing", F),
        ("uniform", T),
    ]
    assert changes[3].sent - changes[2].sent == pytest.approx(STABILIZATION, abs=0.5)


def test_status_names_what_holds_the_offer(upgraded: Upgraded) -> None:
    """In 6.3: those that are not unpinned yet."""
    mixed = [step.status["offer"] for step in upgraded.run.steps if step.scenario == "UPGRADE-6.3"]
    assert [set(offer["held_by"]) for offer in mixed] == [set(MEMBERS[count + 1 :]) for count in range(3)]
    assert {offer["held_rule"] for offer in mixed} == {"guaranteed"}


def test_no_call_was_lost(upgraded: Upgraded) -> None:
    assert upgraded.ledger.lost == []
    assert Counter(call.client for call in upgraded.calls).keys() == set(NAMES)


def test_a_500_of_a_server_is_forwarded_and_never_retried(upgraded: Upgraded) -> None:
    """Each was at one server once, or it would be among the lost. And what it wrote is there."""
    passed = upgraded.ledger.passed_500
    assert {failure for failure in passed if UNREADABLE in failure} == {
        f"{UNREADABLE}: {method} at {FROM.number}" for method in ONCE
    }
    assert upgraded.ledger.forgotten == []


def test_nothing_was_executed_twice(upgraded: Upgraded) -> None:
    assert upgraded.ledger.duplicated == []


def test_every_request_was_executed_at_its_version_by_a_server_that_serves_it(upgraded: Upgraded) -> None:
    assert upgraded.ledger.misdirected == []
    assert upgraded.ledger.desynced == []


def test_every_client_ends_at_its_version(upgraded: Upgraded) -> None:
    """Clients that request the newest version get the maximum of FromVer at first, and that of ToVer at the
    end."""
    served: dict[str, list[str]] = {name: [] for name in NAMES}
    for exchange in upgraded.testbed.seen():
        if exchange.served is not None and exchange.path.startswith("/v1/nodes"):
            served[client_of(exchange)].append(exchange.served)
    assert {name: (versions[0], versions[-1]) for name, versions in served.items()} == {
        "ironicclient": (F, T),
        "openstacksdk": (F, SDK_NEWEST),
        "pinned": ("1.31", "1.31"),
        "latest": (F, T),
        "unversioned": (IRONIC.default_version, IRONIC.default_version),
    }
