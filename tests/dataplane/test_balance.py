"""Connections are spread evenly over workers, and none is lost on its way from one to another."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest

from gateway.dataplane.edge.balance import (
    NOT_SERVING,
    AcceptedConnection,
    Balance,
    ConnectionCounts,
    Descriptors,
)
from tests.kit.waiting import PATIENCE

WORKERS = 4
CONNECTIONS = 64
TIMEOUT = PATIENCE


class Echo(asyncio.Protocol):
    """Sends back what comes, behind the number of its worker."""

    def __init__(self, worker: FakeWorker) -> None:
        self._worker = worker
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = cast(asyncio.Transport, transport)
        self._worker.open.add(self)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(b"%d %s" % (self._worker.slot, data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._worker.open.discard(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class FakeWorker:
    """A slot with a listening socket of its own, in the loop of the test."""

    def __init__(self, slot: int, connection_counts: ConnectionCounts, sock: socket.socket) -> None:
        self.slot = slot
        self.open: set[Echo] = set()
        self._sock = sock
        self.balance = Balance(slot, copied(connection_counts.descriptors(slot)), lambda: len(self.open))
        self._server: asyncio.Server | None = None

    def protocol(self) -> asyncio.Protocol:
        return Echo(self)

    async def start(self) -> None:
        self.balance.start({0: self.protocol})
        self._server = await asyncio.get_running_loop().create_server(
            lambda: cast(Any, AcceptedConnection(self.balance, self.protocol, 0)), sock=self._sock.dup()
        )

    async def end(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.balance.close()
        for each in tuple(self.open):
            each.close()


def copied(descriptors: Descriptors) -> Descriptors:
    """Another process gets copies of the descriptors, and so does a worker in this one."""
    return Descriptors(
        os.dup(descriptors.table),
        os.dup(descriptors.inbox),
        tuple((slot, os.dup(number)) for slot, number in descriptors.senders),
    )


def reuseport(port: int = 0) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(256)
    sock.setblocking(False)
    return sock


class Machine:
    """the connection counts, and a worker in each slot with a listening socket of the same port."""

    def __init__(self, *, shared: bool = False) -> None:
        self.connection_counts = ConnectionCounts(WORKERS)
        first = reuseport()
        self.port: int = first.getsockname()[1]
        self._sockets = [first]
        if not shared:
            self._sockets += [reuseport(self.port) for _ in range(WORKERS - 1)]
        self.workers: list[FakeWorker] = []

    def worker(self, slot: int) -> FakeWorker:
        return FakeWorker(slot, self.connection_counts, self._sockets[slot % len(self._sockets)])

    async def start(self) -> None:
        self.workers = [self.worker(slot) for slot in range(WORKERS)]
        for worker in self.workers:
            await worker.start()

    async def end(self) -> None:
        for worker in self.workers:
            await worker.end()
        for sock in self._sockets:
            sock.close()
        self.connection_counts.close()


@asynccontextmanager
async def machine(*, shared: bool = False) -> AsyncIterator[Machine]:
    made = Machine(shared=shared)
    await made.start()
    try:
        yield made
    finally:
        await made.end()


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(stack: AsyncExitStack, port: int) -> Stream:
    """A client that speaks at once: its bytes are there before anybody has decided who serves it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.callback(writer.close)
    writer.write(b"hello\n")
    return reader, writer


async def answered(stream: Stream) -> int:
    """The number of the worker that has answered."""
    async with asyncio.timeout(TIMEOUT):
        number, _, text = (await stream[0].readline()).partition(b" ")
    assert text == b"hello\n"
    return int(number)


@pytest.mark.parametrize("shared", [False, True], ids=["a socket each", "one socket"])
async def test_64_connections_are_spread_evenly(shared: bool) -> None:
    """Each worker is within 20 % of its share, however the kernel has chosen, and each byte arrives."""
    async with machine(shared=shared) as found, AsyncExitStack() as stack:
        streams = [await connect(stack, found.port) for _ in range(CONNECTIONS)]
        served = [await answered(stream) for stream in streams]
        share = CONNECTIONS / WORKERS
        counts = [served.count(slot) for slot in range(WORKERS)]
        assert all(abs(count - share) <= 0.2 * share for count in counts), counts
        assert [len(worker.open) for worker in found.workers] == counts


async def test_a_worker_that_takes_no_more_gets_nothing() -> None:
    async with machine() as found, AsyncExitStack() as stack:
        found.workers[2].balance.stop()
        streams = [await connect(stack, found.port) for _ in range(CONNECTIONS)]
        served = [await answered(stream) for stream in streams]
        others = [served.count(slot) for slot in (0, 1, 3)]
        # What the kernel itself brings to the second one stays there: it gives nothing, too.
        assert served.count(2) < CONNECTIONS / 2
        assert max(others) - min(others) <= 4, others


async def test_what_was_given_to_a_worker_that_has_ended_is_served_by_its_successor() -> None:
    async with machine() as found, AsyncExitStack() as stack:
        giver = found.workers[1]
        streams = [await connect(stack, found.port) for _ in range(CONNECTIONS)]
        for stream in streams:
            await answered(stream)
        await found.workers[0].end()
        found.connection_counts._counts[0] = 0  # the others have not heard yet that it has ended
        late = []
        while found.connection_counts._counts[0] < 4:
            late.append(await connect(stack, found.port))
            await asyncio.sleep(0)
        found.workers[0] = found.worker(0)
        await found.workers[0].start()
        served = [await answered(stream) for stream in late]
        assert 0 in served
        assert giver.open


async def test_a_full_inbox_costs_nobody_his_connection() -> None:
    """The others are told that a worker has none, and it takes nothing: after some, they keep what comes."""
    async with machine() as found, AsyncExitStack() as stack:
        asyncio.get_running_loop().remove_reader(found.workers[3].balance._inbox.fileno())
        streams = []
        for _ in range(CONNECTIONS):
            found.connection_counts._counts[3] = 0
            streams.append(await connect(stack, found.port))
        found.connection_counts.ended(3)
        found.workers[3].balance.start({0: found.workers[3].protocol})
        served = [await answered(stream) for stream in streams]
        assert len(served) == CONNECTIONS


def test_before_a_worker_has_started_nobody_gives_it_anything() -> None:
    connection_counts = ConnectionCounts(2)
    assert list(connection_counts._counts) == [NOT_SERVING] * 2
    connection_counts.close()


async def test_what_was_given_to_one_that_ended_is_moved_to_another_one() -> None:
    """Its successor may never serve. What does not fit there stays."""
    connection_counts = ConnectionCounts(2)
    table, inbox, senders = connection_counts.descriptors(0)
    giver = socket.socket(fileno=os.dup(senders[0][1]))  # what worker 0 gives to worker 1
    taker = socket.socket(fileno=os.dup(inbox))
    left, right = socket.socketpair()
    with giver, taker, left, right:
        for position in (3, 4):
            socket.send_fds(giver, [bytes((position,))], [right.fileno()])
        right.close()

        connection_counts.move(1, 0)

        for position in (3, 4):
            data, [number], _, _ = socket.recv_fds(taker, 1, 1)
            with socket.socket(fileno=number) as found:
                assert data == bytes((position,))
                found.sendall(data)
                assert left.recv(1) == data
        left.settimeout(TIMEOUT)
        assert left.recv(1) == b""  # nobody else has it open
    assert table >= 0
    connection_counts.close()
