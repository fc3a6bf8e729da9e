"""A floor that several replicas agree on: raised, lowered, of a file, with one that is away or older."""

from __future__ import annotations

import json

import pytest

from gateway.controlplane.replication.entries import raised_of
from gateway.controlplane.replication.reading import DOC, RAISED
from gateway.core.fleet.fleet import Raise
from gateway.core.versions.ranges import VersionSet
from gateway.errors import CommandRefused
from tests.controlplane.test_replication import ENOUGH, P, Replica, Site, site
from tests.core.builders import XY, service, upto, v
from tests.kit.clocks import run

AT_3 = VersionSet.between(v("1.3"), v("1.5"))
OLDER = {"ack": 0, "forms": [1], "vote": None, "transparent": False, "idle": [], "config": ""}
"""Entry of a live replica whose release knows no floors."""


def form(here: Site) -> int:
    found = json.loads(here.cluster.texts(P)[DOC])["form"]
    assert isinstance(found, int)
    return found


async def all_offer(here: Site, versions: VersionSet) -> None:
    await here.until(lambda: all(each.offered() == versions for each in here.replicas))


async def away_serves_until_it_is_back(here: Site, away: Replica) -> None:
    """The others offer 1.3 and more, and refuse nothing that the one that is away may still serve."""
    others = [each for each in here.replicas if each is not away]
    await here.until(lambda: all(each.offered() == AT_3 for each in others))
    await here.passes(5)
    assert away.serves(2)
    assert not any(each.refuses(2) for each in others)
    away.store.link.up = True
    await all_offer(here, AT_3)
    await here.until(lambda: all(each.refuses(2) for each in here.replicas))


def test_a_raised_floor_holds_for_all_until_it_is_lowered() -> None:
    async def main() -> None:
        async with site(3) as here:
            first, second, third = here.replicas
            await second.replication.command("toy", Raise(v("1.3")))
            assert await second.replication.in_force("toy")
            assert [each.offered() for each in here.replicas] == [AT_3] * 3
            await here.until(lambda: all(each.refuses(2) for each in here.replicas))
            assert first.holder.current.fleet.member_sets["toy"].raised.floor == v("1.3")
            assert form(here) == 2
            late = await here.joins()
            await here.until(lambda: late.offered() == AT_3)

            await third.replication.command("toy", Raise(None))
            await here.all_offer(5)
            assert form(here) == 1
            assert RAISED not in here.cluster.texts(P)

    run(main())


def test_one_that_is_away_holds_what_the_others_would_refuse() -> None:
    async def main() -> None:
        async with site(3) as here:
            away = here.replicas[2]
            away.store.link.up = False
            await here.until(lambda: not away.attached())
            await here.replicas[0].replication.command("toy", Raise(v("1.3")))
            await away_serves_until_it_is_back(here, away)

    run(main())


def test_a_roll_back_suspends_it_and_it_holds_again_afterwards() -> None:
    async def main() -> None:
        async with site(3) as here:
            await here.replicas[0].replication.command("toy", Raise(v("1.4")))
            for each in here.replicas:
                each.hears(2)
            await here.all_offer(2)
            for each in here.replicas:
                each.hears(5)
            await all_offer(here, VersionSet.between(v("1.4"), v("1.5")))

    run(main())


def test_the_highest_floor_of_the_files_holds() -> None:
    async def main() -> None:
        async with site() as here:
            for least in (None, "1.2", "1.3"):
                await here.joins(service("api-1", floor=None if least is None else v(least)))
            await all_offer(here, AT_3)
            assert form(here) == 2
            here.leaves(gone := here.replicas[2])
            await gone.replication.close()
            await all_offer(here, VersionSet.between(v("1.2"), v("1.5")))

    run(main())


def test_it_is_not_raised_while_a_live_replica_could_not_read_it() -> None:
    async def main() -> None:
        async with site(2) as here:
            here.cluster.put(P + "live/older", json.dumps(OLDER))
            with pytest.raises(CommandRefused, match="a live replica knows no floors"):
                await here.replicas[0].replication.command("toy", Raise(v("1.3")))
            assert RAISED not in here.cluster.texts(P)
            here.cluster.delete(P + "live/older")
            await here.replicas[0].replication.command("toy", Raise(v("1.3")))
            await all_offer(here, AT_3)

    run(main())


def test_a_floor_in_the_file_waits_for_an_older_release() -> None:
    """Which would read no vote that has it, and take no step any more."""

    async def main() -> None:
        async with site() as here:
            here.cluster.put(P + "live/older", json.dumps({**OLDER, "ack": 0}))
            one = await here.joins(service("api-1", floor=v("1.3")))
            own = f"live/{one.replication.id}"
            await here.until(lambda: own in here.cluster.texts(P))
            assert "least" not in json.loads(here.cluster.texts(P)[own])["vote"]
            await here.until(lambda: one.offered() == AT_3, ENOUGH)  # it has sent no beat, and is removed
            assert json.loads(here.cluster.texts(P)[own])["vote"]["least"] == "1.3"

    run(main())


def test_a_wiped_store_gets_the_floor_back() -> None:
    async def main() -> None:
        async with site(2) as here:
            await here.replicas[0].replication.command("toy", Raise(v("1.3")))
            await all_offer(here, AT_3)
            here.cluster.wipe()
            await here.until(lambda: RAISED in here.cluster.texts(P))
            await all_offer(here, AT_3)
            assert form(here) == 2

    run(main())


@pytest.mark.parametrize(
    "text",
    [
        "1.3",
        "{",
        '{"version": "1.3"}',
        '{"version": "x", "by": "command"}',
        '{"version": "1.3", "by": "clock"}',
    ],
)
def test_what_is_no_raised_floor_that_this_release_knows_moves_nothing(text: str) -> None:
    async def main() -> None:
        async with site(2) as here:
            here.cluster.put(P + RAISED, text)
            for each in here.replicas:
                each.hears(9)
            await here.passes(5)
            assert all(each.offered() == upto(5).versions for each in here.replicas)
            await here.replicas[0].replication.command("toy", Raise(None))
            await here.all_offer(9)

    run(main())
    assert raised_of(text, XY) is None
