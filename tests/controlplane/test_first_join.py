"""A replica that comes up is joining until it has joined the others once, for one TTL at most (R3-V3)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio

from tests.controlplane.test_replication import SETTINGS, Replica, Site, site
from tests.core.builders import service
from tests.kit.clocks import run


def joining(replica: Replica) -> bool:
    return replica.replication.report().joining


async def _returning(here: Site) -> Replica:
    """One of two that was killed, and is back. It has its state file, and the store is slow to reach."""
    killed = here.replicas[1]
    saved = killed.file
    killed.kill()
    here.leaves(killed)
    back = Replica(here.cluster, service("api-1"), saved=saved)
    here.replicas.append(back)
    back.store.link.up = False
    back.replication.start()
    return back


def test_R3_V3_one_that_is_back_is_joining_until_it_has_joined() -> None:
    async def main() -> None:
        async with site(2) as here:
            back = await _returning(here)
            await here.passes(0.5 * SETTINGS.ttl)
            assert back.offered(), "it serves by its file meanwhile"
            assert joining(back)

            back.store.link.up = True

            await here.until(lambda: back.replication.report().attached, seconds=0.45 * SETTINGS.ttl)
            assert not joining(back)

    run(main())


def test_R3_V3_after_one_ttl_it_is_detached_and_joining_no_more() -> None:
    async def main() -> None:
        async with site(2) as here:
            back = await _returning(here)
            over = asyncio.get_running_loop().create_task(back.replication.joined())
            await here.passes(0.95 * SETTINGS.ttl)
            assert joining(back)
            assert not over.done()

            await here.until(lambda: not joining(back), seconds=0.1 * SETTINGS.ttl)

            await over
            assert not back.replication.report().attached

    run(main())


def test_R3_V3_whoever_has_joined_once_is_never_joining_again() -> None:
    async def main() -> None:
        async with site(2) as here:
            cut = here.replicas[0]
            await cut.replication.joined()
            cut.store.link.up = False
            await here.until(lambda: not cut.replication.report().attached)
            assert not joining(cut)

    run(main())
