"""The engine beside this gateway, if a command asks for one (`skewgate engine haproxy`).

It is made with the data plane, because its word counts in the agreement from the first step on; it follows
only while clients are accepted here, because it sends the gateway what is in none of its rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.assembly.agreements import Agreed
from gateway.assembly.followers import Followers
from gateway.assembly.plan import Plan
from gateway.workers.data_plane import DataPlane

if TYPE_CHECKING:
    from gateway.engines.haproxy.driver import HaproxyDriver


def make_engine(plan: Plan, agreed: Agreed, plane: DataPlane, followers: Followers) -> HaproxyDriver | None:
    """The engine, not started. It knows the ejections of `plane`, and the agreement knows it."""

    def ejected() -> Collection[str]:
        return plane.report().ejected.keys()

    if plan.make_engine is not None:
        followers.engine = plan.make_engine(
            plan.known.snapshot_holder, agreed.agreement.acknowledged, ejected
        )
    return followers.engine


@asynccontextmanager
async def following(engine: HaproxyDriver | None) -> AsyncIterator[None]:
    """Starts the engine, and lets go of it after the drain."""
    try:
        if engine is not None:
            await engine.start()
        yield
    finally:
        if engine is not None:
            await engine.close()
