"""Clients that send slowly, and many that only connect: neither costs another client its connection.

A request must bring `limits.min_rate` on average, once its time of grace is over. When no more connections
are allowed, one that has not brought a whole request head yields, the oldest first; an established one never
does.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from gateway.dataplane.exchange.stages import Stage
from gateway.dataplane.sockets.progress import MIN_RATE_GRACE
from tests.dataplane.assertions import assert_ironic_error
from tests.kit.backends import UpstreamConnection, serve
from tests.kit.clients import Client
from tests.kit.messages import KIB, request, response
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed

GRACE: Final = MIN_RATE_GRACE
RATE: Final = {"min_rate": 1000}
PATIENT: Final = {"client_head": 900.0, "client_body_idle": 900.0, "client_idle": 900.0}
"""No other time-out ends a slow request here."""


async def slow_client(gateway: Gateway) -> Client:
    """A client of a gateway whose clock only the test turns."""
    gateway.clock.stop()
    gateway.turn(0)
    return await gateway.client()


# --- a minimum rate ----------------------------------------------------------------------------------------

CHUNKED = request("POST", "/v1/x", "Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    "begin, byte",
    [
        (request("POST", "/v1/x", "Content-Length: 60000"), b"x"),
        (request("POST", "/v1/x", "Content-Length: 900000"), b"x"),
        (CHUNKED + b"ea60\r\n", b"x"),
        (CHUNKED + b"5;name=", b"x"),
        (CHUNKED + b"5\r\nhello\r\n0\r\nX-Trailer: ", b"x"),
        (request("POST", "/v1/x", "Expect: 100-continue", "Content-Length: 60000"), b"x"),
    ],
    ids=["held", "streamed", "chunk", "chunk extension", "trailer", "after 100"],
)
async def test_R_B4_a_body_that_comes_too_slowly_is_408(testbed: Testbed, begin: bytes, byte: bytes) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, limits=RATE, **PATIENT)
    client = await slow_client(gateway)
    await client.send(begin)
    if b"Expect" in begin:
        assert (await client.response("POST")).status == 100
    # While a connection is made, the gateway does not read, and the time does not count.
    await until(lambda: gateway.stages in ([Stage.READING_BODY], [Stage.AWAITING_RESPONSE]))
    gateway.turn(GRACE - 1)
    assert not gateway.records
    before = gateway.read_so_far
    await client.send(byte)
    await gateway.has_read(before + 1)
    gateway.turn(1)
    answer = await client.response("POST")

    assert_ironic_error(answer, 408)
    assert answer.one("connection") == "close"
    assert (await gateway.recorded()).reason == "client_stalled"
    assert not backend.requests


@pytest.mark.parametrize("kept", [False, True])
async def test_R_B4_a_head_that_comes_too_slowly_is_408(testbed: Testbed, kept: bool) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits=RATE, **PATIENT)
    client = await slow_client(gateway)
    if kept:
        assert (await client.request(request())).status == 200
    begin = b"GET /v1/nodes HTTP/1.1\r\nHost: x\r\nX-Slow: "
    await client.send(begin)
    await gateway.has_read(len(begin))
    gateway.turn(GRACE - 1)
    await client.send(b"x")
    await gateway.has_read(len(begin) + 1)
    gateway.turn(1)

    assert (await client.response()).status == 408


async def test_R_B4_after_the_response_has_begun_both_connections_are_closed(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(response(200, "Content-Length: 10") + b"begun")
        await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script, limits=RATE, **PATIENT)
    client = await slow_client(gateway)
    await client.send(request("POST", "/v1/x", "Content-Length: 900000"))
    await client.reader.readuntil(b"begun")
    gateway.turn(GRACE)
    assert (await client.ended()).rest == b""
    await backend.disconnected()

    assert (await gateway.recorded()).reason == "client_stalled"


async def test_a_body_above_the_minimum_rate_may_take_its_time(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, limits=RATE, **PATIENT)
    client = await slow_client(gateway)
    pieces = 25
    await client.send(request("POST", "/v1/x", f"Content-Length: {pieces * 2000}"))
    for number in range(pieces):
        await until(lambda: gateway.stages != [])
        gateway.turn(1)  # 2 kB/s
        await client.send(b"x" * 2000)
        if number < pieces - 1:
            await gateway.has_read((number + 1) * 2000)

    assert (await client.response("POST")).status == 200
    assert len(backend.only_request.body) == pieces * 2000


async def test_the_rate_is_an_average_so_a_pause_after_much_is_no_fault(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits=RATE, **PATIENT)
    client = await slow_client(gateway)
    await client.send(request("POST", "/v1/x", "Content-Length: 50010"), b"x" * 50_000)
    await gateway.has_read(50_000)
    gateway.turn(4 * GRACE)
    await client.send(b"x" * 10)

    assert (await client.response("POST")).status == 200


async def test_a_rate_of_0_is_no_minimum(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"min_rate": 0}, **PATIENT)
    client = await slow_client(gateway)
    await client.send(request("POST", "/v1/x", "Content-Length: 1000"), b"x")
    await gateway.has_read(1)
    gateway.turn(10 * GRACE)
    assert not gateway.records
    await client.send(b"x" * 999)

    assert (await client.response("POST")).status == 200


async def test_the_time_between_two_requests_does_not_count(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"min_rate": 100_000}, **PATIENT)
    client = await slow_client(gateway)
    for _ in range(2):
        gateway.turn(2 * GRACE)
        await client.send(request("POST", "/v1/x", "Content-Length: 10"), b"x")
        await gateway.has_read(1)
        gateway.turn(GRACE / 2)
        await client.send(b"x" * 9)
        assert (await client.response("POST")).status == 200


async def test_the_time_in_which_the_gateway_does_not_read_does_not_count(testbed: Testbed) -> None:
    """The backend takes nothing for a while, so the gateway does not read from the client."""
    size = 16 * KIB * KIB
    takes_again = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        upstream.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await takes_again.wait()
        upstream.reader._transport.resume_reading()  # type: ignore[attr-defined]
        left = size
        while left:
            left -= len(await upstream.reader.read(1 << 20))
        await upstream.send(response(200, body=b"all there"))

    more = PATIENT | {"backend_write_idle": 900.0, "backend_head": 900.0}
    gateway, _ = await testbed.gateway_and_backend(script, limits={"min_rate": 10_000_000}, **more)
    client = await slow_client(gateway)
    sending = asyncio.get_running_loop().create_task(client.send(request("PUT", body=b"x" * size)))
    await until(lambda: bool(gateway.stages) and not any(one._reading for one in gateway.worker._clients))
    gateway.turn(5 * GRACE)
    takes_again.set()

    assert (await client.response("PUT")).body == b"all there"
    await sending


# --- no room -----------------------------------------------------------------------------------------------


async def newcomer(gateway: Gateway) -> Client:
    """A client that has sent the begin of a head, and sends no more."""
    before = set(gateway.worker._clients)
    client = await gateway.client()
    await client.send(b"GET /v1/nodes HTT")
    await until(lambda: bool(gateway.worker._clients - before) or client.reader.at_eof())
    return client


async def established(gateway: Gateway) -> Client:
    client = await gateway.client()
    assert (await client.request(request())).status == 200
    return client


def is_closed(client: Client) -> bool:
    """Whether the gateway has closed this connection."""
    return client.reader.at_eof() or client.reader.exception() is not None


async def test_R_B4_newcomers_yield_to_each_other_and_never_take_an_established_client(
    testbed: Testbed,
) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"connections": 4})
    clients = [await established(gateway) for _ in range(2)]
    newcomers = [await newcomer(gateway) for _ in range(6)]

    for client in clients:
        assert await client.is_open()
    await until(lambda: [is_closed(client) for client in newcomers] == [True] * 4 + [False] * 2)
    assert (await gateway.request(request())).status == 200
    assert gateway.metric("skewgate_client_errors_total", reason="too_many_connections") == 5


async def test_R_B4_without_an_unproven_connection_the_newcomer_is_closed(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"connections": 2})
    clients = [await established(gateway) for _ in range(2)]

    late = await gateway.client()
    await until(lambda: is_closed(late))
    for client in clients:
        assert await client.is_open()


async def test_R_B4_a_flood_of_half_heads_costs_established_clients_no_request(testbed: Testbed) -> None:
    most = 20
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"connections": most})
    clients = [await established(gateway) for _ in range(10)]

    for _ in range(4):
        for _ in range(10):
            await newcomer(gateway)
        await asyncio.gather(*(gateway.client() for _ in range(40)))  # these come in one turn of the loop
        for client in clients:
            assert await client.is_open()
        await until(lambda: len(gateway.worker._clients) == most)


async def test_a_request_in_flight_is_never_closed_for_a_newcomer(testbed: Testbed) -> None:
    """Also the first one of its connection: it has a whole head."""
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await go_on.wait()
        await upstream.send(response(200, body=b"served"))

    gateway, backend = await testbed.gateway_and_backend(script, limits={"connections": 2})
    clients = [await gateway.client() for _ in range(2)]
    for client in clients:
        await client.send(request())
    await backend.received(2)

    late = await gateway.client()
    await until(lambda: is_closed(late))
    go_on.set()
    for client in clients:
        assert (await client.response()).body == b"served"


async def test_a_silent_connection_yields_to_a_newcomer(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"connections": 2})
    client = await established(gateway)
    silent = await gateway.client()
    await until(lambda: len(gateway.worker._clients) == 2)

    assert (await gateway.request(request())).status == 200
    await until(lambda: is_closed(silent))
    assert await client.is_open()
