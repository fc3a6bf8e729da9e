"""More request bodies in one moment than the gateway may hold: little is read of those that could only wait.

Nobody is kept from being served by that, nobody has a deadline for what the gateway does not read, and
everything arrives whole.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, final

import pytest

from gateway.dataplane.exchange.stages import AWAITING_RESPONSE, CONNECTING
from gateway.dataplane.http1.request_body import HeldBodies
from gateway.dataplane.sockets.bounded_reads import SMALL_READ_SIZE
from tests.kit.backends import ScriptedBackend, UpstreamConnection, serve
from tests.kit.clients import Client
from tests.kit.messages import KIB, request
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed

TOTAL: Final = 100 * KIB
SIZE: Final = 60 * KIB
NUMBER: Final = 20
AT_MOST: Final = TOTAL + SIZE + NUMBER * SMALL_READ_SIZE
"""Bytes: the total, the body that went beyond it, and a little of each other one."""


def content(number: int, size: int = SIZE) -> bytes:
    """Bytes that are different everywhere, and in each body."""
    return b"".join(b"%d.%d " % (number, position) for position in range(size // 8)).ljust(size)[:size]


def upload(body: bytes, *, chunked: bool = False) -> bytes:
    if not chunked:
        return request("PUT", "/v1/x", body=body)
    chunks = [body[begin : begin + 7000] for begin in range(0, len(body), 7000)]
    data = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return request("PUT", "/v1/x", "Transfer-Encoding: chunked") + data + b"0\r\n\r\n"


@final
class Lookup:
    """Finds the address of the backend. The first `hanging` times only once `go_on` is set: until then such a
    request has no backend connection, as with a backend that does not answer."""

    def __init__(self, hanging: int) -> None:
        self.hanging = hanging
        self.go_on = asyncio.Event()

    async def resolve(self, host: str) -> list[str]:
        if self.hanging:
            self.hanging -= 1
            await self.go_on.wait()
        return [host]


@final
class Burst:
    """Clients that have sent everything in one moment."""

    def __init__(
        self, gateway: Gateway, backend: ScriptedBackend, lookup: Lookup, clients: Sequence[Client]
    ) -> None:
        self.gateway = gateway
        self.backend = backend
        self.lookup = lookup
        self.clients = clients

    @property
    def held(self) -> HeldBodies:
        return self.gateway.worker.context.held_bodies

    async def statuses(self) -> set[int]:
        return {(await client.response("PUT")).status for client in self.clients}


async def send_at_once(gateway: Gateway, parts: Sequence[bytes]) -> list[Client]:
    """The gateway has accepted all connections before anything comes, so it reads from all in one turn."""
    before = len(gateway.worker._clients)
    clients = [await gateway.client() for _ in parts]
    await until(lambda: len(gateway.worker._clients) == before + len(parts))
    for client, data in zip(clients, parts, strict=True):
        client.writer.write(data)
    return clients


@asynccontextmanager
async def burst(testbed: Testbed, **timeouts: float) -> AsyncIterator[Burst]:
    """Each upload is waiting for a connection that does not come. At the end nothing may be held."""
    lookup = Lookup(NUMBER)
    gateway, backend = await testbed.gateway_and_backend(
        serve, limits={"replay_total": TOTAL}, resolve=lookup.resolve, **{"connect": 20.0, **timeouts}
    )
    clients = await send_at_once(gateway, [upload(content(position)) for position in range(NUMBER)])
    await until(lambda: gateway.stages == [CONNECTING] * NUMBER)
    yield Burst(gateway, backend, lookup, clients)
    await until(lambda: not gateway.worker.context.held_bodies.size)


async def test_R_B13_of_a_body_that_could_only_wait_little_is_read(testbed: Testbed) -> None:
    async with burst(testbed) as waiting:
        assert TOTAL < waiting.held.size <= AT_MOST

        waiting.lookup.go_on.set()
        assert await waiting.statuses() == {200}
    bodies = {message.body for message in waiting.backend.requests}
    assert bodies == {content(number) for number in range(NUMBER)}


async def test_R_B13_of_those_that_connect_later_little_is_read_too(testbed: Testbed) -> None:
    async with burst(testbed) as waiting:
        waiting.lookup.hanging = NUMBER
        later = await send_at_once(waiting.gateway, [upload(content(99))] * NUMBER)
        await until(lambda: waiting.gateway.stages == [CONNECTING] * 2 * NUMBER)

        assert waiting.held.size <= AT_MOST + NUMBER * SMALL_READ_SIZE
        waiting.lookup.go_on.set()
        for client in (*waiting.clients, *later):
            assert (await client.response("PUT")).status == 200


async def test_others_are_served_meanwhile(testbed: Testbed) -> None:
    """Heads that take more than one small read, requests that come together, and bodies."""
    long = request("GET", "/v1/nodes", *[f"X-{number}: {'y' * 900}" for number in range(20)])
    async with burst(testbed) as waiting, asyncio.timeout(PATIENCE):
        gateway = waiting.gateway
        known = await gateway.client()
        for client in (known, known, await gateway.client()):
            await client.send(request() + long + upload(content(1)) + request() * 50)
            for method in ("GET", "GET", "PUT", *["GET"] * 50):
                assert (await client.response(method)).status == 200
        assert waiting.held.size > TOTAL
        assert gateway.stages == [CONNECTING] * NUMBER

        waiting.lookup.go_on.set()
        assert await waiting.statuses() == {200}


async def test_no_deadline_runs_for_what_is_not_read(testbed: Testbed) -> None:
    async with burst(testbed) as waiting:
        waiting.gateway.clock.stop()
        waiting.gateway.turn(500.0)
        assert waiting.gateway.stages == [CONNECTING] * NUMBER

        waiting.lookup.go_on.set()
        assert await waiting.statuses() == {200}


async def test_bodies_whose_backend_never_answers_get_a_response(testbed: Testbed) -> None:
    async with burst(testbed, connect=0.5) as waiting:
        assert await waiting.statuses() == {503}
        assert not waiting.backend.connections


async def test_the_end_of_a_clients_side_is_no_end_of_its_request(testbed: Testbed) -> None:
    async with burst(testbed) as waiting:
        for client in waiting.clients:
            client.half_close()

        waiting.lookup.go_on.set()
        assert await waiting.statuses() == {200}
        for client in waiting.clients:
            assert not (await client.ended()).aborted


async def test_what_clients_held_that_have_gone_is_given_back(testbed: Testbed) -> None:
    async with burst(testbed) as waiting:
        for client in waiting.clients:
            client.reset()
        waiting.lookup.go_on.set()
        pools = waiting.gateway.worker.pools.by_key.values()
        await until(lambda: not any(pool._connecting for pool in pools))
        await waiting.gateway.recorded(NUMBER)
        for pool in pools:
            pool.close_idle()
        await waiting.backend.disconnected()


async def test_a_drain_meanwhile_loses_nothing(testbed: Testbed) -> None:
    async with burst(testbed) as waiting, asyncio.timeout(PATIENCE):
        draining = asyncio.get_running_loop().create_task(waiting.gateway.drain(5))
        await until(lambda: waiting.gateway.worker.context.draining)
        waiting.lookup.go_on.set()
        for client in waiting.clients:
            answer = await client.response("PUT")
            assert (answer.status, answer.one("connection")) == (200, "close")
        await draining


async def test_an_end_meanwhile_closes_everything(testbed: Testbed) -> None:
    async with burst(testbed) as waiting, asyncio.timeout(PATIENCE):
        await waiting.gateway.drain(0.1)
        for client in waiting.clients:
            await client.ended()


async def test_all_of_an_upload_with_a_connection_is_read_at_full_size(testbed: Testbed) -> None:
    body = content(7, 300 * KIB)
    async with burst(testbed) as waiting:
        gateway = waiting.gateway
        client = await gateway.client()
        data = upload(body)
        await client.send(data[: 200 * KIB])
        await until(lambda: AWAITING_RESPONSE in gateway.stages)
        running = [one for one in gateway.worker._clients if one.exchange is not None]
        little = [one._reads_little() for one in running if one.exchange.stage is AWAITING_RESPONSE]  # type: ignore[union-attr]
        assert waiting.held.full
        assert little == [False]

        await client.send(data[200 * KIB :])
        assert (await client.response("PUT")).status == 200
        assert waiting.backend.requests[-1].body == body
        waiting.lookup.go_on.set()
        assert await waiting.statuses() == {200}


async def test_once_it_is_over_those_that_connect_are_read_as_before(testbed: Testbed) -> None:
    """And the next time little is read of them as well."""
    async with burst(testbed) as waiting:
        waiting.lookup.go_on.set()
        assert await waiting.statuses() == {200}
        await until(lambda: not waiting.held.was_full)
    gateway, before = waiting.gateway, len(waiting.gateway.worker._clients)
    client = await gateway.client()
    await until(lambda: len(gateway.worker._clients) == before + 1)
    assert sum(one._reads_bounded for one in gateway.worker._clients) == NUMBER

    waiting.lookup.hanging = 10_000
    waiting.lookup.go_on.clear()
    for one in (*waiting.clients, client):
        assert len(one.reader._buffer) == 0  # type: ignore[attr-defined]
    for pool in gateway.worker.pools.by_key.values():
        pool.close_idle()
    for one in (*waiting.clients, client):
        one.writer.write(upload(content(2)))
    await until(lambda: gateway.stages == [CONNECTING] * (NUMBER + 1))
    assert waiting.held.size <= AT_MOST + SMALL_READ_SIZE
    waiting.lookup.go_on.set()
    for one in (*waiting.clients, client):
        assert (await one.response("PUT")).status == 200


@pytest.mark.parametrize("total", [0, 50 * KIB])
async def test_everything_arrives_whole_however_it_was_read(testbed: Testbed, total: int) -> None:
    sizes = [(37 * number * number) % (150 * KIB) + 1 for number in range(60)]
    gateway, backend = await testbed.gateway_and_backend(serve, limits={"replay_total": total})
    parts = [
        upload(content(number, size), chunked=number % 2 == 0) + request() + upload(content(number, 5000))
        for number, size in enumerate(sizes)
    ]
    for client in await send_at_once(gateway, parts):
        for method in ("PUT", "GET", "PUT"):
            assert (await client.response(method)).status == 200

    bodies = sorted(message.body for message in backend.requests if message.method == "PUT")
    numbered = list(enumerate(sizes))
    assert bodies == sorted(content(number, size) for number, s in numbered for size in (s, 5000))
    assert not gateway.worker.context.held_bodies.size


async def test_a_client_that_connects_while_a_small_body_is_held_is_not_hindered(testbed: Testbed) -> None:
    """A body that is held does not stop at a small read: it streams from then on."""
    begun = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        begun.set()
        await upstream.reader.readexactly(SIZE)
        await upstream.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    gateway, _ = await testbed.gateway_and_backend(script, limits={"replay_total": 1000})
    data = upload(content(3))
    client = await gateway.client()
    await client.send(data[: len(data) - SIZE + 900])
    await until(lambda: bool(gateway.stages))
    assert not begun.is_set()
    await client.send(data[len(data) - SIZE + 900 :])

    assert (await client.response("PUT")).status == 204
