"""Facts from requests get in at once while they are few, and at a bounded rate when they are many."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from gateway.controlplane.passive_observation import CHANGES_PER_SECOND, PassiveObserver
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend, Member
from gateway.core.fleet.fleet import (
    ConnectFailed,
    Fact,
    PassiveObservation,
    ProbeSucceeded,
    VersionMismatch,
)
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.telemetry.series import declaring
from gateway.telemetry.series.backend import OfBackend
from tests.controlplane.fakes import service
from tests.kit.ironic import holder_of, learn, upto
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE
from tests.telemetry.builders import NobodyCounts

NAMES = ("api-1", "api-2", "api-3")


class Harness(NobodyCounts):
    """Three known backends, counts of what was deferred and changed, and a clock that a test sets."""

    def __init__(self) -> None:
        self.snapshot_holder: SnapshotHolder = holder_of(
            service(*(Backend(name, LOOPBACK, 1) for name in NAMES))
        )
        for name in NAMES:
            learn(self.snapshot_holder, name, upto(58), 0.0)
        self.now = 100.0
        self.deferrals: Counter[str] = Counter()
        self.changes = 0
        self.changed = asyncio.Event()
        self.snapshot_holder.subscribe(lambda before, after: self._count())
        self.passive_observer = PassiveObserver(self.snapshot_holder, self, lambda: self.now)

    def _count(self) -> None:
        self.changes += 1
        self.changed.set()

    def count(self, series: declaring.Counter, *key: str, service: str = "", backend: str = "") -> None:
        assert series is OfBackend.deferred_facts
        self.deferrals[backend] += 1

    def advertise(self, highest: int, at: float, name: str = "api-1") -> None:
        """A fact in a turn of the event loop of its own."""
        self.passive_observer.observe("baremetal", name, PassiveObservation(upto(highest), at))
        self.snapshot_holder.apply_batch()

    def use_all_tokens(self) -> None:
        """Use up all tokens."""
        for number in range(CHANGES_PER_SECOND):
            self.advertise(60 + number, 1.0 + number)

    def member(self, name: str = "api-1") -> Member:
        member = self.snapshot_holder.current.fleet.member_sets["baremetal"].member(name)
        assert member is not None
        return member

    async def next_token(self) -> None:
        """Wait for the next change; the clock advances about as much as the loop's."""
        self.now += 1 / CHANGES_PER_SECOND
        self.changed.clear()
        async with asyncio.timeout(PATIENCE):
            await self.changed.wait()


async def test_few_facts_get_in_at_once() -> None:
    harness = Harness()

    for number in range(CHANGES_PER_SECOND):
        harness.advertise(60 + number, 1.0 + number)
        assert harness.member().advertisement == upto(60 + number)

    assert harness.deferrals.total() == 0


async def test_a_flood_of_different_advertisements_makes_few_snapshots_and_the_newest_counts() -> None:
    """Two servers behind one address, a thousand responses."""
    harness = Harness()
    for number in range(1000):
        harness.advertise(58 if number % 2 else 90, 1.0 + number)
    assert harness.changes == CHANGES_PER_SECOND
    assert harness.deferrals == {"api-1": 1000 - CHANGES_PER_SECOND}

    await harness.next_token()

    assert harness.changes == CHANGES_PER_SECOND + 1
    assert harness.member().advertisement == upto(58)
    assert harness.member().advertised_at == 1000.0


async def test_what_waits_is_one_change_and_nothing_of_it_is_lost() -> None:
    harness = Harness()
    harness.use_all_tokens()
    harness.advertise(70, 20.0, "api-2")
    harness.advertise(80, 19.0, "api-2")  # came later, but is older
    harness.advertise(71, 20.0, "api-3")
    for version in (Version(1, 5), Version(1, 6), Version(1, 5)):
        harness.passive_observer.observe("baremetal", "api-2", VersionMismatch(version, 21.0))
    harness.passive_observer.observe("baremetal", "api-1", ConnectFailed(21.0))
    assert harness.changes == CHANGES_PER_SECOND

    await harness.next_token()

    assert harness.changes == CHANGES_PER_SECOND + 1
    assert (harness.member("api-2").advertisement, harness.member("api-3").advertisement) == (
        upto(70),
        upto(71),
    )
    assert harness.member("api-2").mismatched == VersionSet.between(Version(1, 5), Version(1, 6))
    assert harness.member("api-1").connect_failed


async def test_mismatches_at_one_version_on_two_paths_are_kept_apart() -> None:
    harness = Harness()
    harness.use_all_tokens()
    for at, path in enumerate(("/v1/nodes", "/v1/ports", "/v1/nodes"), 21):
        harness.passive_observer.observe("baremetal", "api-2", VersionMismatch(Version(1, 5), at, path))

    await harness.next_token()

    harness.snapshot_holder.observe("baremetal", "api-2", ProbeSucceeded(upto(58), 30.0, prompted=True))
    assert harness.member("api-2").mismatched == VersionSet.only(Version(1, 5)), "two paths"


async def test_a_probe_that_answered_since_is_not_overwritten_by_what_waited() -> None:
    harness = Harness()
    harness.use_all_tokens()
    harness.advertise(90, 20.0)
    learn(harness.snapshot_holder, "api-1", upto(58), 25.0)
    harness.advertise(70, 30.0, "api-2")

    await harness.next_token()

    assert harness.member().advertisement == upto(58)
    assert harness.member("api-2").advertisement == upto(70)


@pytest.mark.parametrize("kind", ["connect_failed", "mismatch"])
async def test_a_fact_behind_a_probe_of_the_same_turn_is_not_lost(kind: str) -> None:
    """The probe clears up the older fact of this kind, so the newer one is new."""

    def fact(at: float) -> Fact:
        return ConnectFailed(at) if kind == "connect_failed" else VersionMismatch(Version(1, 5), at, "/v1")

    it = Harness()
    it.use_all_tokens()
    it.snapshot_holder.observe("baremetal", "api-1", fact(5.0))
    it.snapshot_holder.batch("baremetal", "api-1", ProbeSucceeded(upto(58), 7.0))
    it.passive_observer.observe("baremetal", "api-1", fact(8.0))
    it.passive_observer.close()
    it.snapshot_holder.apply_batch()

    assert it.member().connect_failed if kind == "connect_failed" else it.member().mismatched


async def test_a_fact_that_changes_nothing_takes_no_token_and_does_not_wait() -> None:
    harness = Harness()
    for number in range(50):
        harness.advertise(58, 1.0 + number)
    assert harness.member().advertised_at == 50.0, "its time counts against older facts"
    harness.passive_observer.observe("baremetal", "gone", ConnectFailed(60.0))
    assert (harness.changes, harness.deferrals.total()) == (0, 0)

    for number in range(CHANGES_PER_SECOND):
        harness.advertise(60 + number, 60.0 + number, "api-2")
    assert harness.member("api-2").advertisement == upto(59 + CHANGES_PER_SECOND), "all tokens were there"
    harness.advertise(57, 2.0)
    assert harness.deferrals.total() == 0, "older than what is known: nothing to wait for"


async def test_tokens_are_added_with_time_and_saved_up_to_a_bound() -> None:
    harness = Harness()
    harness.use_all_tokens()
    harness.now += 3600.0

    for number in range(CHANGES_PER_SECOND):
        harness.advertise(70 + number, 30.0 + number)
    harness.advertise(90, 40.0)

    assert harness.changes == 2 * CHANGES_PER_SECOND
    assert harness.deferrals == {"api-1": 1}
    await harness.next_token()
    assert harness.member().advertisement == upto(90)


async def test_closing_lets_in_what_waits() -> None:
    harness = Harness()
    harness.use_all_tokens()
    harness.advertise(90, 20.0)

    harness.passive_observer.close()
    harness.passive_observer.close()

    assert harness.member().advertisement == upto(90)
    assert harness.changes == CHANGES_PER_SECOND + 1


async def test_the_facts_of_one_turn_take_one_token() -> None:
    harness = Harness()
    for number in range(3 * CHANGES_PER_SECOND):
        harness.passive_observer.observe(
            "baremetal", NAMES[number % 3], PassiveObservation(upto(60 + number), 1.0 + number)
        )
    assert (harness.changes, harness.deferrals.total()) == (0, 0)
    await asyncio.sleep(0)
    assert (harness.changes, harness.deferrals.total()) == (1, 0)

    for number in range(CHANGES_PER_SECOND - 1):
        harness.advertise(80 + number, 50.0 + number)
    assert harness.deferrals.total() == 0, "the other tokens were there"
    harness.advertise(90, 60.0)
    assert harness.deferrals == {"api-1": 1}


async def test_what_is_needed_before_the_end_of_a_turn_takes_a_token_each_time() -> None:
    """Otherwise two servers behind one address would cost a snapshot for every refused request."""
    harness = Harness()
    for number in range(100):
        harness.advertise(58 if number % 2 else 90, 1.0 + number)

    assert harness.changes == CHANGES_PER_SECOND
