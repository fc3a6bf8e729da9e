"""A connection at `STATE.handover`: length-prefixed JSON messages, each followed by its descriptors.

    length (4 bytes), JSON; then for each 64 descriptors that the message names: one byte and the descriptors

It knows the process at the other end (`peer`), and no message. The other end may be another release, or no
gateway at all, so its messages are read strictly and up to a bounded size.
"""

from __future__ import annotations

import array
import asyncio
import json
import os
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar, final

from gateway.handover.messages import HandoverError
from gateway.runtime.file_trust import others_write, real_path, trusted_users

SUFFIX: Final = ".handover"
MAX_SIZE: Final = 32 << 20
"""Maximum bytes of a hand-over message. The text of a state file is at most 4 MiB."""
AT_ONCE: Final = 64
"""Maximum number of descriptors that are sent at once. Linux takes 253."""
BACKLOG: Final = 128
_MAX_PATH: Final = 107
"""Maximum bytes of the path of a Unix socket."""
_LENGTH: Final = Struct("!I")
_PIECE: Final = 1 << 18
_PEER: Final = Struct("3i")
_DESCRIPTOR: Final = array.array("i").itemsize


Result = TypeVar("Result")


@final
class PeerProcess(NamedTuple):
    """The process at the other end of a hand-over connection, as the kernel knows it."""

    pid: int
    uid: int

    @property
    def is_trusted(self) -> bool:
        """Whether the process at the other end of the connection runs as this user or as root."""
        return self.uid in trusted_users()

    def may_be_taken_over(self, path: Path) -> bool:
        """Whether this gateway may take over from the process at the other end, which listens at `path`. Root
        may take over from any user, if nobody else could have put the socket there."""
        return self.is_trusted or (
            os.geteuid() == 0 and not others_write(path.parent, trusted_users(self.uid))
        )


@final
class HandoverConnection:
    """A connection for hand-over messages and descriptors. Owns `sock`, connected and non-blocking."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._received = bytearray()
        self._descriptors: list[int] = []
        """Descriptors that were received, and that `descriptors` has not returned yet."""

    @property
    def peer(self) -> PeerProcess:
        data = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        pid, uid, _ = _PEER.unpack(data)
        return PeerProcess(pid, uid)

    async def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send a message and descriptors, which stay the caller's. Raises `HandoverError`."""
        data = json.dumps(message, ensure_ascii=True).encode()
        data = _LENGTH.pack(len(data)) + data
        view = memoryview(data)
        while view:
            sent = await self._when("writer", lambda: self._sock.send(view[:_PIECE]))  # noqa: B023 - at once
            view = view[sent:]
        for start in range(0, len(descriptors), AT_ONCE):
            some = array.array("i", descriptors[start : start + AT_ONCE])
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, some)]
            await self._when("writer", lambda: self._sock.sendmsg([b"\0"], ancillary))  # noqa: B023 - at once

    async def receive(self) -> object:
        """The next message from the other end, as JSON values. Raises `HandoverError`."""
        (length,) = _LENGTH.unpack(await self._bytes(_LENGTH.size))
        if length > MAX_SIZE:
            raise HandoverError(f"it has sent a message of {length} bytes, more than {MAX_SIZE}")
        data = await self._bytes(length)
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise HandoverError("it has sent an invalid message") from None

    async def descriptors(self, count: int) -> list[int]:
        """File descriptors that came with the last message. The caller owns them. Raises `HandoverError`."""
        pieces = -(-count // AT_ONCE)
        if pieces:
            await self._bytes(pieces)
        if len(self._descriptors) != count:
            raise HandoverError(f"it has sent {len(self._descriptors)} descriptors instead of {count}")
        found, self._descriptors = self._descriptors, []
        return found

    async def ended(self) -> None:
        """Wait until the other end of the connection is gone, and ignore what it sends."""
        with suppress(HandoverError):
            while True:
                await self._bytes(1)

    def close(self) -> None:
        """Close the hand-over connection, which the process at the other end notices."""
        self._sock.close()
        for number in self._descriptors:
            os.close(number)
        self._descriptors.clear()

    async def _bytes(self, count: int) -> bytes:
        while len(self._received) < count:
            data, descriptors = await self._when("reader", self._receive_some)
            self._descriptors += descriptors
            if not data:
                raise HandoverError("it is gone")
            self._received += data
        found = bytes(self._received[:count])
        del self._received[:count]
        return found

    def _receive_some(self) -> tuple[bytes, list[int]]:
        room = socket.CMSG_SPACE(AT_ONCE * _DESCRIPTOR)
        data, ancillary, _, _ = self._sock.recvmsg(_PIECE, room, socket.MSG_CMSG_CLOEXEC)
        found = array.array("i")
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found.frombytes(payload[: len(payload) - len(payload) % _DESCRIPTOR])
        return data, list(found)

    async def _when(self, ready: str, action: Callable[[], Result]) -> Result:
        """Do `action` as soon as the socket can be read or written (`ready`). Returns its result."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return action()
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                raise HandoverError(f"it is gone: {(error.strerror or str(error)).lower()}") from None
            waiting: asyncio.Future[None] = loop.create_future()
            add = loop.add_reader if ready == "reader" else loop.add_writer
            remove = loop.remove_reader if ready == "reader" else loop.remove_writer
            number = self._sock.fileno()
            if number < 0:
                raise HandoverError("it is closed")
            add(number, _wake, waiting)
            try:
                await waiting
            finally:
                remove(number)


def path_of(state: str | Path, users: Collection[int] | None = None) -> Path:
    """The path of the hand-over socket of a gateway with this state file. `users`: whose symbolic links are
    followed, by default this user's and root's. Raises `ForeignFileError`."""
    real = real_path(state, trusted_users() if users is None else users)
    return real.with_name(real.name + SUFFIX)


@contextmanager
def short(path: Path) -> Iterator[str]:
    """A name for the Unix socket at `path` that is short enough for the kernel. Raises `OSError`."""
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield os.fspath(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connect(path: Path) -> HandoverConnection | None:
    """Connect to the gateway that listens at `path`; None: there is none. Raises `OSError`."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with short(path) as name:
            sock.connect(name)
    except (FileNotFoundError, ConnectionRefusedError):
        sock.close()
        return None
    except OSError:
        sock.close()
        raise
    return HandoverConnection(sock)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
