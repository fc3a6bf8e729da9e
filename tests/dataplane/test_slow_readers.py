"""Clients that read slowly: they get everything, and cost little memory meanwhile.

The time-out is for a client that takes nothing. What it takes shows on its socket: the kernel reports room to
write only when a third of its buffer is empty, which may take a slow reader minutes.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.dataplane.edge.client_connection import ClientConnection
from gateway.telemetry.request_record import RequestRecord
from tests.kit.backends import UpstreamConnection, always
from tests.kit.messages import KIB, request, response
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed, settle

MIB = KIB * KIB
WRITE_IDLE = 10.0
"""Seconds that a client may take nothing, by the clock of the gateway."""
PIECE = 4 * KIB
ROUNDS = 5
"""How often a slow reader takes some pieces, each time in most of `WRITE_IDLE`."""
ONE_READ = 64 * KIB
"""The most that the gateway reads from a backend before it looks at what waits for the client."""
HEADS = KIB
"""Room for the head and the framing of chunks."""


@asynccontextmanager
async def reader_with_small_buffer(gateway: Gateway, send_buffer: int = 0) -> AsyncIterator[socket.socket]:
    """A client that has sent a request and takes only what the test reads. `send_buffer`: that of the
    gateway's socket."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * KIB)
        sock.setblocking(False)
        await loop.sock_connect(sock, gateway.address)
        await until(lambda: bool(gateway.worker._clients))
        gateway.clock.stop()
        if send_buffer:
            gateway_sock = its_connection(gateway).transport.get_extra_info("socket")
            gateway_sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        yield sock


def its_connection(gateway: Gateway) -> ClientConnection:
    (connection,) = gateway.worker._clients
    return connection


async def read_slowly(gateway: Gateway, sock: socket.socket, most: int = MIB) -> bytes:
    """What a slow reader takes in more than `WRITE_IDLE`: a little more than `most` bytes at most."""
    taken = b""
    for _ in range(ROUNDS):
        for _ in range(8):
            async with asyncio.timeout(PATIENCE):
                taken += await asyncio.get_running_loop().sock_recv(sock, PIECE)
        await settle()
        gateway.turn(0.7 * WRITE_IDLE)
        if len(taken) >= most:
            break
    return taken


async def turned_until_recorded(gateway: Gateway) -> RequestRecord:
    """The record of a request that ends when enough time has passed. Little passes at once, since the gateway
    looks at a deadline for what has moved."""
    while not gateway.records:
        gateway.turn(WRITE_IDLE / 10)
        await settle()
    return gateway.records[0]


async def read_rest(sock: socket.socket, before: bytes, length: int) -> bytes:
    """The body of a response of which `before` was read: all of it, as fast as possible."""
    loop = asyncio.get_running_loop()
    head, _, body = before.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    pieces = [body]
    async with asyncio.timeout(PATIENCE):
        while sum(map(len, pieces)) < length and (data := await loop.sock_recv(sock, MIB)):
            pieces.append(data)
    return b"".join(pieces)


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


async def stream_for_ever(upstream: UpstreamConnection) -> None:
    """Send a response without an end, as fast as it is read."""
    await upstream.request()
    await upstream.send(response(200, f"Content-Length: {1 << 40}"))
    while True:
        await upstream.send(b"x" * MIB)


@pytest.mark.parametrize(
    "size, send_buffer",
    [
        (MIB, 4 * KIB),
        # The kernel holds half a MiB. The buffer above it does not move for seconds.
        (2 * MIB, 256 * KIB),
        # The exchange ends at once, and the rest waits for the client.
        (120_000, 4 * KIB),
    ],
)
@pytest.mark.parametrize("line", ["Connection: close", "X-Stays: yes"])
async def test_R_B1_a_steady_slow_reader_gets_everything(
    testbed: Testbed, size: int, send_buffer: int, line: str
) -> None:
    body = pattern(size)
    gateway, _ = await testbed.gateway_and_backend(
        always(response(200, body=body)), client_write_idle=WRITE_IDLE, client_idle=WRITE_IDLE
    )
    async with reader_with_small_buffer(gateway, send_buffer) as sock:
        await asyncio.get_running_loop().sock_sendall(sock, request("GET", "/v1/nodes", line))

        begin = await read_slowly(gateway, sock, size // 2)
        assert await read_rest(sock, begin, size) == body

    assert (await gateway.recorded()).reason == ""


async def test_R_B1_a_slow_reader_is_reset_only_after_it_takes_nothing(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(stream_for_ever, client_write_idle=WRITE_IDLE)
    async with reader_with_small_buffer(gateway, 4 * KIB) as sock:
        await asyncio.get_running_loop().sock_sendall(sock, request())
        await read_slowly(gateway, sock)
        assert not gateway.records

        record = await turned_until_recorded(gateway)  # it takes nothing any more

    assert (record.status, record.reason) == (200, "client_stalled")
    await backend.disconnected()
    await until(lambda: not gateway.worker._clients)


async def test_R3_V9_a_kernel_that_acknowledges_nothing_for_50_seconds_is_a_slow_reader(
    testbed: Testbed,
) -> None:
    """A reader with a large receive buffer takes 4 kB a second from it. Its kernel acknowledges more only
    when a large part of that buffer is free again."""
    body = pattern(2 * MIB)
    gateway, _ = await testbed.gateway_and_backend(always(response(200, body=body)))
    async with reader_with_small_buffer(gateway, 4 * KIB) as sock:
        await asyncio.get_running_loop().sock_sendall(sock, request())
        begin = b""
        for _ in range(2):
            async with asyncio.timeout(PATIENCE):
                begin += await asyncio.get_running_loop().sock_recv(sock, 64 * KIB)
            await settle()
            for _ in range(50):
                gateway.turn(1.0)
                await settle()
            assert not gateway.records

        assert await read_rest(sock, begin, len(body)) == body

    assert (await gateway.recorded()).reason == ""


async def test_R3_V9_a_client_that_takes_nothing_for_a_minute_is_reset(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(stream_for_ever)
    async with reader_with_small_buffer(gateway, 4 * KIB) as sock:
        await asyncio.get_running_loop().sock_sendall(sock, request())
        seconds = 0
        while not gateway.records:
            gateway.turn(1.0)
            seconds += 1
            await settle()

    assert seconds >= 60
    assert gateway.records[0].reason == "client_stalled"
    await backend.disconnected()


@pytest.mark.parametrize("send_buffer", [4 * KIB, 256 * KIB])
async def test_D3_a_client_that_takes_nothing_is_reset_whatever_the_kernel_holds(
    testbed: Testbed, send_buffer: int
) -> None:
    gateway, backend = await testbed.gateway_and_backend(stream_for_ever, client_write_idle=WRITE_IDLE)
    async with reader_with_small_buffer(gateway, send_buffer) as sock:
        await asyncio.get_running_loop().sock_sendall(sock, request())

        assert (await turned_until_recorded(gateway)).reason == "client_stalled"

    await backend.disconnected()


@pytest.mark.parametrize("write_buffer", [16 * KIB, 64 * KIB])
@pytest.mark.parametrize("framing", ["Content-Length: 8388608", "Transfer-Encoding: chunked"])
async def test_R_B1_what_waits_for_a_client_is_bounded(
    testbed: Testbed, framing: str, write_buffer: int
) -> None:
    size = 8 * MIB
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    body = chunk * (size // 4096) + b"0\r\n\r\n" if "chunked" in framing else b"x" * size
    gateway, backend = await testbed.gateway_and_backend(
        always(response(200, framing) + body), limits={"write_buffer": write_buffer}
    )
    # A fast reader comes first: the kernel then moves megabytes on the backend's connection at a time.
    first = await gateway.client()
    for _ in range(2):
        assert len((await first.request(request())).body) == size
    first.writer.close()
    await until(lambda: not gateway.worker._clients)

    async with reader_with_small_buffer(gateway, 4 * KIB) as sock:
        await asyncio.get_running_loop().sock_sendall(sock, request())
        transport = its_connection(gateway).transport
        waiting = []
        for _ in range(8):
            await asyncio.get_running_loop().sock_recv(sock, PIECE)
            await settle()
            waiting.append(transport.get_write_buffer_size())

    assert backend.connections == 1
    assert max(waiting) > 0
    assert max(waiting) <= write_buffer + ONE_READ + HEADS
