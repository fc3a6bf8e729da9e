"""The snapshot holder: one reference, replaced at once; subscribers are notified in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.agreement.attachment import NOTHING_AGREED, Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import (
    ConnectFailed,
    Drain,
    PassiveObservation,
    Pin,
    ProbeFailed,
    ProbeSucceeded,
)
from gateway.core.fleet.publication import publication, published
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.version import Version
from gateway.workers.channel import dumps, loads
from tests.controlplane.fakes import service
from tests.kit.ironic import holder_of, learn, member, reconfigure, upto

API = Backend("api-1", "127.0.0.1", 1)


def test_a_fact_that_says_something_new_makes_a_new_snapshot() -> None:
    snapshot_holder = holder_of(service(API))
    changes: list[tuple[Snapshot, Snapshot]] = []
    snapshot_holder.subscribe(lambda before, after: changes.append((before, after)))
    first = snapshot_holder.current

    learn(snapshot_holder, "api-1", upto(58))

    assert changes == [(first, snapshot_holder.current)]
    assert snapshot_holder.current.generation == first.generation + 1
    assert member(snapshot_holder).advertisement == upto(58)


def test_the_same_knowledge_again_is_no_change_but_its_time_counts() -> None:
    snapshot_holder = holder_of(service(API))
    learn(snapshot_holder, "api-1", upto(58))
    changes: list[Snapshot] = []
    snapshot_holder.subscribe(lambda before, after: changes.append(after))
    known = snapshot_holder.current

    learn(snapshot_holder, "api-1", upto(58), 5.0)

    assert changes == []
    assert snapshot_holder.current.generation == known.generation
    assert snapshot_holder.current.views["baremetal"] is known.views["baremetal"]

    snapshot_holder.observe("baremetal", "api-1", PassiveObservation(upto(90), 4.0))
    assert member(snapshot_holder).advertisement == upto(58), "its request was sent earlier"


@pytest.mark.parametrize("name", ["gone", ""])
def test_a_fact_about_an_unknown_backend_changes_nothing(name: str) -> None:
    snapshot_holder = holder_of(service(API))
    before = snapshot_holder.current

    snapshot_holder.observe("baremetal", name, ProbeFailed("x", 1.0))
    snapshot_holder.observe(name, "api-1", ProbeFailed("x", 1.0))

    assert snapshot_holder.current is before


def test_subscribers_are_notified_in_order_also_of_changes_by_a_subscriber() -> None:
    snapshot_holder = holder_of(service(API))
    generations: list[int] = []

    def makes_a_change(before: Snapshot, after: Snapshot) -> None:
        if after.generation == 2:
            snapshot_holder.observe("baremetal", "api-1", ProbeFailed("x", 2.0))

    snapshot_holder.subscribe(makes_a_change)
    snapshot_holder.subscribe(lambda before, after: generations.append(after.generation))

    learn(snapshot_holder, "api-1", upto(58))

    assert generations == [2, 3]


def test_after_a_subscriber_has_failed_the_others_are_notified(
    caplog: pytest.LogCaptureFixture,
) -> None:
    snapshot_holder = holder_of(service(API))
    generations: list[int] = []

    def broken(before: Snapshot, after: Snapshot) -> None:
        raise ValueError("broken")

    snapshot_holder.subscribe(broken)
    snapshot_holder.subscribe(lambda before, after: generations.append(after.generation))

    with caplog.at_level(logging.ERROR, "skewgate.snapshot"):
        learn(snapshot_holder, "api-1", upto(58))

    assert generations == [2]
    assert "a subscriber failed" in caplog.text


def test_after_unsubscribing_no_change_is_notified() -> None:
    snapshot_holder = holder_of(service(API))
    generations: list[int] = []
    unsubscribe = snapshot_holder.subscribe(lambda before, after: generations.append(after.generation))

    unsubscribe()
    unsubscribe()
    learn(snapshot_holder, "api-1", upto(58))

    assert generations == []


# --- together -----------------------------------------------------------------------------------------


async def test_the_facts_of_one_turn_are_one_change() -> None:
    names = [f"api-{number}" for number in range(50)]
    snapshot_holder = holder_of(service(*(Backend(name, "127.0.0.1", 1) for name in names)))
    first, changes = snapshot_holder.current, []
    snapshot_holder.subscribe(lambda before, after: changes.append((before, after)))

    for name in names:
        snapshot_holder.batch("baremetal", name, ProbeSucceeded(upto(58), 1.0))
    snapshot_holder.batch("baremetal", "api-1", ProbeSucceeded(upto(90), 2.0))
    assert snapshot_holder.current is first, "they wait for the others of this turn"
    await asyncio.sleep(0)

    assert changes == [(first, snapshot_holder.current)]
    assert snapshot_holder.current.generation == first.generation + 1
    assert member(snapshot_holder).advertisement == upto(90), "in the order in which they came"


async def test_what_waits_can_be_taken_in_at_once() -> None:
    snapshot_holder = holder_of(service(API))
    snapshot_holder.batch("baremetal", "api-1", ProbeSucceeded(upto(58), 1.0))

    snapshot_holder.apply_batch()

    known = snapshot_holder.current
    assert member(snapshot_holder).advertisement == upto(58)
    await asyncio.sleep(0)
    assert snapshot_holder.current is known


async def test_what_waits_counts_before_what_acts_at_once() -> None:
    """A fact that is applied at once, a command and another configuration come behind it."""
    acts: list[Callable[[SnapshotHolder], None]] = [
        lambda holder: holder.observe("baremetal", "api-1", ProbeFailed("x", 2.0)),
        lambda holder: holder.apply("baremetal", Drain("api-1")),
        lambda holder: reconfigure(holder, [service(API)]),
        lambda holder: holder.advance(),
    ]
    for act in acts:
        snapshot_holder = holder_of(service(API))
        snapshot_holder.batch("baremetal", "api-1", ProbeSucceeded(upto(58), 1.0))
        act(snapshot_holder)
        assert member(snapshot_holder).advertisement == upto(58)


async def test_a_configuration_is_told_to_one_subscriber_in_a_turn_and_in_order() -> None:
    snapshot_holder = holder_of(service(API))
    told: list[tuple[str, int]] = []
    snapshot_holder.subscribe(lambda before, after: told.append(("one", after.generation)))
    snapshot_holder.subscribe(lambda before, after: told.append(("other", after.generation)))

    configured = snapshot_holder.configured([service(API)])
    learn(snapshot_holder, "api-1", upto(58))
    snapshot_holder.put_in_force(configured)
    assert told == [("one", 2), ("other", 2)]
    assert (snapshot_holder.current.generation, member(snapshot_holder).advertisement) == (
        3,
        upto(58),
    ), "in force at once, with what was learned while it was worked out"
    await asyncio.sleep(0)
    assert told[2:] == [("one", 3)]
    snapshot_holder.observe("baremetal", "api-1", ProbeFailed("x", 2.0))
    await snapshot_holder.notified()

    assert told[2:] == [("one", 3), ("other", 3), ("one", 4), ("other", 4)]
    await snapshot_holder.notified()


async def test_a_command_is_told_when_it_is_in_force_also_behind_a_configuration() -> None:
    """Its response waits for the state file, which is one of the subscribers."""
    snapshot_holder = holder_of(service(API))
    told: list[int] = []
    snapshot_holder.subscribe(lambda before, after: told.append(after.generation))
    snapshot_holder.put_in_force(snapshot_holder.configured([service(API)]))

    snapshot_holder.apply("baremetal", Drain("api-1"))

    assert told == [2, 3]
    await snapshot_holder.notified()
    assert told == [2, 3]


# --- what several agree on ---------------------------------------------------------------------------------


def agreed(highest: int, seq: int = 1) -> Agreed:
    versions = upto(highest).versions
    return Agreed(AgreedRecord(seq, "guaranteed", versions, versions, versions, versions))


def offered(snapshot_holder: SnapshotHolder, name: str = "baremetal") -> str:
    view = snapshot_holder.current.views[name]
    return view.offer.versions.format(view.service.dialect.scheme)


def test_what_is_agreed_on_is_in_force_at_once_in_place_of_the_offer_state() -> None:
    snapshot_holder = holder_of(service(API), replace(service(API), name="other"))
    learn(snapshot_holder, "api-1", upto(58))
    changes: list[Snapshot] = []
    snapshot_holder.subscribe(lambda before, after: changes.append(after))
    before = snapshot_holder.current

    snapshot_holder.agree({"baremetal": agreed(5), "gone": agreed(9)})

    assert offered(snapshot_holder) == "1.1-1.5"
    assert changes == [snapshot_holder.current]
    assert snapshot_holder.current.views["other"] is before.views["other"]

    snapshot_holder.agree({"baremetal": agreed(5)})
    snapshot_holder.agree({})
    assert len(changes) == 1, "nothing new"

    snapshot_holder.agree({"baremetal": None})
    assert offered(snapshot_holder) == "1.1-1.58"


def test_neither_facts_nor_time_nor_commands_move_what_is_agreed_on() -> None:
    now = [0.0]
    one = replace(service(API), stabilization=5.0)
    snapshot_holder = SnapshotHolder(Snapshot.configured([one], now=0.0), lambda: now[0])
    learn(snapshot_holder, "api-1", upto(58), 0.0)
    assert offered(snapshot_holder) == "1.1-1.58"
    learn(snapshot_holder, "api-1", upto(60))
    snapshot_holder.agree({"baremetal": agreed(58)})
    assert snapshot_holder.current.due == 5.0

    now[0] = 100.0
    snapshot_holder.advance()
    assert offered(snapshot_holder) == "1.1-1.58", "the wait is over, and nobody has agreed yet"
    assert snapshot_holder.current.views["baremetal"].offer_state.versions == upto(60).versions
    learn(snapshot_holder, "api-1", upto(3), 100.0)
    snapshot_holder.apply("baremetal", Pin(Version(1, 2)))
    snapshot_holder.discover([replace(one, backends=(API, replace(API, name="api-2")))])

    assert offered(snapshot_holder) == "1.1-1.58"
    assert snapshot_holder.current.views["baremetal"].agreed == agreed(58)


async def test_a_configuration_keeps_what_is_agreed_on_and_a_new_service_begins_with_nothing() -> None:
    first = Snapshot.configured([service(API)], now=0.0, agreed=NOTHING_AGREED)
    snapshot_holder = SnapshotHolder(first, agreed=NOTHING_AGREED)
    alone: list[str] = []
    snapshot_holder.subscribe(
        lambda before, after: alone.extend(name for name, view in after.views.items() if view.agreed is None)
    )
    new = replace(service(replace(API, declared=upto(7).versions)), name="new")

    configured = snapshot_holder.configured([service(API), new])
    snapshot_holder.agree({"baremetal": agreed(5)})
    snapshot_holder.put_in_force(configured)

    assert offered(snapshot_holder) == "1.1-1.5", "agreed while it was worked out"
    assert snapshot_holder.current.views["new"].agreed == NOTHING_AGREED
    assert offered(snapshot_holder, "new") == "none"
    snapshot_holder.agree({"new": agreed(7)})
    await snapshot_holder.notified()
    assert offered(snapshot_holder, "new") == "1.1-1.7"
    assert alone == []


# --- following another holder ------------------------------------------------------------------------------


def follower(leader: SnapshotHolder) -> SnapshotHolder:
    """In another process: it shares nothing with the other one."""
    return SnapshotHolder(published(None, loads(dumps(publication(None, leader.current)))))


def test_a_follower_has_what_was_published_and_on_top_of_it_its_own_facts() -> None:
    leader = holder_of(service(API))
    learn(leader, "api-1", upto(58))
    leader.agree({"baremetal": agreed(58)})
    there = follower(leader)
    base, changes = there.current, list[Snapshot]()
    there.subscribe(lambda before, after: changes.append(after))
    own = ("baremetal", "api-1", ConnectFailed(2.0, "refused"))
    there.observe(*own)
    assert member(there).connect_failed

    before = leader.current
    leader.observe("baremetal", "api-1", ProbeFailed("x", 3.0))
    base = published(base, loads(dumps(publication(before, leader.current))))
    there.follow(base, [own])

    assert (member(there).connect_failed, member(there).failures) == (True, 1), "not seen there yet"
    assert changes[-1] is there.current
    assert len(changes) == 2

    there.follow(base)
    assert not member(there).connect_failed, "seen, and outweighed"
    there.follow(base)
    assert len(changes) == 3, "nobody is notified of nothing"
    assert there.current is base


async def test_a_follower_must_have_applied_its_batch() -> None:
    """It is told to the other one, too, and would be lost here."""
    there = follower(holder_of(service(API)))
    there.batch("baremetal", "api-1", ConnectFailed(2.0, "refused"))

    with pytest.raises(AssertionError, match="lost"):
        there.follow(there.current)
    there.apply_batch()
    there.follow(there.current)

    assert member(there).connect_failed
