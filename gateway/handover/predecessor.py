"""The old side of a hand-over: what is held still, given away and stopped, and how all of it goes on if the
new gateway does not come up.

    freeze    commands, reloads and documents stand still; the state is written
    stop      clients and operators are accepted by nobody; the state file is not written any more
    resume, unfreeze    the way back

The parts are `assembly`'s. The order in which this is called is up to `server`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Protocol, final

from gateway import __version__
from gateway.controlplane.agreement import Agreement
from gateway.controlplane.reload import Reloader
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.state.file import StateFile
from gateway.controlplane.state.keeper import StateKeeper, wall_offset
from gateway.controlplane.state.text import format_state
from gateway.dataplane.edge.listening_sockets import Inherited, ListeningSockets
from gateway.handover import messages
from gateway.handover.messages import Described, HandoverError, Offer
from gateway.runtime.service_manager import ServiceManager

UNDER_WAY: Final = "another gateway is taking over: try again in a moment"
"""Why commands and reloads are refused meanwhile."""
RELOAD_TIME: Final = 10.0
"""Seconds for which a take-over waits for a reload that is under way."""

log = logging.getLogger("skewgate.handover")


class Accepts(Protocol):
    """What accepts connections and can leave that to another process."""

    async def stop_accepting(self) -> None:
        """Whoever was accepted is served."""


class Site(Accepts, Protocol):
    """A listener for operators: `admin.site.AdminSite`."""

    @property
    def sockets(self) -> list[Inherited]:
        """Those that listen."""

    async def accept(self) -> None:
        """Accept again."""


class Serves(Accepts, Protocol):
    """`workers.data_plane.DataPlane`."""

    async def listen(self) -> None:
        """Accept again."""


@final
@dataclass(slots=True, kw_only=True, eq=False)
class Predecessor:
    """The gateway in this process. `sites` by role; `end` is called when another process serves."""

    agreement: Agreement
    snapshot_holder: SnapshotHolder
    reloader: Reloader
    state_file: StateFile
    keeper: StateKeeper
    sockets: ListeningSockets
    data_plane: Serves
    sites: Mapping[str, Site]
    service_manager: ServiceManager
    end: Callable[[], None]
    frozen: str = field(init=False, default="")
    """Why commands and reloads are refused, a sentence; empty: they are not."""
    is_handed_over: bool = field(init=False, default=False)
    _stopped: list[Accepts] = field(init=False, default_factory=list)

    async def freeze(self) -> tuple[Offer, Sequence[int]]:
        """Change nothing from now on that two gateways would have to agree on, and say what the new one gets:
        with the descriptors that the offer describes, in its order. Raises `HandoverError`: not now."""
        self.frozen = UNDER_WAY
        try:
            async with asyncio.timeout(RELOAD_TIME):
                await self.reloader.hold(UNDER_WAY)
        except TimeoutError:
            self.frozen = ""
            raise HandoverError("it is busy with a reload") from None
        self.agreement.hold()
        if not await self.keeper.write():
            log.warning("the state file cannot be written: the new gateway gets the state by word only")
        state = format_state(self.snapshot_holder.current, wall_offset(), self.agreement.to_save())
        described, numbers = self._descriptors()
        manager = self.service_manager.variables
        return Offer(os.getpid(), __version__, state, described, manager), numbers

    def unfreeze(self) -> None:
        """The new one has not come up: go on."""
        self.agreement.release()
        self.reloader.go_on()
        self.frozen = ""

    async def stop(self) -> None:
        """Accept nobody, and write no state. What waits in the listening sockets waits there."""
        began = monotonic()
        await self.keeper.pause()
        for each in (self.data_plane, *self.sites.values()):
            self._stopped.append(each)
            await each.stop_accepting()
        log.info("nobody is accepted here any more, after %.0f ms", (monotonic() - began) * 1000)

    async def resume(self) -> None:
        """The new one has ended before it served: accept clients again, and go on."""
        stopped, self._stopped = self._stopped, []
        if self.data_plane in stopped:
            await self.data_plane.listen()
        for site in self.sites.values():
            if site in stopped:
                await site.accept()
        self.keeper.resume()

    def handed_over(self, pid: int) -> None:
        """Process `pid` serves. Finish the requests under way, and end."""
        self.is_handed_over = True
        self.reloader.refuse(f"process {pid} has taken over: reload that one")
        self.state_file.close()  # should the new one be killed, whoever comes next can lock it at once
        self.sockets.release()
        self.service_manager.hand_over(pid)
        self.end()

    def _descriptors(self) -> tuple[tuple[Described, ...], list[int]]:
        described, numbers = [], []
        roles = [(messages.CLIENTS, self.sockets.all())]
        roles += [(role, site.sockets) for role, site in self.sites.items()]
        for role, sockets in roles:
            for one in sockets:
                described.append(Described(role, one.written, one.managed))
                numbers.append(one.sock.fileno())
        if self.state_file.lock is not None:
            described.append(Described(messages.LOCK))
            numbers.append(self.state_file.lock)
        return tuple(described), numbers
