"""Random faults between replicas: never offered by one and refused by another; one truth once they end."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from gateway.controlplane.stores.store import StoreError
from gateway.core.fleet.fleet import Pin
from tests.controlplane.test_replication import SETTINGS, Replica, Site, site
from tests.core.builders import v
from tests.kit.clocks import run

EVENTS = 60


async def _happens(here: Site, chance: random.Random) -> None:
    one: Replica = chance.choice(here.replicas)
    match chance.randrange(9):
        case 0:
            one.store.link.up = not one.store.link.up
        case 1:
            one.store.link.loses_answers = not one.store.link.loses_answers
        case 2:
            one.store.link.watches = not one.store.link.watches
        case 3:
            here.cluster.quorum = not here.cluster.quorum
        case 4 | 5:
            one.hears(chance.choice((4, 5, 9)))
        case 6:
            one.kill()
            here.leaves(one)
            saved = one.file if chance.random() < 0.7 else None
            await here.joins(highest=chance.choice((None, 5, 9)), saved=saved)
        case 7:
            with suppress(StoreError):
                await one.replication.command("toy", Pin(chance.choice((None, v("1.3"), v("1.5")))))
        case _:
            gate = one.store.link.answer if chance.random() < 0.5 else one.store.link.pass_on
            (gate.clear if gate.is_set() else gate.set)()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_fails_nobody_refuses_what_another_offers(seed: int) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        async with site(3) as here:
            for _ in range(EVENTS):
                await _happens(here, chance)
                await here.passes(chance.choice((0.01, 0.1, 1.0, 3.0)))
            here.cluster.quorum = True
            for each in here.replicas:
                link = each.store.link
                link.up, link.loses_answers = True, False
                link.pass_on.set()
                link.answer.set()
                each.hears(9)
            await here.passes(SETTINGS.ttl)
            await here.replicas[0].replication.command("toy", Pin(None))
            await here.all_offer(9)
            assert all(each.replication.report().attached for each in here.replicas)

    run(main())
