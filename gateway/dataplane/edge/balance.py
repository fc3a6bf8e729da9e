"""Spreads client connections evenly over workers: one that has too many gives its newest to another one.

    kernel -> a worker, by chance -> `AcceptedConnection` -> kept, or given to the worker that has fewest

The kernel chooses a listening socket by a hash: of 64 connections 4 workers get 9 to 24 each (measured). So
before a byte of a new connection is read, the worker looks at a table in memory that all of them share. No
byte is lost: the socket itself goes to the other worker. Knows no request; which workers there are is the
main process's matter (`ConnectionCounts`).
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias, cast, final

NOT_SERVING: Final = 2**32
"""What stands in the table for a worker that takes no connections."""
SLACK: Final = 2
"""Connections that a worker may have more than another one: to give one costs about 60 µs, and of an equal
number each would be given to and fro."""
SLACK_SHARE: Final = 16
"""One more for so many connections of the other one."""
_ENTRY: Final = 8
"""Bytes of an entry of the table."""
_MAX_BATCH: Final = 64
"""Connections that are taken from the others in one turn of the event loop."""


class Descriptors(NamedTuple):
    """What a worker gets to take part, by file descriptor."""

    table: int
    inbox: int
    senders: tuple[tuple[int, int], ...]
    """(slot, descriptor) of each other worker."""

    def all(self) -> tuple[int, ...]:
        """Those that the worker's process inherits."""
        return (self.table, self.inbox, *(number for _, number in self.senders))


@final
class ConnectionCounts:
    """In the main process: the table, and a pair of sockets for each slot. Both outlive every worker, so that
    a connection that was given to one which ended is not lost: another one gets it (`move`), or else the one
    that replaces it."""

    def __init__(self, workers: int) -> None:
        self._descriptor = os.memfd_create("skewgate-connections", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, workers * _ENTRY)
        self._map = mmap.mmap(self._descriptor, workers * _ENTRY)
        self._counts = memoryview(self._map).cast("Q")
        kind = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK
        self._pairs = [socket.socketpair(socket.AF_UNIX, kind) for _ in range(workers)]
        for slot in range(workers):
            self.ended(slot)

    def descriptors(self, slot: int) -> Descriptors:
        """Of the worker in `slot`; they stay the main process's."""
        senders = tuple(
            (other, sender.fileno()) for other, (_, sender) in enumerate(self._pairs) if other != slot
        )
        return Descriptors(self._descriptor, self._pairs[slot][0].fileno(), senders)

    def ended(self, slot: int) -> None:
        """Nobody gives anything to this worker any more."""
        self._counts[slot] = NOT_SERVING

    def count(self, slot: int) -> int:
        """Connections of its worker, as the others see them."""
        return self._counts[slot]

    def give(self, slot: int, position: int, sock: socket.socket) -> bool:
        """Whether the worker in `slot` has got this connection, of the listener at this position. `sock`
        stays the caller's."""
        try:
            socket.send_fds(self._pairs[slot][1], [bytes((position,))], [sock.fileno()])
        except OSError:  # it takes none at the moment
            return False
        if self._counts[slot] < NOT_SERVING:
            self._counts[slot] += 1  # until it says so itself
        return True

    def move(self, slot: int, other: int) -> None:
        """The worker in `other` gets what the one in `slot`, which has ended, was given and has not taken.
        The next one of that slot may never serve: when this gateway ends, or is taken over."""
        inbox, back = self._pairs[slot]
        _, sender = self._pairs[other]
        while True:
            try:
                data, found, _, _ = socket.recv_fds(inbox, 1, 1)
            except OSError:
                return
            try:
                socket.send_fds(sender, [data], found)
            except OSError:  # it takes none at the moment
                socket.send_fds(back, [data], found)
                return
            finally:
                for number in found:
                    os.close(number)

    def close(self) -> None:
        """What nobody has taken is closed."""
        if self._map.closed:
            return
        self._counts.release()
        self._map.close()
        os.close(self._descriptor)
        for pair in self._pairs:
            for each in pair:
                each.close()


MakeProtocol: TypeAlias = Callable[[], asyncio.Protocol]
"""Makes the protocol of a connection that is kept, as its listener wants it."""


@final
class Balance:
    """In a worker. `descriptors` are its own from now on. `connections`: how many it has."""

    def __init__(self, slot: int, descriptors: Descriptors, connections: Callable[[], int]) -> None:
        self._slot = slot
        self._map = mmap.mmap(descriptors.table, 0)
        os.close(descriptors.table)
        self._counts = memoryview(self._map).cast("Q")
        self._senders = {other: _opened(number) for other, number in descriptors.senders}
        self._inbox = _opened(descriptors.inbox)
        self._connections = connections
        self._places: dict[int, MakeProtocol] = {}
        self._serving = False
        self._taken: set[asyncio.Task[None]] = set()

    def start(self, places: Mapping[int, MakeProtocol]) -> None:
        """Take part from now on. `places`: its listeners, by their position."""
        self._places = dict(places)
        self._serving = True
        self.tell()
        asyncio.get_running_loop().add_reader(self._inbox.fileno(), self.take)

    def stop(self) -> None:
        """Give nothing any more, and ask for nothing. What is still given is taken until `close`."""
        self._serving = False
        self._counts[self._slot] = NOT_SERVING

    def close(self) -> None:
        """Take what was given, and no more. What is given later waits for the next worker of the slot."""
        if self._inbox.fileno() < 0:
            return
        self.stop()
        self.take()
        asyncio.get_running_loop().remove_reader(self._inbox.fileno())
        for sock in (self._inbox, *self._senders.values()):
            sock.close()
        self._counts.release()
        self._map.close()

    def tell(self) -> None:
        """Let the others see how many connections this worker has now."""
        if self._serving:
            self._counts[self._slot] = self._connections()

    def give(self, transport: asyncio.BaseTransport, position: int) -> bool:
        """Whether a connection that has just come was given to another worker: then it is no longer ours."""
        if not self._serving:
            return False
        counts, own = self._counts, self._connections() + 1
        other = min(self._senders, key=counts.__getitem__)
        fewest = counts[other]
        if own <= fewest + SLACK + fewest // SLACK_SHARE:
            counts[self._slot] = own
            return False
        sock = transport.get_extra_info("socket")
        try:
            socket.send_fds(self._senders[other], [bytes((position,))], [sock.fileno()])
        except OSError:  # it takes none at the moment
            return False
        counts[other] = fewest + 1  # until it says so itself
        cast(asyncio.Transport, transport).abort()  # closes our descriptor, not the connection
        return True

    def take(self) -> None:
        """Serve what others have given."""
        loop = asyncio.get_running_loop()
        for _ in range(_MAX_BATCH):
            try:
                data, found, _, _ = socket.recv_fds(self._inbox, 1, 1)
            except OSError:
                return
            for number in found:
                sock = socket.socket(fileno=number)
                make = self._places.get(data[0]) if data else None
                if make is None:
                    sock.close()
                    continue
                sock.setblocking(False)  # noqa: FBT003 - the name of the method says it
                task = loop.create_task(self._serve(make, sock), name="given connection")
                self._taken.add(task)
                task.add_done_callback(self._taken.discard)

    async def _serve(self, make: MakeProtocol, sock: socket.socket) -> None:
        with suppress(OSError):  # it has ended meanwhile
            await asyncio.get_running_loop().connect_accepted_socket(make, sock)
            self.tell()


def _opened(number: int) -> socket.socket:
    """A socket of the main process, for this process alone."""
    sock = socket.socket(fileno=number)
    sock.setblocking(False)  # noqa: FBT003 - the name of the method says it
    return sock


@final
class AcceptedConnection:
    """A new connection of which it is not known yet who serves it: an `asyncio.Protocol` by its methods."""

    __slots__ = ("_balance", "_make", "_position")

    def __init__(self, balance: Balance, make: MakeProtocol, position: int) -> None:
        self._balance = balance
        self._make = make
        self._position = position

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._balance.give(transport, self._position):
            return
        protocol = self._make()
        cast(Any, transport).set_protocol(protocol)
        protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It was given away."""

    def data_received(self, data: bytes) -> None:
        """Nothing is read of a connection before it has its own protocol."""

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Nothing is written here."""

    def resume_writing(self) -> None:
        """Nothing is written here."""
