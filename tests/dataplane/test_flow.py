"""Back-pressure and the end: what nobody takes is not read from the other side; a drain loses nothing."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.dataplane.stand import Hop, House, Stand, always, serve, until
from tests.dataplane.wire import reply, request

MIB = 1024 * 1024
HUGE = 256 * MIB
BUFFERED = 32 * MIB
"""More than all kernel buffers and the gateway's own together ever hold on two connections."""


class Meter:
    """A writer that goes on as long as somebody takes it."""

    def __init__(self) -> None:
        self.moved = 0
        self.stopped = asyncio.Event()

    async def pour(self, writer: asyncio.StreamWriter) -> None:
        """Write 64 KiB pieces up to `HUGE`; `stopped` is set while nobody takes them."""
        piece = b"x" * 65536
        while self.moved < HUGE:
            writer.write(piece)
            draining = asyncio.get_running_loop().create_task(writer.drain())
            await asyncio.wait([draining], timeout=0.15)  # so long nothing was taken: it has stopped
            if not draining.done():
                self.stopped.set()
            await draining
            self.stopped.clear()
            self.moved += len(piece)


async def test_a_download_that_nobody_reads_is_not_read_from_the_backend(house: House) -> None:
    meter = Meter()

    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(reply(200, f"Content-Length: {HUGE}"))
        await meter.pour(hop.writer)

    gateway, _ = await house.behind(script)
    client = await gateway.client(small_buffer=16384)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(request())
    async with asyncio.timeout(10):
        await meter.stopped.wait()

    assert meter.moved < BUFFERED
    (connection,) = gateway.worker._clients
    assert connection.transport.get_write_buffer_size() < 1 * MIB


async def test_an_upload_that_the_backend_does_not_read_is_not_read_from_the_client(house: House) -> None:
    meter, asked, leave = Meter(), asyncio.Event(), asyncio.Event()

    async def script(hop: Hop) -> None:
        await hop.head()
        hop.reader._transport.pause_reading()  # type: ignore[attr-defined]
        asked.set()
        await leave.wait()

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request("PUT", "/v1/x", f"Content-Length: {HUGE}"))
    pouring = asyncio.get_running_loop().create_task(meter.pour(client.writer))
    async with asyncio.timeout(10):
        await asked.wait()  # the client may have been made to stop before: while a connection was made
        await meter.stopped.wait()

    assert meter.moved < BUFFERED
    assert gateway.worker.connections() == {("baremetal", "api-1"): (0, 1)}
    pouring.cancel()
    leave.set()
    await backend.gone()


async def test_a_large_download_arrives_whole_through_small_buffers(house: House) -> None:
    body = bytes(range(256)) * (32 * 4096)  # 32 MiB
    gateway, _ = await house.behind(always(reply(200, body=body)))
    client = await gateway.client(small_buffer=16384)

    assert (await client.ask(request())).body == body


async def test_a_large_upload_arrives_whole(house: House) -> None:
    body = bytes(range(256)) * (32 * 4096)

    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(reply(200, body=b"thanks"))

    gateway, backend = await house.behind(script)

    assert (await gateway.ask(request("PUT", body=body))).body == b"thanks"
    assert backend.only.body == body


async def test_D3_a_client_that_takes_nothing_is_cut(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(reply(200, f"Content-Length: {HUGE}"))
        await Meter().pour(hop.writer)

    gateway, backend = await house.behind(script, client_write_idle=0.1)
    client = await gateway.client(small_buffer=16384)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(request())

    await backend.came()
    await backend.gone()
    seen = await gateway.told()
    assert (seen.status, seen.error) == (200, "client_stalled")
    await until(lambda: not gateway.worker._clients)


@pytest.mark.parametrize("line", ["Connection: close", "X-Stays: yes"])
async def test_D3_a_client_that_does_not_take_the_end_of_its_reply_is_cut_too(
    house: House, line: str
) -> None:
    """The exchange has ended and the rest waits in the gateway: that must not wait for ever."""
    gateway, _ = await house.behind(
        always(reply(200, body=b"x" * 65000)), client_write_idle=0.1, client_idle=0.1
    )
    client = await gateway.client(small_buffer=4096)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: bool(gateway.worker._clients))
    (connection,) = gateway.worker._clients
    sock = connection.transport.get_extra_info("socket")
    sock.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDBUF, 4096
    )  # so that little fits between here and the client
    await client.send(request("GET", "/v1/nodes", line))
    assert (await gateway.told()).bytes_out == 65000
    await asyncio.sleep(0)
    assert connection.transport.get_write_buffer_size() > 0

    await until(lambda: not gateway.worker._clients)


async def test_D3_a_client_that_asks_and_asks_and_never_reads_costs_no_memory(house: House) -> None:
    """Pipelined requests whose replies nobody takes: after a while no further one is begun."""
    asked, size = 1000, 65536
    gateway, backend = await house.behind(always(reply(200, body=b"x" * size)), client_write_idle=0.3)
    client = await gateway.client(small_buffer=16384)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    client.writer.write(request() * asked)

    await until(
        lambda: len(backend.requests) == asked or bool(gateway.outcomes and not gateway.worker._clients)
    )

    assert len(backend.requests) * size < BUFFERED


async def test_D3_what_replies_before_it_left_unread_holds_back_the_next_one_too(house: House) -> None:
    """The last request is begun in the same turn in which the replies before it fill the way to the client,
    and it needs a new connection: when that is there, nobody says again that the client takes no more."""
    meter = Meter()

    async def script(hop: Hop) -> None:
        for line in ("X-Stays: yes", "Connection: close"):
            if (await hop.request()).target == "/v1/huge":
                await hop.say(reply(200, f"Content-Length: {HUGE}"))
                await meter.pour(hop.writer)
                return
            await hop.say(reply(200, line, body=b"x" * 50_000))

    gateway, _ = await house.behind(script)
    client = await gateway.client(small_buffer=4096)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: bool(gateway.worker._clients))
    (connection,) = gateway.worker._clients
    sock = connection.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    await client.send(request(), request(), request("GET", "/v1/huge"))
    await gateway.told(2)

    await until(lambda: meter.stopped.is_set() or meter.moved == HUGE or not waiting(gateway))
    assert meter.moved < BUFFERED
    assert connection.transport.get_write_buffer_size() < 2 * MIB


def waiting(gateway: Stand) -> bool:
    """False: the second request has not been begun, and will not be before the client reads."""
    return gateway.worker.in_flight() != {"baremetal": 0}


async def test_S17_what_is_sent_ahead_of_its_turn_waits_in_bounds(house: House) -> None:
    meter, leave = Meter(), asyncio.Event()

    async def script(hop: Hop) -> None:
        await hop.request()
        await leave.wait()

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request("POST"))
    await backend.came()
    pouring = asyncio.get_running_loop().create_task(meter.pour(client.writer))
    async with asyncio.timeout(10):
        await meter.stopped.wait()

    assert meter.moved < BUFFERED
    (connection,) = gateway.worker._clients
    assert len(connection._buffer) < 1 * MIB
    pouring.cancel()
    leave.set()  # the reset of a client that is not read goes unnoticed until something is written


# --- drain -------------------------------------------------------------------------------------------------


async def test_a_drain_finishes_what_is_under_way_and_tells_everybody_to_go(house: House) -> None:
    may_answer = asyncio.Event()

    async def script(hop: Hop) -> None:
        while True:
            message = await hop.request()
            if message.target == "/v1/slow":
                await may_answer.wait()
            await hop.say(reply(200, body=message.target.encode()))

    gateway, backend = await house.behind(script)
    address = gateway.worker.addresses[0]
    idle, busy = await gateway.client(), await gateway.client()
    assert (await idle.ask(request())).status == 200
    await busy.send(request("GET", "/v1/slow"))
    await backend.came(2)

    draining = asyncio.get_running_loop().create_task(gateway.worker.drain(10))
    await until(lambda: gateway.worker.draining)
    await until(lambda: not gateway.worker.addresses)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)
    answer = await idle.ask(request("GET", "/v1/next"))  # it did not know yet
    assert (answer.body, answer.one("connection")) == (b"/v1/next", "close")
    assert await idle.ended() == (b"", False)
    may_answer.set()
    answer = await busy.reply()
    assert (answer.body, answer.one("connection")) == (b"/v1/slow", "close")
    assert await busy.ended() == (b"", False)

    async with asyncio.timeout(5):
        await draining
    assert not gateway.worker._clients
    await backend.gone()


async def test_a_drain_sends_idle_clients_away_quietly_in_the_end(house: House) -> None:
    gateway, _ = await house.behind(serve)
    client = await gateway.client()
    assert (await client.ask(request())).status == 200

    async with asyncio.timeout(5):
        await gateway.worker.drain(0.2)

    assert await client.ended() in ((b"", False), (b"", True))


async def test_a_drain_has_an_end(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.ended()

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request())
    await backend.came()

    async with asyncio.timeout(5):
        await gateway.worker.drain(0.1)

    assert (await client.ended()).rest == b""
    await backend.gone()


async def test_a_drain_lets_a_reply_stream_to_its_end(house: House) -> None:
    may_end = asyncio.Event()

    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(reply(200, "Content-Length: 10") + b"begun")
        await may_end.wait()
        await hop.say(b"ended")
        await hop.ended()

    gateway, _ = await house.behind(script)
    client = await gateway.client()
    await client.send(request())
    await client.reader.readuntil(b"begun")
    draining = asyncio.get_running_loop().create_task(gateway.worker.drain(10))
    await until(lambda: gateway.worker.draining)
    may_end.set()

    assert await client.reader.readexactly(5) == b"ended"
    client.writer.close()
    await draining
