"""Peers that stop in the middle, both sides at once: nothing hangs, nothing piles up, nothing stays open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.dataplane.backends.connection import BackendConnection
from tests.kit.backends import UpstreamConnection, ironic_response
from tests.kit.clients import Client, Ended
from tests.kit.messages import KIB, request, response
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed

MIB = KIB * KIB
GET = request()


def put(size: int) -> bytes:
    return request("PUT", "/v1/nodes/1", f"Content-Length: {size}")


def takes_no_more(upstream: UpstreamConnection) -> None:
    upstream.reader._transport.pause_reading()  # type: ignore[attr-defined]


@asynccontextmanager
async def sending(client: Client, *parts: bytes) -> AsyncIterator[asyncio.Task[None]]:
    """Send all of it as fast as the gateway takes it."""

    async def send() -> None:
        with suppress(ConnectionError):
            for part in parts:
                await client.send(part)

    task = asyncio.get_running_loop().create_task(send())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def connections(gateway: Gateway) -> int:
    return sum(len(pool.connections) for pool in gateway.worker.pools.by_key.values())


async def test_after_an_early_response_a_backend_that_takes_no_more_is_let_go(testbed: Testbed) -> None:
    """An orderly close would wait for ever until the rest of the body is taken."""

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        takes_no_more(upstream)
        await started.wait()
        await upstream.send(response(500, body=b""))
        await upstream.ended()

    started = asyncio.Event()
    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    async with sending(client, put(50 * MIB), *[bytes(MIB)] * 49) as task:
        await until(lambda: gateway.stages != [])
        await asyncio.wait({task}, timeout=0.3)
        started.set()
        await gateway.recorded()
        await until(lambda: not connections(gateway))


@pytest.mark.parametrize("upload", ["ends", "stops"])
async def test_a_client_that_stops_during_an_early_response_has_a_deadline(
    testbed: Testbed, upload: str
) -> None:
    """It sends its whole body and reads nothing, or reads everything and sends no more."""

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        reading = asyncio.get_running_loop().create_task(upstream.ended())
        size = 30_000_000 if upload == "ends" else 8_000_000
        await upstream.send(response(200, "Content-Length: 60000000") + bytes(size))
        await reading

    idle = 900.0
    times = {"client_body_idle": idle, "client_write_idle": idle, "backend_write_idle": idle}
    gateway, _ = await testbed.gateway_and_backend(script, **times)
    gateway.clock.stop()
    client = await gateway.client(small_buffer=4 * KIB)
    await client.send(put(2_000_000), bytes(1_500_000))
    await until(lambda: any(one.congested for one in gateway.worker._clients))
    (connection,) = gateway.worker._clients
    reading: list[asyncio.Task[Ended]] = []
    if upload == "ends":
        await client.send(bytes(500_000))
        await until(lambda: connection.exchange is not None and connection.exchange.body_received)
    else:
        reading.append(asyncio.get_running_loop().create_task(client.ended()))
        await until(lambda: not connection.congested)
    assert not gateway.records
    gateway.turn(idle)
    gateway.turn(idle)  # what was taken since the clock was looked at last counts as progress
    await gateway.recorded()
    await asyncio.gather(*reading)
    assert gateway.records[0].reason == "client_stalled"


async def test_the_first_write_of_a_body_may_stop_the_upload(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        takes_no_more(upstream)
        await over.wait()
        upstream.writer.transport.abort()

    over = asyncio.Event()
    limits = {"write_buffer": 4 * KIB, "replay_body": 8 * MIB}
    gateway, _ = await testbed.gateway_and_backend(script, limits=limits)
    client = await gateway.client()
    chunk = b"100000\r\n" + bytes(MIB) + b"\r\n"
    head = request("PUT", "/v1/nodes/1", "Transfer-Encoding: chunked")
    async with sending(client, head, *[chunk] * 60) as task:
        await asyncio.wait({task}, timeout=1)

        assert not task.done()
        pools = gateway.worker.pools.by_key.values()
        waiting = [one.transport.get_write_buffer_size() for pool in pools for one in pool.connections]
        assert sum(waiting) < 20 * MIB
        over.set()
        await gateway.recorded()


async def test_a_pipelined_upload_is_not_read_while_its_connection_is_made(testbed: Testbed) -> None:
    """The client was not read already: too much waited behind the request before."""
    go_on, never, lookups = asyncio.Event(), asyncio.Event(), 0

    async def resolve(host: str) -> list[str]:
        nonlocal lookups
        lookups += 1
        if lookups > 1:
            await never.wait()
        return [host]

    async def script(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        await go_on.wait()
        await upstream.send(ironic_response(message).replace(b"\r\n", b"\r\nConnection: close\r\n", 1))

    gateway, _ = await testbed.gateway_and_backend(script, resolve=resolve, connect=5.0)
    client = await gateway.client()
    async with sending(client, GET + put(100 * MIB), *[bytes(MIB)] * 100) as task:
        await until(lambda: not any(one._reading for one in gateway.worker._clients))
        go_on.set()
        await asyncio.wait({task}, timeout=1)

        assert not task.done()
        assert gateway.worker.context.held_bodies.size < 5 * MIB
    never.set()


async def test_a_deadline_of_one_request_is_not_that_of_the_next(testbed: Testbed) -> None:
    """One request times out, and the next one takes a connection whose time as an idle one ends in the same
    moment."""

    async def script(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            if message.target.endswith("hang"):
                await upstream.ended()
            await upstream.send(ironic_response(message))

    gateway, backend = await testbed.gateway_and_backend(script)
    clients = [await gateway.client() for _ in range(2)]
    for client in clients:
        await client.send(GET)
    for client in clients:
        assert (await client.response()).status == 200
    await clients[0].send(request("POST", "/v1/hang"), request("POST"))
    await backend.received(3)
    (pool,) = gateway.worker.pools.by_key.values()
    idle = set(pool.idle)

    class Ordered(set[BackendConnection]):
        def __iter__(self) -> Iterator[BackendConnection]:
            """The one that times out comes first."""
            return iter(sorted(super().__iter__(), key=lambda one: one in idle))

    pool.connections = Ordered(pool.connections)
    for connection in pool.connections:
        connection.deadline = 0.0

    assert [(await clients[0].response("POST")).status for _ in range(2)] == [504, 200]
