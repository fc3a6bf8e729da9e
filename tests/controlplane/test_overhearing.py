"""What requests bring gets in at once while it is little, and at a bounded rate when it is much."""

from __future__ import annotations

import asyncio
from collections import Counter

from gateway.controlplane.cell import Cell
from gateway.controlplane.overhearing import A_SECOND, Overhearing
from gateway.core.backend import Backend, Member
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered, Contradicted, Overheard, Unreached
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from tests.controlplane.fakes import LOOPBACK, PATIENCE, cell_of, service

NAMES = ("api-1", "api-2", "api-3")


class Listener:
    """A cell of three backends that are known, what is counted, and a clock that a test sets."""

    def __init__(self) -> None:
        self.cell: Cell = cell_of(service(*(Backend(name, LOOPBACK, 1) for name in NAMES)))
        for name in NAMES:
            self.cell.observe("baremetal", name, Answered(advert(58), 0.0))
        self.now = 100.0
        self.held: Counter[str] = Counter()
        self.changes = 0
        self.changed = asyncio.Event()
        self.cell.subscribe(lambda before, after: self._count())
        self.overhearing = Overhearing(self.cell, self, lambda: self.now)

    def _count(self) -> None:
        self.changes += 1
        self.changed.set()

    def deferred(self, service: str, backend: str) -> None:
        self.held[backend] += 1

    def says(self, highest: int, at: float, name: str = "api-1") -> None:
        self.overhearing.observe("baremetal", name, Overheard(advert(highest), at))

    def fill(self) -> None:
        """Use up what is free."""
        for number in range(A_SECOND):
            self.says(60 + number, 1.0 + number)

    def member(self, name: str = "api-1") -> Member:
        found = self.cell.current.fleet.pools["baremetal"].member(name)
        assert found is not None
        return found

    async def next_slot(self) -> None:
        """Wait for the next change; the clock moves on as the loop's does, near enough."""
        self.now += 1 / A_SECOND
        self.changed.clear()
        async with asyncio.timeout(PATIENCE):
            await self.changed.wait()


def advert(highest: int) -> Advert:
    return Advert(VersionSet.between(Version(1, 1), Version(1, highest)))


async def test_few_facts_get_in_at_once() -> None:
    listener = Listener()

    for number in range(A_SECOND):
        listener.says(60 + number, 1.0 + number)
        assert listener.member().advert == advert(60 + number)

    assert listener.held.total() == 0


async def test_a_flood_of_contradicting_words_makes_few_snapshots_and_the_newest_word_stands() -> None:
    """Two servers behind one address, a thousand replies."""
    listener = Listener()
    for number in range(1000):
        listener.says(58 if number % 2 else 90, 1.0 + number)
    assert listener.changes == A_SECOND
    assert listener.held == {"api-1": 1000 - A_SECOND}

    await listener.next_slot()

    assert listener.changes == A_SECOND + 1
    assert listener.member().advert == advert(58)
    assert listener.member().heard_at == 1000.0


async def test_what_waits_is_one_change_and_nothing_of_it_is_lost() -> None:
    listener = Listener()
    listener.fill()
    listener.says(70, 20.0, "api-2")
    listener.says(80, 19.0, "api-2")  # came later, but is older
    listener.says(71, 20.0, "api-3")
    for version in (Version(1, 5), Version(1, 6), Version(1, 5)):
        listener.overhearing.observe("baremetal", "api-2", Contradicted(version, 21.0))
    listener.overhearing.observe("baremetal", "api-1", Unreached(21.0))
    assert listener.changes == A_SECOND

    await listener.next_slot()

    assert listener.changes == A_SECOND + 1
    assert (listener.member("api-2").advert, listener.member("api-3").advert) == (advert(70), advert(71))
    assert listener.member("api-2").contradicted == VersionSet.between(Version(1, 5), Version(1, 6))
    assert listener.member("api-1").refusing


async def test_a_probe_that_answered_since_is_not_overwritten_by_what_waited() -> None:
    listener = Listener()
    listener.fill()
    listener.says(90, 20.0)
    listener.cell.observe("baremetal", "api-1", Answered(advert(58), 25.0))
    listener.says(70, 30.0, "api-2")

    await listener.next_slot()

    assert listener.member().advert == advert(58)
    assert listener.member("api-2").advert == advert(70)


async def test_what_says_nothing_new_takes_no_slot_and_does_not_wait() -> None:
    listener = Listener()
    for number in range(50):
        listener.says(58, 1.0 + number)
    assert listener.member().heard_at == 50.0, "its time is news to what is older"
    listener.overhearing.observe("baremetal", "gone", Unreached(60.0))
    assert (listener.changes, listener.held.total()) == (0, 0)

    for number in range(A_SECOND):
        listener.says(60 + number, 60.0 + number, "api-2")
    assert listener.member("api-2").advert == advert(59 + A_SECOND), "all slots were free"
    listener.says(57, 2.0)
    assert listener.held.total() == 0, "older than what is known: nothing to wait for"


async def test_slots_become_free_with_time_and_are_not_saved_up_for_ever() -> None:
    listener = Listener()
    listener.fill()
    listener.now += 3600.0

    for number in range(A_SECOND):
        listener.says(70 + number, 30.0 + number)
    listener.says(90, 40.0)

    assert listener.changes == 2 * A_SECOND
    assert listener.held == {"api-1": 1}
    await listener.next_slot()
    assert listener.member().advert == advert(90)


async def test_closing_lets_in_what_waits() -> None:
    listener = Listener()
    listener.fill()
    listener.says(90, 20.0)

    listener.overhearing.close()
    listener.overhearing.close()

    assert listener.member().advert == advert(90)
    assert listener.changes == A_SECOND + 1
