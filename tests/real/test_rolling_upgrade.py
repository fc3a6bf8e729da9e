"""The upgrade that the specification of Ironic's rolling upgrades describes, with its own servers.

Four APIs on one database go from 12.1.6 to 39.0.0 pinned to 12.1 and then to 39.0.0 unpinned, one at a time,
by SIGTERM and the next release on the same port (UPGRADE-4.2 to 6.4). Five clients go on all the while: two
libraries, and requesters that say one version, `latest` or nothing. The upgrade is made once, and each test
holds one promise against its records.

What may fail, and why:

* 500 to POST and PATCH of a node by an API of 12.1.6: in 4.2 and 5.1 its conductor is 39.0.0 already, which
  does what it is asked and answers with a list of traits that 12.1.6 cannot read. The server has written and
  says 500: passed on, once, never tried elsewhere.
* 500 to writes while the one conductor is restarted unpinned (6.2): the API says that it cannot reach it.
* 502 to POST and PATCH that were at a server as it ended (12.1.6 finishes nothing) and got no reply: whether
  they were executed nobody can know, so they are not sent again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real.conftest import FIGURES, NOTES
from tests.real.environments import build_all
from tests.real.ledger import ONCE, Excuse, Ledger, judge
from tests.real.loops import NAMES, Call, Loops, client_of
from tests.real.rolling_fleet import FROM, MEMBERS, TO, TO_PINNED, RollingFleet
from tests.real.rolling_upgrade import SETTLE, UpgradeRun
from tests.real.stand import SILENCE_MEANS, Stand

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

F, T = FROM.top, TO.top
UNREADABLE = "Version 1.2 of TraitList is not supported"
NO_CONDUCTOR = "Unable to establish connection to"
WRITES = frozenset({"POST", "PATCH", "DELETE"})
# The newest that openstacksdk 4.22.0 asks for nodes at.
SDK_NEWEST = "1.109"


@dataclass(frozen=True, slots=True)
class Upgraded:
    """All that is left of the upgrade."""

    run: UpgradeRun
    stand: Stand
    calls: list[Call]
    ledger: Ledger


@pytest.fixture(scope="module")
def upgraded(folder: Path, pytestconfig: pytest.Config) -> Iterator[Upgraded]:
    environments = build_all([FROM.environment, TO.environment, "client-new"])
    fleet = RollingFleet(environments, folder / "rolling")
    try:
        fleet.start()
        policy = {"policy": "guaranteed", "settle": f"{SETTLE:g}s"}
        stand = Stand("rolling", folder, fleet.members, policy, (SILENCE_MEANS, F))
        stand.start()
        try:
            run = UpgradeRun(fleet, stand)
            loops = Loops(environments["client-new"], stand.front.port, folder)
            with loops.running():
                run.run()
            excuses = [
                Excuse(FROM, ONCE, UNREADABLE),
                Excuse(TO_PINNED, WRITES, NO_CONDUCTOR, run.conductor_away),
            ]
            offers = [(SILENCE_MEANS, F), (SILENCE_MEANS, T)]
            ledger = judge(loops.calls, stand.seen(), run.arrivals(), run.windows, excuses, offers)
            pytestconfig.stash[FIGURES] += stand.figures()
            pytestconfig.stash[NOTES] += _notes(run, ledger, stand)
            yield Upgraded(run, stand, loops.calls, ledger)
        finally:
            code = stand.stop()
        assert code == 0, f"the gateway ended with {code}\n{stand.gateway.process.last_words()}"
    finally:
        fleet.stop()


def _notes(run: UpgradeRun, ledger: Ledger, stand: Stand) -> list[str]:
    """What a person gets to see at the end, whatever came of it."""
    metrics = stand.gateway.metrics()
    retries = {
        labels["reason"]: int(metrics.total("skewgate_retries_total", reason=labels["reason"]))
        for labels in metrics.labels("skewgate_retries_total")
    }
    bad = ("lost", "duplicated", "desynced", "misdirected", "forgotten")
    head = (
        f"rolling upgrade {FROM.number} -> {TO.number} pinned -> {TO.number}:",
        f"{ledger.calls} calls, {ledger.requests} requests, {ledger.refusals} refusals,",
        f"retries {', '.join(f'{why}: {number}' for why, number in retries.items() if number) or 0},",
        f"servers' own 500 passed on {ledger.passed_500.total()},",
        f"in doubt (a server took them with it) {len(ledger.in_doubt)},",
        *(f"{what} {len(getattr(ledger, what))}" for what in bad),
    )
    return [
        " ".join(head),
        *(f"  500, {number} times: {what}" for what, number in sorted(ledger.passed_500.items())),
        *(
            f"  {step.scenario:<20} {step.member or '':<6} {step.phase:<9} {step.top:<6} {step.took:5.1f} s"
            for step in run.steps
        ),
    ]


def test_phase_and_offer_are_right_at_every_step(upgraded: Upgraded) -> None:
    """The offer is FromVer's until the last API is unpinned, then ToVer's once that has stood."""
    uniform = ("uniform", F)
    assert [(step.scenario, step.phase, step.top) for step in upgraded.run.steps] == [
        ("UPGRADE-4.2", *uniform),
        *[("UPGRADE-5.1", *uniform)] * 3,
        ("UPGRADE-5.2", *uniform),
        ("UPGRADE-6.2", *uniform),
        *[("UPGRADE-6.3", "mixed", F)] * 3,
        ("UPGRADE-6.4", "settling", F),
        ("UPGRADE-6.4 settled", "uniform", T),
    ]


def test_nothing_else_was_to_be_seen_in_between(upgraded: Upgraded) -> None:
    """Servers that are down for a restart change neither phase nor offer, and the offer never falls."""
    changes = upgraded.run.watch.changes
    assert [(one.phase, one.top) for one in changes] == [
        ("uniform", F),
        ("mixed", F),
        ("settling", F),
        ("uniform", T),
    ]
    assert changes[3].at - changes[2].at == pytest.approx(SETTLE, abs=0.5)


def test_what_holds_the_offer_is_named(upgraded: Upgraded) -> None:
    """In 6.3: the members that are unpinned already say something else than what is offered."""
    mixed = [step.status["offer"] for step in upgraded.run.steps if step.scenario == "UPGRADE-6.3"]
    assert [set(offer["held_by"]) for offer in mixed] == [set(MEMBERS[: count + 1]) for count in range(3)]
    assert {offer["held_rule"] for offer in mixed} == {"guaranteed"}


def test_no_call_was_lost(upgraded: Upgraded) -> None:
    assert upgraded.ledger.lost == []
    assert Counter(call.client for call in upgraded.calls).keys() == set(NAMES)


def test_a_server_s_own_500_is_passed_on_and_never_tried_elsewhere(upgraded: Upgraded) -> None:
    """Each one was at one server, once (or it would be among the lost), and what it wrote is there."""
    passed = upgraded.ledger.passed_500
    assert {what for what in passed if UNREADABLE in what} == {
        f"{UNREADABLE}: {method} at {FROM.number}" for method in ONCE
    }
    assert upgraded.ledger.forgotten == []


def test_nothing_was_executed_twice(upgraded: Upgraded) -> None:
    assert upgraded.ledger.duplicated == []


def test_everything_was_executed_at_the_version_told_by_a_server_that_serves_it(upgraded: Upgraded) -> None:
    assert upgraded.ledger.misdirected == []
    assert upgraded.ledger.desynced == []


def test_every_client_ends_at_the_version_that_is_its(upgraded: Upgraded) -> None:
    """Who asks for the newest gets what is on offer: FromVer's before, ToVer's at the end."""
    served: dict[str, list[str]] = {name: [] for name in NAMES}
    for one in upgraded.stand.seen():
        if one.served is not None and one.path.startswith("/v1/nodes"):
            served[client_of(one)].append(one.served)
    assert {name: (of[0], of[-1]) for name, of in served.items()} == {
        "ironicclient": (F, T),
        "openstacksdk": (F, SDK_NEWEST),
        "pinned": ("1.31", "1.31"),
        "latest": (F, T),
        "silent": (SILENCE_MEANS, SILENCE_MEANS),
    }
