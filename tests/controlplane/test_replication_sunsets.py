"""An enforced sunset among replicas: their clocks differ, one is away, one is older, an operator lowers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date

from gateway.controlplane.replication.reading import RAISED
from gateway.core.agreement.raised import Raised
from gateway.core.days import DAY
from gateway.core.fleet.fleet import Raise
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.service import Service
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from tests.controlplane.test_replication import ENOUGH, P, Replica, Site, site
from tests.controlplane.test_replication_floors import (
    AT_3,
    OLDER,
    all_offer,
    away_serves_until_it_is_back,
    form,
)
from tests.core.builders import service, upto, v
from tests.kit.clocks import run

SUNSET = Line(v("1.3"), date(2001, 9, 10))
"""The clocks of all replicas begin in the night before."""
WHOLE = upto(5).versions


def with_sunset(sunset: Line = SUNSET, *, enforce: bool = True, floor: Version | None = None) -> Service:
    return service("api-1", lifecycle=Lifecycle(None, sunset, enforce=enforce), floor=floor)


def raised(replica: Replica) -> Raised:
    return replica.holder.current.fleet.member_sets["toy"].raised


async def three(here: Site, *services: Service) -> list[Replica]:
    for one in services or [with_sunset()] * 3:
        await here.joins(one)
    await all_offer(here, WHOLE)
    return here.replicas


async def stays(here: Site, offered: VersionSet) -> None:
    await here.passes(5)
    assert all(each.offered() == offered for each in here.replicas)


def day_comes(replicas: Iterable[Replica]) -> None:
    for each in replicas:
        each.ahead = DAY


def test_the_floor_rises_when_the_day_has_come_by_every_clock_and_a_lower_stands() -> None:
    async def main() -> None:
        async with site() as here:
            first, second, third = await three(here)
            day_comes((first, second))
            await stays(here, WHOLE)
            day_comes((third,))
            await all_offer(here, AT_3)
            assert {raised(each) for each in here.replicas} == {Raised(v("1.3"), SUNSET, SUNSET)}
            assert form(here) == 2
            await here.until(lambda: all(each.refuses(2) for each in here.replicas))

            third.ahead = 0.0  # its clock is set back: nothing is lowered
            await stays(here, AT_3)
            third.ahead = DAY
            await second.replication.command("toy", Raise(None))
            await all_offer(here, WHOLE)
            assert form(here) == 1
            late = await here.joins(with_sunset())
            day_comes((late,))
            await stays(here, WHOLE)
            assert {raised(each) for each in here.replicas} == {Raised(enforced=SUNSET)}
            await first.replication.command("toy", Raise(None))
            await stays(here, WHOLE)
            assert RAISED in here.cluster.texts(P)

    run(main())


def test_another_day_in_the_files_raises_it_again() -> None:
    async def main() -> None:
        async with site() as here:
            replicas = await three(here)
            day_comes(replicas)
            await all_offer(here, AT_3)
            await replicas[0].replication.command("toy", Raise(None))
            await all_offer(here, WHOLE)
            another = Line(v("1.4"), SUNSET.day)
            for each in replicas[:2]:
                each.holder.put_in_force(each.holder.configured([with_sunset(another)]))
            await stays(here, WHOLE)
            replicas[2].holder.put_in_force(replicas[2].holder.configured([with_sunset(another)]))
            await all_offer(here, VersionSet.between(v("1.4"), v("1.5")))

    run(main())


def test_the_clock_lowers_nothing_and_a_higher_floor_of_a_file_is_enough() -> None:
    async def main() -> None:
        async with site() as here:
            replicas = await three(here)
            await replicas[0].replication.command("toy", Raise(v("1.4")))
            higher = VersionSet.between(v("1.4"), v("1.5"))
            await all_offer(here, higher)
            day_comes(replicas)
            await stays(here, higher)
            assert raised(replicas[1]) == Raised(v("1.4"), None, SUNSET)
            await replicas[0].replication.command("toy", Raise(None))
            await all_offer(here, WHOLE)
        async with site() as here:
            for least in (None, None, v("1.4")):
                day_comes((await here.joins(with_sunset(floor=least)),))
            await all_offer(here, higher)
            assert RAISED not in here.cluster.texts(P)

    run(main())


def test_one_whose_file_does_not_enforce_it_holds_it_for_all() -> None:
    async def main() -> None:
        async with site() as here:
            replicas = await three(here, with_sunset(), with_sunset(), with_sunset(enforce=False))
            day_comes(replicas)
            await stays(here, WHOLE)
            here.leaves(gone := replicas[2])
            await gone.replication.close()
            await all_offer(here, AT_3)

    run(main())


def test_one_that_is_away_does_not_hold_it_and_serves_what_the_others_do_not_refuse() -> None:
    async def main() -> None:
        async with site() as here:
            *_, away = await three(here)
            away.store.link.up = False
            await here.until(lambda: not away.attached())
            day_comes(here.replicas)
            await away_serves_until_it_is_back(here, away)

    run(main())


def test_one_of_an_older_release_holds_it_until_it_has_gone() -> None:
    async def main() -> None:
        async with site() as here:
            one = await here.joins(with_sunset())
            await all_offer(here, WHOLE)
            all_stay = {"rule": "guaranteed", "floor": [["1.1", "1.5"]], "gives": [["1.1", "1.5"]]}
            older = {**OLDER, "ack": 2, "vote": {**all_stay, "want": [], "cap": None}}
            here.cluster.put(P + "live/older", json.dumps(older))
            day_comes((one,))
            own = f"live/{one.replication.id}"
            await here.passes(1)
            assert "passed" not in json.loads(here.cluster.texts(P)[own])["vote"]
            assert one.offered() == WHOLE
            await here.until(lambda: one.offered() == AT_3, ENOUGH)  # it has sent no beat, and is removed

    run(main())


def test_a_wiped_store_gets_back_that_it_was_lowered() -> None:
    async def main() -> None:
        async with site() as here:
            replicas = await three(here)
            day_comes(replicas)
            await all_offer(here, AT_3)
            await replicas[0].replication.command("toy", Raise(None))
            await all_offer(here, WHOLE)
            here.cluster.wipe()
            await here.until(lambda: RAISED in here.cluster.texts(P))
            await stays(here, WHOLE)

    run(main())
