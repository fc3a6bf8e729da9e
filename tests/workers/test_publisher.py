"""The publisher: one Update at a time for each worker, at a bounded rate, and never a queue of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import Final, final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.fleet import PassiveObservation, Pin
from gateway.core.fleet.publication import published
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.version import Version
from gateway.dataplane.edge.balance import Descriptors
from gateway.workers.messages import LearnedFacts, Start, Update
from gateway.workers.publisher import FACTS_PAUSE, PAUSE, Publisher, Recipient
from gateway.workers.supervisor import Changes
from tests.controlplane.fakes import service
from tests.kit.ironic import holder_of, learn, upto
from tests.kit.waiting import PATIENCE
from tests.workers.fakes import API, settings_of

NO_BALANCE: Final = Descriptors(0, 0, ())


@final
class Worker:
    """Holds what it was sent, and acknowledges when the test says so."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._changes = Changes()
        self.told: list[Start | Update] = []
        self.told_at: list[float] = []
        self.snapshot: Snapshot | None = None
        self.recipient: Recipient = publisher.add(
            self._send, lambda settings, everything: Start(settings, everything, 0, 1, (), NO_BALANCE)
        )

    def _send(self, message: object) -> None:
        assert isinstance(message, Start | Update)
        self.told.append(message)
        self.told_at.append(monotonic())
        self.snapshot = published(self.snapshot, message.publication)
        self._changes.changed()

    def acknowledge(self) -> None:
        assert self._publisher.acknowledged(self.recipient, len(self.told))

    async def told_of(self, number: int) -> None:
        """Wait for so many messages in all."""
        assert await self._changes.until(lambda: len(self.told) >= number, PATIENCE)
        assert len(self.told) == number

    @property
    def last_update(self) -> Update:
        last = self.told[-1]
        assert isinstance(last, Update)
        return last


def learned(holder: SnapshotHolder, highest: int) -> None:
    learn(holder, "api-1", upto(highest), float(highest))


def highest_known(snapshot: Snapshot | None) -> Version | None:
    assert snapshot is not None
    advertisement = snapshot.views["baremetal"].members.all[0].advertisement
    return None if advertisement is None else advertisement.versions.highest


@pytest.fixture
async def holder() -> SnapshotHolder:
    return holder_of(service(API))


@pytest.fixture
async def publisher(holder: SnapshotHolder) -> AsyncIterator[Publisher]:
    made = Publisher(holder, settings_of(holder))
    yield made
    made.close()


async def test_a_worker_gets_everything_at_once_and_then_what_is_new(
    holder: SnapshotHolder, publisher: Publisher
) -> None:
    learned(holder, 10)
    worker = Worker(publisher)
    assert isinstance(worker.told[0], Start)
    assert highest_known(worker.snapshot) == Version(1, 10)
    worker.acknowledge()
    learned(holder, 11)
    await worker.told_of(2)

    assert worker.last_update.number == 2
    assert highest_known(worker.snapshot) == Version(1, 11)
    assert worker.last_update.settings is None


async def test_what_happens_before_the_acknowledgement_comes_together(
    holder: SnapshotHolder, publisher: Publisher
) -> None:
    worker = Worker(publisher)
    for highest in range(10, 30):
        learned(holder, highest)
        await asyncio.sleep(0)
    worker.acknowledge()
    await worker.told_of(2)

    assert highest_known(worker.snapshot) == Version(1, 29)


async def test_many_changes_in_one_turn_of_the_loop_are_one_update(
    holder: SnapshotHolder, publisher: Publisher
) -> None:
    worker = Worker(publisher)
    worker.acknowledge()
    for highest in range(10, 30):
        learned(holder, highest)
    await worker.told_of(2)
    worker.acknowledge()
    holder.apply("baremetal", Pin(Version(1, 5)))
    await worker.told_of(3)


async def test_two_updates_are_some_time_apart(holder: SnapshotHolder, publisher: Publisher) -> None:
    worker = Worker(publisher)
    for number in range(2, 8):
        worker.acknowledge()
        learned(holder, 10 + number)
        await worker.told_of(number)

    # Not each pause alone: on a busy machine one is told late, and the next one after it in time.
    pauses = len(worker.told_at) - 1
    assert worker.told_at[-1] - worker.told_at[0] > (pauses - 1) * PAUSE


async def test_a_worker_that_is_behind_keeps_no_other_one_waiting(
    holder: SnapshotHolder, publisher: Publisher
) -> None:
    slow, quick = Worker(publisher), Worker(publisher)
    for number in range(2, 5):
        quick.acknowledge()
        learned(holder, 10 + number)
        await quick.told_of(number)

    assert len(slow.told) == 1
    slow.acknowledge()
    await slow.told_of(2)
    assert highest_known(slow.snapshot) == highest_known(quick.snapshot)


async def test_those_who_hold_the_same_get_the_same_publication(
    holder: SnapshotHolder, publisher: Publisher
) -> None:
    workers = [Worker(publisher), Worker(publisher)]
    for worker in workers:
        worker.acknowledge()
    learned(holder, 10)
    for worker in workers:
        await worker.told_of(2)
    assert workers[0].last_update.publication is workers[1].last_update.publication


async def test_facts_are_taken_in_and_told_to_be(holder: SnapshotHolder, publisher: Publisher) -> None:
    worker = Worker(publisher)
    worker.acknowledge()
    fact = ("baremetal", "api-1", PassiveObservation(upto(20), 5.0))
    assert publisher.facts(worker.recipient, LearnedFacts(1, (fact,)))
    await worker.told_of(2)

    assert worker.last_update.facts_seen == 1
    assert highest_known(holder.current) == highest_known(worker.snapshot) == Version(1, 20)


async def test_facts_that_say_nothing_new_are_told_to_be_seen_too(
    holder: SnapshotHolder, publisher: Publisher
) -> None:
    learned(holder, 20)
    worker = Worker(publisher)
    worker.acknowledge()
    for number in range(1, 4):
        fact = ("baremetal", "api-1", PassiveObservation(upto(20), 20.0 + number))
        assert publisher.facts(worker.recipient, LearnedFacts(number, (fact,)))
    await worker.told_of(2)

    assert worker.last_update.facts_seen == 3
    assert worker.told_at[1] - worker.told_at[0] > 0.9 * FACTS_PAUSE, "that is nothing urgent"
    worker.acknowledge()


@pytest.mark.parametrize("number", [0, 2, -1])
async def test_facts_out_of_order_are_not_taken_in(
    holder: SnapshotHolder, publisher: Publisher, number: int
) -> None:
    worker = Worker(publisher)
    fact = ("baremetal", "api-1", PassiveObservation(upto(20), 5.0))
    assert not publisher.facts(worker.recipient, LearnedFacts(number, (fact,)))
    holder.apply_batch()
    assert highest_known(holder.current) is None


@pytest.mark.parametrize("number", [0, 2, -1])
async def test_what_is_not_under_way_cannot_be_acknowledged(publisher: Publisher, number: int) -> None:
    worker = Worker(publisher)
    assert not publisher.acknowledged(worker.recipient, number)
    worker.acknowledge()
    assert not publisher.acknowledged(worker.recipient, 1)


async def test_settings_come_with_the_snapshot_that_they_are_about(
    holder: SnapshotHolder, publisher: Publisher
) -> None:
    slow, quick = Worker(publisher), Worker(publisher)
    quick.acknowledge()
    learned(holder, 10)
    settings = settings_of(holder)
    publisher.configured(settings)
    await quick.told_of(2)
    assert [each.settings for each in quick.told[1:]] == [settings.for_workers]

    quick.acknowledge()
    learned(holder, 11)
    await quick.told_of(3)
    assert [each.settings for each in quick.told[2:]] == [None], "once"
    slow.acknowledge()
    await slow.told_of(2)
    assert [each.settings for each in slow.told[1:]] == [settings.for_workers]
    late = Worker(publisher)
    assert isinstance(late.told[0], Start)
    assert late.told[0].settings == settings.for_workers


async def test_who_has_ended_is_told_nothing_more(holder: SnapshotHolder, publisher: Publisher) -> None:
    gone, other = Worker(publisher), Worker(publisher)
    gone.acknowledge()
    other.acknowledge()
    publisher.remove(gone.recipient)
    publisher.remove(gone.recipient)
    learned(holder, 10)
    await other.told_of(2)
    assert len(gone.told) == 1


@given(st.lists(st.sampled_from(["learn", "turn", "pause", 0, 1, 2]), max_size=60))
async def test_whoever_acknowledges_holds_all_in_the_end(steps: list[str | int]) -> None:
    """Whenever each of three workers acknowledges: what it holds is what was current when it was told."""
    holder = holder_of(service(API))
    publisher = Publisher(holder, settings_of(holder))
    try:
        workers = [Worker(publisher) for _ in range(3)]
        highest = 10
        for step in steps:
            if step == "learn":
                highest += 1
                learned(holder, highest)
            elif step == "turn":
                await asyncio.sleep(0)
            elif step == "pause":
                await asyncio.sleep(PAUSE)
            elif isinstance(step, int) and workers[step].recipient.sent is not None:
                workers[step].acknowledge()
        for worker in workers:
            while worker.recipient.changes < publisher.changes:
                if worker.recipient.sent is None:
                    await worker.told_of(len(worker.told) + 1)
                worker.acknowledge()
            assert highest_known(worker.snapshot) == highest_known(holder.current)
            assert worker.recipient.held is holder.current
    finally:
        publisher.close()
