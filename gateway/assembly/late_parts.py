"""The cell through which the agreement reaches parts that are made after it.

    agreement  ->  LateParts  ->  data plane, engine, state file
               <-  acknowledged, to_save

Data plane, engine and state keeper are made with the agreement, which they tell what they hold; the agreement
asks them. So it is made first, with this cell; they come into it as they are made; and it starts when all of
them are in (`running`). Starts and closes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from gateway.controlplane.state.keeper import StateKeeper
from gateway.telemetry.neighbours import EngineReport, with_engine
from gateway.workers.data_plane import DataPlane

if TYPE_CHECKING:
    from gateway.engines.haproxy.driver import HaproxyDriver


@final
class LateParts:
    """Parts that serve by what is agreed on, and the keeper of the state file. Each attribute is None
    until that part is made, or for ever if the gateway has none."""

    def __init__(self) -> None:
        self.plane: DataPlane | None = None
        self.engine: HaproxyDriver | None = None
        self.keeper: StateKeeper | None = None

    def held(self, service: str) -> int | None:
        """Lowest seq of its record that any of them holds, as in `Agreement`; None: nobody serves it."""
        each = [one.held(service) for one in (self.plane, self.engine) if one is not None]
        return min((held for held in each if held is not None), default=None)

    def in_flight(self) -> Mapping[str, int]:
        """Requests in flight by member key, those of the engine included: a drained backend is idle without
        them."""
        return with_engine({} if self.plane is None else self.plane.in_flight_by_member, self.engine_report())

    def engine_report(self) -> EngineReport | None:
        """How the engine stands; None: there is none."""
        return None if self.engine is None else self.engine.report()

    def deadlines(self, deadlines: Mapping[str, float]) -> None:
        """Tell every worker until when this replica is attached, by service."""
        assert self.plane is not None, "the agreement starts when there is a data plane"
        self.plane.deadlines(deadlines)

    async def save(self) -> bool:
        """Write what workers hold, or are about to, to the state file. False: it is not there."""
        return self.keeper is not None and await self.keeper.write()

    def kill(self) -> None:
        """This process ends now, perhaps while it starts: end all other processes of the data plane."""
        if self.plane is not None:
            self.plane.kill()
