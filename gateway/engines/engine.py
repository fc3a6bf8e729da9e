"""What whoever assembles a gateway knows about an engine beside it. An interface: nothing runs here.

    SnapshotHolder  ->  Engine  ->  acknowledged()  ->  Agreement  ->  held(service)

An engine follows the snapshots of one gateway. Its word counts in the ladder as that of a worker: no document
moves on before the engine holds the present one, with every process of it that may still serve.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeAlias

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.telemetry.engine import EngineReport


class Engine(Protocol):
    """It follows from `start` to `close`, on the running loop."""

    async def start(self) -> None:
        """Follow from now on. To be called when the gateway accepts clients, because the engine sends it what
        is in no row. Returns at once; an engine that does not answer is told by `report` and in the log."""

    async def close(self) -> None:
        """Follow no more. What the engine has in force stays there."""

    def held(self, service: str) -> int | None:
        """The lowest seq of its document by which a process of the engine may serve, 0 for none; None: no
        process of it serves this service."""

    def report(self) -> EngineReport:
        """How it stands."""


MakeEngine: TypeAlias = Callable[[SnapshotHolder, Callable[[], None], Callable[[], Collection[str]]], Engine]
"""Makes one from the holder that it follows, from what it calls when `held` may have changed, and from what
says which members the gateway has ejected, by their keys."""
