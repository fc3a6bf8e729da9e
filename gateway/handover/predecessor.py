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
class Predecessor:
    """The gateway in this process. `sites` by role; `end` is called when another process serves."""

    def __init__(
        self,
        *,
        agreement: Agreement,
        snapshot_holder: SnapshotHolder,
        reloader: Reloader,
        state_file: StateFile,
        keeper: StateKeeper,
        sockets: ListeningSockets,
        data_plane: Serves,
        sites: Mapping[str, Site],
        service_manager: ServiceManager,
        end: Callable[[], None],
    ) -> None:
        self._agreement = agreement
        self._snapshot_holder = snapshot_holder
        self._reloader = reloader
        self._state_file = state_file
        self._keeper = keeper
        self._sockets = sockets
        self._data_plane = data_plane
        self._sites = sites
        self._service_manager = service_manager
        self._end = end
        self._stopped: list[Accepts] = []
        self.frozen = ""
        """Why commands and reloads are refused, a sentence; empty: they are not."""
        self.is_handed_over = False

    async def freeze(self) -> tuple[Offer, Sequence[int]]:
        """See `server.Owner`."""
        self.frozen = UNDER_WAY
        try:
            async with asyncio.timeout(RELOAD_TIME):
                await self._reloader.hold(UNDER_WAY)
        except TimeoutError:
            self.frozen = ""
            raise HandoverError("it is busy with a reload") from None
        self._agreement.hold()
        if not await self._keeper.write():
            log.warning("the state file cannot be written: the new gateway gets the state by word only")
        state = format_state(self._snapshot_holder.current, wall_offset(), self._agreement.to_save())
        described, numbers = self._descriptors()
        manager = self._service_manager.variables
        return Offer(os.getpid(), __version__, state, described, manager), numbers

    def unfreeze(self) -> None:
        """See `server.Owner`."""
        self._agreement.release()
        self._reloader.go_on()
        self.frozen = ""

    async def stop(self) -> None:
        """See `server.Owner`."""
        began = monotonic()
        await self._keeper.pause()
        for each in (self._data_plane, *self._sites.values()):
            self._stopped.append(each)
            await each.stop_accepting()
        log.info("nobody is accepted here any more, after %.0f ms", (monotonic() - began) * 1000)

    async def resume(self) -> None:
        """See `server.Owner`."""
        stopped, self._stopped = self._stopped, []
        if self._data_plane in stopped:
            await self._data_plane.listen()
        for site in self._sites.values():
            if site in stopped:
                await site.accept()
        self._keeper.resume()

    def handed_over(self, pid: int) -> None:
        """See `server.Owner`."""
        self.is_handed_over = True
        self._reloader.refuse(f"process {pid} has taken over: reload that one")
        self._state_file.close()  # should the new one be killed, whoever comes next can lock it at once
        self._sockets.release()
        self._service_manager.hand_over(pid)
        self._end()

    def _descriptors(self) -> tuple[tuple[Described, ...], list[int]]:
        described, numbers = [], []
        roles = [(messages.CLIENTS, self._sockets.all())]
        roles += [(role, site.sockets) for role, site in self._sites.items()]
        for role, sockets in roles:
            for one in sockets:
                described.append(Described(role, one.written, one.managed))
                numbers.append(one.sock.fileno())
        if self._state_file.lock is not None:
            described.append(Described(messages.LOCK))
            numbers.append(self._state_file.lock)
        return tuple(described), numbers
