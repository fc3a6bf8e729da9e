"""Flow control, and the drain of the gateway.

Each side is read only as fast as the other side takes it. A drain loses no request.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.kit.backends import UpstreamConnection, always, serve
from tests.kit.messages import request, response
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed

MIB = 1024 * 1024
HUGE = 256 * MIB
BUFFERED = 128 * MIB
"""More than the sockets between two ends hold: the kernel may give each of them 32 MiB."""
"""Bytes: more than all buffers of the kernel and the gateway together ever hold on two connections."""


class Pump:
    """Writes as long as the other side reads."""

    def __init__(self) -> None:
        self.written = 0
        self.stopped = asyncio.Event()

    async def write(self, writer: asyncio.StreamWriter) -> None:
        """Write pieces of 64 KiB, up to `HUGE` bytes. `stopped` is set while the other side does not read."""
        piece = b"x" * 65536
        while self.written < HUGE:
            writer.write(piece)
            draining = asyncio.get_running_loop().create_task(writer.drain())
            await asyncio.wait([draining], timeout=0.15)  # nothing was read for so long: it has stopped
            if not draining.done():
                self.stopped.set()
            await draining
            self.stopped.clear()
            self.written += len(piece)


async def test_a_response_that_the_client_does_not_read_is_not_read_from_the_backend(
    testbed: Testbed,
) -> None:
    pump = Pump()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(response(200, f"Content-Length: {HUGE}"))
        await pump.write(upstream.writer)

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client(small_buffer=16384)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(request())
    async with asyncio.timeout(PATIENCE):
        await pump.stopped.wait()

    assert pump.written < BUFFERED
    (connection,) = gateway.worker._clients
    assert connection.transport.get_write_buffer_size() < 1 * MIB


async def test_a_body_that_the_backend_does_not_read_is_not_read_from_the_client(testbed: Testbed) -> None:
    pump, head_read, leave = Pump(), asyncio.Event(), asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        upstream.reader._transport.pause_reading()  # type: ignore[attr-defined]
        head_read.set()
        await leave.wait()

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request("PUT", "/v1/x", f"Content-Length: {HUGE}"))
    writing = asyncio.get_running_loop().create_task(pump.write(client.writer))
    async with asyncio.timeout(PATIENCE):
        await head_read.wait()  # the client may be paused earlier too, while a connection is made
        await pump.stopped.wait()

    assert pump.written < BUFFERED
    assert gateway.worker.report().connections == {("baremetal", "api-1"): (0, 1)}
    writing.cancel()
    leave.set()
    await backend.disconnected()


async def test_a_large_response_arrives_whole_through_small_buffers(testbed: Testbed) -> None:
    body = bytes(range(256)) * (32 * 4096)  # 32 MiB
    gateway, _ = await testbed.gateway_and_backend(always(response(200, body=body)))
    client = await gateway.client(small_buffer=16384)

    assert (await client.request(request())).body == body


async def test_a_large_request_body_arrives_whole(testbed: Testbed) -> None:
    body = bytes(range(256)) * (32 * 4096)

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(response(200, body=b"thanks"))

    gateway, backend = await testbed.gateway_and_backend(script)

    assert (await gateway.request(request("PUT", body=body))).body == b"thanks"
    assert backend.only_request.body == body


async def test_D3_a_client_that_reads_nothing_is_reset(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(response(200, f"Content-Length: {HUGE}"))
        await Pump().write(upstream.writer)

    gateway, backend = await testbed.gateway_and_backend(script, client_write_idle=0.1)
    client = await gateway.client(small_buffer=16384)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(request())

    await backend.received()
    await backend.disconnected()
    record = await gateway.recorded()
    assert (record.status, record.reason) == (200, "client_stalled")
    await until(lambda: not gateway.worker._clients)


@pytest.mark.parametrize("line", ["Connection: close", "X-Stays: yes"])
async def test_D3_a_client_that_does_not_read_the_end_of_its_response_is_reset_too(
    testbed: Testbed, line: str
) -> None:
    """The exchange has ended, and the rest waits in the gateway. It must not wait for ever."""
    gateway, _ = await testbed.gateway_and_backend(
        always(response(200, body=b"x" * 65000)), client_write_idle=0.1, client_idle=0.1
    )
    client = await gateway.client(small_buffer=4096)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: bool(gateway.worker._clients))
    (connection,) = gateway.worker._clients
    sock = connection.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # so that the kernel buffers little
    await client.send(request("GET", "/v1/nodes", line))
    assert (await gateway.recorded()).bytes_out == 65000
    await asyncio.sleep(0)
    assert connection.transport.get_write_buffer_size() > 0

    await until(lambda: not gateway.worker._clients)


async def test_D3_pipelined_requests_whose_responses_are_not_read_cost_no_memory(testbed: Testbed) -> None:
    """After a while no further request begins."""
    requests, size = 1000, 65536
    gateway, backend = await testbed.gateway_and_backend(
        always(response(200, body=b"x" * size)), client_write_idle=0.3
    )
    client = await gateway.client(small_buffer=16384)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    client.writer.write(request() * requests)

    await until(
        lambda: len(backend.requests) == requests or bool(gateway.records and not gateway.worker._clients)
    )

    assert len(backend.requests) * size < BUFFERED


async def test_D3_unread_responses_hold_back_the_next_one_too(testbed: Testbed) -> None:
    """The last request begins in the turn of the loop in which the responses before it fill the buffers to
    the client, and it needs a new connection. When that is made, no callback reports again that the client
    does not read."""
    pump = Pump()

    async def script(upstream: UpstreamConnection) -> None:
        for line in ("X-Stays: yes", "Connection: close"):
            if (await upstream.request()).target == "/v1/huge":
                await upstream.send(response(200, f"Content-Length: {HUGE}"))
                await pump.write(upstream.writer)
                return
            await upstream.send(response(200, line, body=b"x" * 50_000))

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client(small_buffer=4096)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: bool(gateway.worker._clients))
    (connection,) = gateway.worker._clients
    sock = connection.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    await client.send(request(), request(), request("GET", "/v1/huge"))
    await gateway.recorded(2)

    await until(lambda: pump.stopped.is_set() or pump.written == HUGE or not second_request_begun(gateway))
    assert pump.written < BUFFERED
    assert connection.transport.get_write_buffer_size() < 2 * MIB


def second_request_begun(gateway: Gateway) -> bool:
    """False: the second request has not begun, and will not begin before the client reads."""
    return gateway.worker.report().in_flight_by_service != {"baremetal": 0}


async def test_S17_pipelined_requests_wait_in_a_bounded_buffer(testbed: Testbed) -> None:
    pump, leave = Pump(), asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await leave.wait()

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request("POST"))
    await backend.received()
    writing = asyncio.get_running_loop().create_task(pump.write(client.writer))
    async with asyncio.timeout(PATIENCE):
        await pump.stopped.wait()

    assert pump.written < BUFFERED
    (connection,) = gateway.worker._clients
    assert len(connection._buffer) < 1 * MIB
    writing.cancel()
    leave.set()  # a client that is not read is only noticed to have reset when something is written


# --- drain -------------------------------------------------------------------------------------------------


async def test_a_drain_finishes_requests_and_then_ends_their_connections(testbed: Testbed) -> None:
    may_answer = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            if message.target == "/v1/slow":
                await may_answer.wait()
            await upstream.send(response(200, body=message.target.encode()))

    gateway, backend = await testbed.gateway_and_backend(script)
    address = gateway.address
    idle, busy = await gateway.client(), await gateway.client()
    assert (await idle.request(request())).status == 200
    await busy.send(request("GET", "/v1/slow"))
    await backend.received(2)

    draining = asyncio.get_running_loop().create_task(gateway.drain(10))
    await until(lambda: gateway.worker.context.draining)
    await until(lambda: not gateway.sockets.addresses)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)
    answer = await idle.request(request("GET", "/v1/next"))  # it does not know of the drain yet
    assert (answer.body, answer.one("connection")) == (b"/v1/next", "close")
    assert await idle.ended() == (b"", False)
    may_answer.set()
    answer = await busy.response()
    assert (answer.body, answer.one("connection")) == (b"/v1/slow", "close")
    assert await busy.ended() == (b"", False)

    async with asyncio.timeout(PATIENCE):
        await draining
    assert not gateway.worker._clients
    await backend.disconnected()


async def test_a_drain_closes_idle_connections_at_its_end(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    assert (await client.request(request())).status == 200

    async with asyncio.timeout(PATIENCE):
        await gateway.drain(0.2)

    assert await client.ended() in ((b"", False), (b"", True))


async def test_a_drain_has_a_time_limit(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request())
    await backend.received()

    async with asyncio.timeout(PATIENCE):
        await gateway.drain(0.1)

    assert (await client.ended()).rest == b""
    await backend.disconnected()


async def test_a_drain_lets_a_response_stream_to_its_end(testbed: Testbed) -> None:
    may_end = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(response(200, "Content-Length: 10") + b"begun")
        await may_end.wait()
        await upstream.send(b"ended")
        await upstream.ended()

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request())
    await client.reader.readuntil(b"begun")
    draining = asyncio.get_running_loop().create_task(gateway.drain(10))
    await until(lambda: gateway.worker.context.draining)
    may_end.set()

    assert await client.reader.readexactly(5) == b"ended"
    client.writer.close()
    await draining
