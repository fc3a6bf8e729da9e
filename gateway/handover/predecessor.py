"""The old side of a hand-over: what is held still, given away and stopped, and who may ask for it.

    new gateway  ->  HandoverServer  ->  Predecessor: freeze, stop, handed_over; or back: resume, unfreeze

    freeze    commands, reloads and records stand still; the state is written
    stop      clients and operators are accepted by nobody; the state file is not written any more

The server listens beside the state file. Only processes of the same user, or root's, are heard. One take-over
at a time. Whatever goes wrong before the new gateway serves, this one goes on as if nothing had been. The
parts are `assembly`'s.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, Protocol, final

from gateway import __version__
from gateway.controlplane.agreement import Agreement
from gateway.controlplane.reload import Reloader
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.state.file import StateFile
from gateway.controlplane.state.keeper import StateKeeper, wall_offset
from gateway.controlplane.state.text import format_state
from gateway.dataplane.edge.listening_sockets import Inherited, ListeningSockets, remove_stale
from gateway.handover import messages
from gateway.handover.line import BACKLOG, Line, short
from gateway.handover.messages import READY, SERVING, STOPPED, Described, HandoverError, Offer, TakeOver, Word
from gateway.runtime.service_manager import ServiceManager

UNDER_WAY: Final = "another gateway is taking over: try again in a moment"
"""Why commands and reloads are refused meanwhile."""
RELOAD_TIME: Final = 10.0
"""Seconds for which a take-over waits for a reload that is under way."""
WORD_TIME: Final = 5.0
"""Seconds in which whoever connects must say what it wants."""
START_TIME: Final = 120.0
"""Seconds in which a new gateway must have started: it waits for the first probe of every backend."""
SERVE_TIME: Final = 10.0
"""Seconds from the moment when nobody accepts to the one when the new gateway does: a few milliseconds are
usual."""

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


@final
class HandoverServer:
    """`start`, then `close`, on one event loop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owner: Predecessor | None = None
        self._sock: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = asyncio.Lock()
        """Held while a take-over is under way, until it has ended one way or the other."""
        self._under_way: asyncio.Task[None] | None = None
        """The take-over that can be given up: this gateway still accepts clients."""

    # --- its life

    def start(self, owner: Predecessor, *, replace: bool) -> None:
        """Listen: from now on `owner` can be taken over. `replace`: in place of the gateway that was taken
        over. A socket that a killed process has left is replaced as well. Raises `OSError`: another gateway
        listens there, or nobody can."""
        if not replace:
            with short(self.path) as name:
                remove_stale(Path(name))
        new = self.path.with_name(self.path.name + ".new")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            new.unlink(missing_ok=True)
            with short(new) as name:
                sock.bind(name)
            new.chmod(0o600)  # nobody can connect before `listen`
            status = new.lstat()
            sock.listen(BACKLOG)
            new.replace(self.path)
        except OSError:
            sock.close()
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise
        self._owner, self._sock, self._identity = owner, sock, (status.st_dev, status.st_ino)
        asyncio.get_running_loop().add_reader(sock.fileno(), self._accept)

    def stop_listening(self) -> None:
        """Nobody can connect any more. The file goes, unless the next gateway has put its own there."""
        if self._sock is None:
            return
        asyncio.get_running_loop().remove_reader(self._sock.fileno())
        self._sock.close()
        self._sock = None
        with suppress(OSError):
            status = self.path.lstat()
            if (status.st_dev, status.st_ino) == self._identity:
                self.path.unlink()

    async def give_up(self) -> None:
        """This gateway is told to end. A take-over under way ends first, so that nobody waits in sockets that
        the new gateway holds and never accepts from. One that has come to its last step is finished."""
        if self._under_way is not None:
            self._under_way.cancel()
        async with self._busy:
            self._owner = None

    async def close(self) -> None:
        """End. After a hand-over the new gateway learns by this that the old one is gone, so it is the last
        thing that is closed."""
        self.stop_listening()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- connections

    def _accept(self) -> None:
        assert self._sock is not None
        try:
            connection, _ = self._sock.accept()
        except OSError:
            return  # it is gone already, or there is no descriptor for it at the moment
        connection.setblocking(False)  # noqa: FBT003 - the name of the method says it
        # Owned by this object until it is done.
        task = asyncio.get_running_loop().create_task(self._talk(Line(connection)), name="hand-over")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _talk(self, line: Line) -> None:
        try:
            peer = line.peer
            if not peer.is_trusted:
                log.warning("process %d of user %d has asked for a hand-over: refused", peer.pid, peer.uid)
                return
            async with asyncio.timeout(WORD_TIME):
                try:
                    message = messages.read(await line.receive())
                except HandoverError as error:
                    await line.send(Word("refused", f"what you said was not understood: {error}").write())
                    return
            if isinstance(message, TakeOver):
                await self._hand_over(line, message)
            else:
                await line.send(Word("refused", "begin with `take_over`").write())
        except (HandoverError, TimeoutError):
            pass  # whoever connected is gone, or says nothing
        finally:
            line.close()

    async def _hand_over(self, line: Line, new: TakeOver) -> None:
        owner = self._owner
        if owner is None or self._busy.locked() or owner.is_handed_over:
            why = "it is ending" if owner is None else "another take-over is under way"
            await line.send(Word("refused", why).write())
            return
        async with self._busy:
            self._under_way = asyncio.current_task()
            try:
                served = await self._is_served(line, new, owner)
            finally:
                self._under_way = None
        if served:
            self.stop_listening()
            log.info("process %d serves now; the requests in flight here are finished first", new.pid)
            owner.handed_over(new.pid)
            # The new gateway learns from the end of this connection that this process is gone.
            await asyncio.get_running_loop().create_future()

    async def _is_served(self, line: Line, new: TakeOver, owner: Predecessor) -> bool:
        """Step for step; whatever fails takes back what was done before."""
        log.info("process %d (skewgate %s) takes over", new.pid, new.release)
        try:
            offer, descriptors = await owner.freeze()
        except HandoverError as error:
            log.warning("process %d cannot take over: %s", new.pid, error)
            await line.send(Word("refused", str(error)).write())
            return False
        stopped = served = False
        try:
            await line.send(offer.write(), descriptors)
            await self._expect(line, READY, START_TIME)
            stopped, self._under_way = True, None
            await owner.stop()
            await line.send(STOPPED.write())
            await self._expect(line, SERVING, SERVE_TIME)
            served = True
        except (HandoverError, TimeoutError) as error:
            why = "it takes too long" if isinstance(error, TimeoutError) else str(error)
            log.warning("process %d has not taken over, this one goes on: %s", new.pid, why)
        finally:
            if not served:
                line.close()  # before anybody is accepted here, so that the new one gives up
                if stopped:
                    await owner.resume()
                owner.unfreeze()
        return served

    async def _expect(self, line: Line, word: Word, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            message = messages.read(await line.receive())
        if isinstance(message, Word) and message.kind == "refused":
            raise HandoverError(message.reason)
        if message != word:
            raise HandoverError(f"it has not said `{word.kind}`")
