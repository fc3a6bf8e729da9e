"""The old side of a hand-over: it freezes, hands everything over and stops, when a new gateway asks for it.

    new gateway  ->  HandoverServer  ->  Predecessor: freeze, stop, handed_over; or back: resume, unfreeze

    freeze    commands and reloads are refused, records do not move; the state is written
    stop      neither clients nor operators are accepted; the state file is not written any more

The server listens beside the state file, for processes of the same user or root, one take-over at a time. If
anything goes wrong before the new gateway serves, this one goes on as if nothing had been. `assembly` owns
the parts.
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
from gateway.handover.connection import BACKLOG, HandoverConnection, short
from gateway.handover.messages import HandoverError, HandoverOffer, PlainMessage, TakeOver
from gateway.runtime.process import end_tasks
from gateway.runtime.service_manager import ServiceManager

UNDER_WAY: Final = "another gateway is taking over: try again in a moment"
"""The reason for refusing commands and reloads during a take-over."""
RELOAD_TIME: Final = 10.0
"""Seconds for which a take-over waits for a reload that is under way."""
REQUEST_TIME: Final = 5.0
"""Seconds in which a process that connects must send its request to take over."""
START_TIME: Final = 120.0
"""Seconds for the start of the new gateway: it waits for the first probe of every backend."""
STOP_TIME: Final = 20.0
"""Seconds for this gateway to stop: less than the new one waits. Usually it takes milliseconds."""
SERVE_TIME: Final = 10.0
"""Seconds in which the new gateway must accept clients after this one has stopped. Milliseconds are usual."""

log = logging.getLogger("skewgate.handover")


class Server(Protocol):
    """A part that accepts connections and can leave that to another process: `DataPlane` for clients."""

    async def stop_accepting(self) -> None:
        """Stop accepting connections. Accepted ones are served on."""

    async def listen(self) -> None:
        """Accept connections again, after `stop_accepting`."""


class Site(Server, Protocol):
    """A listener for operators: `admin.site.AdminSite`."""

    @property
    def sockets(self) -> list[Inherited]:
        """The sockets of this listener for operators, which a new gateway gets."""


@final
@dataclass(slots=True, kw_only=True, eq=False)
class Predecessor:
    """This gateway, as one that can be taken over. `end`: called when another process serves."""

    agreement: Agreement
    snapshot_holder: SnapshotHolder
    reloader: Reloader
    state_file: StateFile
    keeper: StateKeeper
    sockets: ListeningSockets
    data_plane: Server
    sites: Mapping[str, Site]
    service_manager: ServiceManager
    end: Callable[[], None]
    frozen: str = field(init=False, default="")
    """The reason why commands and reloads are refused, a sentence; empty: they are not."""
    is_handed_over: bool = field(init=False, default=False)
    _stopped: list[Server] = field(init=False, default_factory=list)

    async def freeze(self) -> tuple[HandoverOffer, Sequence[int]]:
        """Freeze everything that two gateways would have to agree on. Returns the offer to the new gateway
        and its descriptors. Raises `HandoverError` if a reload takes too long."""
        self.frozen = UNDER_WAY
        try:
            async with asyncio.timeout(RELOAD_TIME):
                await self.reloader.hold(UNDER_WAY)
        except TimeoutError:
            self.frozen = ""
            raise HandoverError("it is busy with a reload") from None
        self.agreement.hold()
        if not await self.keeper.write():
            log.warning("the state file cannot be written: the new gateway gets the state in a message only")
        state = format_state(self.snapshot_holder.current, wall_offset(), self.agreement.to_save())
        described, numbers = self._descriptors()
        manager = self.service_manager.variables
        return HandoverOffer(os.getpid(), __version__, state, described, manager), numbers

    def unfreeze(self) -> None:
        """Undo `freeze`: this gateway goes on, because the new one has not come up."""
        self.agreement.release()
        self.reloader.go_on()
        self.frozen = ""

    async def stop(self) -> None:
        """Stop accepting connections and writing state. New connections wait in the listening sockets. Raises
        `HandoverError` if that takes too long: `resume` then."""
        began = monotonic()
        try:
            async with asyncio.timeout(STOP_TIME):
                await self.keeper.pause()
                for each in (self.data_plane, *self.sites.values()):
                    self._stopped.append(each)
                    await each.stop_accepting()
        except TimeoutError:
            raise HandoverError(f"a disk or a worker keeps it from stopping within {STOP_TIME:g} s") from None
        log.info("no connections are accepted here any more, after %.0f ms", (monotonic() - began) * 1000)

    async def resume(self) -> None:
        """Accept connections and write state again, because the new gateway has failed to serve."""
        stopped, self._stopped = self._stopped, []
        for each in stopped:
            await each.listen()
        self.keeper.resume()

    def handed_over(self, pid: int) -> None:
        """Finish the requests under way and end, because process `pid` serves."""
        self.is_handed_over = True
        self.reloader.refuse(f"process {pid} has taken over: reload that one")
        self.state_file.close()  # if the new one is killed, the next gateway can lock it at once
        self.sockets.release()
        self.service_manager.hand_over(pid)
        self.end()

    def _descriptors(self) -> tuple[tuple[messages.Described, ...], list[int]]:
        described, numbers = [], []
        sites = {role: site.sockets for role, site in self.sites.items()}
        for role, sockets in {"clients": self.sockets.all(), **sites}.items():
            for one in sockets:
                described.append(messages.Described(role, one.written, one.managed))
                numbers.append(one.sock.fileno())
        if self.state_file.lock is not None:
            described.append(messages.Described(messages.LOCK))
            numbers.append(self.state_file.lock)
        return tuple(described), numbers


@final
class HandoverServer:
    """The server of the hand-over socket at `path`, to which a new gateway connects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owner: Predecessor | None = None
        self._sock: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = asyncio.Lock()
        """Lock that is held while a take-over is under way, until it has ended one way or the other."""
        self._under_way: asyncio.Task[None] | None = None
        """Task of a take-over that can be given up, as this gateway accepts clients; None: there is none."""

    def start(self, owner: Predecessor, *, replace: bool) -> None:
        """Listen for new gateways, so that `owner` can be taken over. `replace`: in place of the gateway that
        was taken over. The socket of a killed process is always replaced. Raises `OSError`."""
        if not replace:
            with short(self.path) as name:
                remove_stale(Path(name))
        new = self.path.with_name(self.path.name + ".new")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            new.unlink(missing_ok=True)
            with short(new) as name:
                sock.bind(name)
            new.chmod(0o600)  # no process can connect before `listen`
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
        """Stop listening for new gateways, and remove the socket, unless one has put its own there."""
        if self._sock is None:
            return
        # As long as this one listens, no other process replaces the socket between the look and the removal.
        with suppress(OSError):
            status = self.path.lstat()
            if (status.st_dev, status.st_ino) == self._identity:
                self.path.unlink()
        asyncio.get_running_loop().remove_reader(self._sock.fileno())
        self._sock.close()
        self._sock = None

    async def give_up(self) -> None:
        """Cancel a take-over that is under way, because this gateway ends: otherwise clients would wait in
        sockets of a new gateway that never accepts. A take-over in its last step is finished."""
        if self._under_way is not None:
            self._under_way.cancel()
        async with self._busy:
            self._owner = None

    async def close(self) -> None:
        """Close all connections, last of all: the new gateway learns by this that the old one is gone."""
        self.stop_listening()
        await end_tasks(*self._tasks)

    def _accept(self) -> None:
        assert self._sock is not None
        try:
            connection, _ = self._sock.accept()
        except OSError:
            return  # it is gone already, or there is no descriptor for it at the moment
        connection.setblocking(False)  # noqa: FBT003 - the name of the method says it
        # Owned by this object until it is done.
        task = asyncio.get_running_loop().create_task(
            self._talk(HandoverConnection(connection)), name="hand-over"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _talk(self, connection: HandoverConnection) -> None:
        try:
            peer = connection.peer
            if not peer.is_trusted:
                log.warning("refused a hand-over to process %d of another user, %d", peer.pid, peer.uid)
                return
            async with asyncio.timeout(REQUEST_TIME):
                try:
                    message = messages.read(await connection.receive())
                except HandoverError as error:
                    await _refuse(connection, f"your message was not understood: {error}")
                    return
            if isinstance(message, TakeOver):
                await self._hand_over(connection, message)
            else:
                await _refuse(connection, "begin with `take_over`")
        except (HandoverError, TimeoutError):
            pass  # the process that has connected is gone, or sends nothing
        finally:
            connection.close()

    async def _hand_over(self, connection: HandoverConnection, new: TakeOver) -> None:
        owner = self._owner
        if owner is None or self._busy.locked() or owner.is_handed_over:
            why = "it is ending" if owner is None else "another take-over is under way"
            await _refuse(connection, why)
            return
        async with self._busy:
            self._under_way = asyncio.current_task()
            try:
                served = await self._is_served(connection, new, owner)
            finally:
                self._under_way = None
        if served:
            self._identity = None  # not to be removed: the new gateway puts its own there at any moment
            self.stop_listening()
            log.info("process %d serves now; this one finishes its requests in flight and ends", new.pid)
            owner.handed_over(new.pid)
            # The new gateway learns from the end of this connection that this process is gone.
            await asyncio.get_running_loop().create_future()

    async def _is_served(self, connection: HandoverConnection, new: TakeOver, owner: Predecessor) -> bool:
        """Go through all steps of a hand-over, or undo them. Returns whether the new gateway serves."""
        log.info("process %d (skewgate %s) takes over", new.pid, new.release)
        try:
            offer, descriptors = await owner.freeze()
        except HandoverError as error:
            log.warning("process %d cannot take over: %s", new.pid, error)
            await _refuse(connection, str(error))
            return False
        stopped = served = False
        try:
            await connection.send(offer.write(), descriptors)
            await self._expect(connection, messages.READY, START_TIME)
            stopped, self._under_way = True, None
            await owner.stop()
            await connection.send(messages.STOPPED.write())
            await self._expect(connection, messages.SERVING, SERVE_TIME)
            served = True
        except (HandoverError, TimeoutError) as error:
            why = "it takes too long" if isinstance(error, TimeoutError) else str(error)
            log.warning("process %d has failed to take over, this one goes on: %s", new.pid, why)
        finally:
            if not served:
                connection.close()  # before clients are accepted here, so that the new one gives up
                if stopped:
                    await owner.resume()
                owner.unfreeze()
        return served

    async def _expect(self, connection: HandoverConnection, expected: PlainMessage, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            message = messages.read(await connection.receive())
        if isinstance(message, PlainMessage) and message.kind == "refused":
            raise HandoverError(message.reason)
        if message != expected:
            raise HandoverError(f"it has not sent `{expected.kind}`")


async def _refuse(connection: HandoverConnection, reason: str) -> None:
    await connection.send(PlainMessage("refused", reason).write())
