"""Spreads client connections evenly over workers: one that has too many gives its newest to another one.

    kernel -> a worker, by chance -> `AcceptedConnection` -> kept, or given to the worker with fewest

The kernel chooses a listening socket by a hash: of 64 connections 4 workers get 9 to 24 each (measured). So a
worker compares its count with those of the others, in shared memory, before it reads a byte of a connection.
No byte is lost: the socket itself is passed on.
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
"""Entry of a worker that takes no connections, in the shared table of connection counts."""
SLACK: Final = 2
"""Number of connections that a worker may have more than another. Giving one away costs about 60 µs, and at
equal numbers each would be passed back and forth."""
SLACK_SHARE: Final = 16
"""Number of the other worker's connections for each further one by which this worker may exceed them."""
_ENTRY: Final = 8
_MAX_BATCH: Final = 64
"""Maximum number of connections taken from other workers in one loop iteration."""


class Descriptors(NamedTuple):
    """File descriptors that a worker needs to take part in balancing connections."""

    table: int
    inbox: int
    senders: tuple[tuple[int, int], ...]
    """Sending socket for each other worker: (slot, descriptor)."""

    def all(self) -> tuple[int, ...]:
        """All file descriptors for balancing, which the worker's process inherits."""
        return (self.table, self.inbox, *(number for _, number in self.senders))


@final
class ConnectionCounts:
    """The main process's side of balancing connections: the shared table, and a pair of sockets for each
    slot. Both outlive every worker, so a connection given to a worker that ends is not lost: another worker
    gets it (`move`), or the one that replaces it."""

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
        """File descriptors for the balancing worker in `slot`; they stay owned by the main process."""
        senders = tuple(
            (other, sender.fileno()) for other, (_, sender) in enumerate(self._pairs) if other != slot
        )
        return Descriptors(self._descriptor, self._pairs[slot][0].fileno(), senders)

    def ended(self, slot: int) -> None:
        """Mark the worker in `slot` as taking no connections."""
        self._counts[slot] = NOT_SERVING

    def count(self, slot: int) -> int:
        """Number of connections of the worker in `slot`, as the other workers see it."""
        return self._counts[slot]

    def give(self, slot: int, position: int, sock: socket.socket) -> bool:
        """Pass a connection to the worker in `slot`; False if it takes none. `sock` stays the caller's."""
        try:
            socket.send_fds(self._pairs[slot][1], [bytes((position,))], [sock.fileno()])
        except OSError:  # its queue is full, or it takes none
            return False
        if self._counts[slot] < NOT_SERVING:
            self._counts[slot] += 1  # until it publishes its own count
        return True

    def move(self, slot: int, other: int) -> None:
        """Pass to the worker in `other` the connections that the ended worker in `slot` was given and has not
        taken: if this gateway ends or is taken over, no other worker ever serves in that slot."""
        inbox, back = self._pairs[slot]
        _, sender = self._pairs[other]
        while True:
            try:
                data, found, _, _ = socket.recv_fds(inbox, 1, 1)
            except OSError:
                return
            try:
                socket.send_fds(sender, [data], found)
            except OSError:  # its queue is full, or it takes none
                socket.send_fds(back, [data], found)
                return
            finally:
                for number in found:
                    os.close(number)

    def close(self) -> None:
        """Close the table of connection counts and all sockets, with the connections that nobody took."""
        if self._map.closed:
            return
        self._counts.release()
        self._map.close()
        os.close(self._descriptor)
        for pair in self._pairs:
            for each in pair:
                each.close()


MakeProtocol: TypeAlias = Callable[[], asyncio.Protocol]
"""Makes the asyncio protocol of a client connection that this worker keeps."""


@final
class Balance:
    """A worker's side of balancing. Owns `descriptors`. `connections` returns its number of connections."""

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
        """Begin to balance with other workers. `places`: makers of protocols, by the listeners' positions."""
        self._places = dict(places)
        self._serving = True
        self.tell()
        asyncio.get_running_loop().add_reader(self._inbox.fileno(), self.take)

    def stop(self) -> None:
        """Give other workers no connection, and announce to want none. Given ones are taken until `close`."""
        self._serving = False
        self._counts[self._slot] = NOT_SERVING

    def close(self) -> None:
        """Take connections that other workers gave, and stop. Later ones wait for the slot's next worker."""
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
        """Publish how many connections this worker has now."""
        if self._serving:
            self._counts[self._slot] = self._connections()

    def give(self, transport: asyncio.BaseTransport, position: int) -> bool:
        """Give a new connection away if another worker has clearly fewer; whether that was done."""
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
        except OSError:  # its queue is full, or it takes none
            return False
        counts[other] = fewest + 1  # until it publishes its own count
        cast(asyncio.Transport, transport).abort()  # closes our descriptor, not the connection
        return True

    def take(self) -> None:
        """Serve connections that other workers have given."""
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
        with suppress(OSError):  # the connection has ended meanwhile
            await asyncio.get_running_loop().connect_accepted_socket(make, sock)
            self.tell()


def _opened(number: int) -> socket.socket:
    sock = socket.socket(fileno=number)
    sock.setblocking(False)  # noqa: FBT003 - the name of the method says it
    return sock


@final
class AcceptedConnection:
    """A new connection before it is kept or given away: an `asyncio.Protocol` by its methods."""

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
        """Do nothing at the end of the connection, which was given to another worker."""

    def data_received(self, data: bytes) -> None:
        """Never called: nothing is read before the connection has its own protocol."""

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Never called: nothing is written before the connection has its own protocol."""

    def resume_writing(self) -> None:
        """Never called: nothing is written before the connection has its own protocol."""
