"""Laws of several whole replicas over a store in memory, whatever fails between them and in whatever order.

At every moment no version is served by one and refused by another, attached one; and when everything that
failed is mended, all come to offer what all backends serve.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.controlplane.stores.store import StoreError
from gateway.core.fleet.fleet import Pin, Raise
from tests.controlplane.test_replication import SETTINGS, Replica, Site, site
from tests.core.builders import v
from tests.kit.clocks import run
from tests.kit.examples import examples

REPLICAS: Final = 3
PAUSES: Final = (0.01, 0.05, 0.3, 1.0, 3.5)
"""Seconds between two events: from less than a call takes to more than one TTL."""

Event: TypeAlias = tuple[str, int, int, float]
"""What happens, to which replica, a number, and for how long nothing happens then."""

KINDS: Final = (
    *("cut", "cut", "lost", "late", "answer", "quorum", "hears", "all", "all", "all"),
    *("pin", "raise", "crash", "anew", "stop", "slow"),
)

EVENTS: Final = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, REPLICAS - 1),
        st.integers(0, 3),
        st.sampled_from(PAUSES),
    ),
    min_size=1,
    max_size=12,
)
HEARD: Final = (3, 4, 5, 9)


async def _happens(here: Site, event: Event) -> None:
    kind, index, number, _ = event
    one = here.replicas[index]
    link = one.store.link
    match kind:
        case "cut":
            link.up = not link.up
        case "lost":
            link.loses_answers = not link.loses_answers
        case "late" | "answer":
            gate = link.pass_on if kind == "late" else link.answer
            (gate.clear if gate.is_set() else gate.set)()
        case "quorum":
            here.cluster.quorum = not here.cluster.quorum
        case "hears":
            one.hears(HEARD[number])
        case "all":
            for each in here.replicas:
                each.hears(HEARD[number])
        case "pin":
            with suppress(StoreError):
                await one.replication.command("toy", Pin((None, v("1.2"), v("1.4"), v("1.5"))[number]))
        case "raise":
            with suppress(StoreError):
                await one.replication.command("toy", Raise((None, v("1.2"), v("1.4"), v("1.8"))[number]))
        case "crash" | "anew" | "stop":
            await _ends(here, one, index, kind, None if number == 0 else HEARD[number])
        case _:
            _blocks(one)


async def _ends(here: Site, one: Replica, index: int, kind: str, heard: int | None) -> None:
    """And is started again: with its file, or without."""
    if kind == "stop":
        await one.replication.close()
    else:
        one.kill()
    here.leaves(one)
    again = await here.joins(highest=heard, saved=None if kind == "anew" else one.file)
    here.replicas.remove(again)
    here.replicas.insert(index, again)


def _blocks(one: Replica) -> None:
    """A worker holds what is in force, and takes nothing new; or it does again."""
    agreed = one.holder.current.views["toy"].agreed
    seq = 0 if agreed is None or agreed.record is None else agreed.record.seq
    one.holds = seq if one.holds is None else None
    one.replication.acknowledged()


def _mend(here: Site) -> None:
    here.cluster.quorum = True
    for each in here.replicas:
        link = each.store.link
        link.up, link.loses_answers, each.holds = True, False, None
        link.pass_on.set()
        link.answer.set()
        each.hears(9)
        each.replication.acknowledged()


async def _lives_through(events: list[Event]) -> None:
    async with site(REPLICAS) as here:
        for event in events:
            await _happens(here, event)
            await here.passes(event[3])
        _mend(here)
        await here.passes(SETTINGS.ttl)
        await here.replicas[0].replication.command("toy", Pin(None))
        await here.replicas[1].replication.command("toy", Raise(None))
        await here.until(lambda: all(each.serves(9) for each in here.replicas), 2 * (SETTINGS.forget or 0.0))
        await here.all_offer(9)
        assert all(each.replication.report().attached for each in here.replicas)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck), print_blob=False)
@given(EVENTS)
def test_nobody_refuses_what_another_serves(events: list[Event]) -> None:
    run(_lives_through(events))
