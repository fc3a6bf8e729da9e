"""Pipelined requests: each one gets its response, also when the client closes its side, and few of them wait.

A client that sends on and on costs no more memory than one that waits for its responses.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress

import pytest

from gateway.core.fleet.service import Match
from gateway.dataplane.edge.client_connection import MAX_PIPELINED
from tests.kit.backends import UpstreamConnection, always, serve
from tests.kit.clients import Client
from tests.kit.messages import KIB, request, response
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Testbed

MIB = KIB * KIB
ONE_READ = 256 * KIB
"""The most that an event loop reads at a time."""


async def echo(upstream: UpstreamConnection) -> None:
    """Respond with the target and the body of the request."""
    while True:
        message = await upstream.request()
        content = f"{message.target}={len(message.body)}".encode()
        await upstream.send(response(200, body=b"" if message.method == "HEAD" else content))


# --- the client closes its side ----------------------------------------------------------------------------


async def test_R_B6_three_pipelined_requests_and_fin_get_three_responses(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(echo)
    client = await gateway.client()
    client.writer.write(b"".join(request("GET", f"/v1/{number}") for number in range(3)))
    client.half_close()

    answers = [await client.response() for _ in range(3)]

    assert [answer.body for answer in answers] == [b"/v1/0=0", b"/v1/1=0", b"/v1/2=0"]
    assert [answer.every("connection") for answer in answers[:2]] == [[], []]
    assert await client.ended() == (b"", False)
    assert len(backend.requests) == 3


async def test_R_B6_the_same_when_fin_comes_while_the_first_is_served(testbed: Testbed) -> None:
    """Requests with and without a body."""
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        upstream.backend.record_request(await upstream.head())
        await go_on.wait()
        await upstream.send(response(200, body=b"first"))
        await echo(upstream)

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(
        request(),
        request("POST", "/v1/post", body=b"x" * 10 * KIB),
        request("HEAD", "/v1/head"),
        request("PUT", "/v1/put", "Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n",
    )
    await backend.received()
    client.half_close()
    await some_turns()
    go_on.set()

    assert (await client.response()).body == b"first"
    assert (await client.response()).body == b"/v1/post=10240"
    assert (await client.response("HEAD")).status == 200
    assert (await client.response()).body == b"/v1/put=5"
    assert await client.ended() == (b"", False)


async def test_R_B6_a_response_is_delivered_when_fin_comes_in_the_same_turn(testbed: Testbed) -> None:
    """The response waits for the end of the turn in which it came, and the end of the client comes before."""

    async def script(upstream: UpstreamConnection) -> None:
        upstream.backend.record_request(await upstream.head())
        upstream.writer.write(response(200, body=b"whole"))  # in one step with the next line
        client.half_close()

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request())

    assert (await client.response()).body == b"whole"
    assert await client.ended() == (b"", False)


async def some_turns() -> None:
    """Let the gateway read what has arrived, the FIN too."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_R_B6_slowly_read_responses_are_all_delivered_after_fin(testbed: Testbed) -> None:
    size = 300 * KIB
    gateway, _ = await testbed.gateway_and_backend(always(response(200, body=b"x" * size)))
    client = await gateway.client(small_buffer=16 * KIB)
    client.writer.write(request() * 3)
    client.half_close()

    for _ in range(3):
        assert len((await client.response()).body) == size
    assert await client.ended() == (b"", False)


async def test_R_B6_an_incomplete_request_before_fin_is_dropped_and_those_before_it_are_served(
    testbed: Testbed,
) -> None:
    gateway, backend = await testbed.gateway_and_backend(echo)
    for begun in (b"GET /v1/no", request("POST", "/v1/x", "Content-Length: 9") + b"x"):
        backend.requests.clear()
        client = await gateway.client()
        client.writer.write(request("GET", "/v1/0") + request("GET", "/v1/1") + begun)
        client.half_close()

        assert (await client.response()).body == b"/v1/0=0"
        assert (await client.response()).body == b"/v1/1=0"
        assert not (await client.ended()).aborted
        assert len(backend.requests) == 2


async def test_a_request_with_a_body_and_fin_gets_its_response(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(echo)
    for size in (10, 300 * KIB):
        client = await gateway.client()
        client.writer.write(request("POST", "/v1/x", body=b"x" * size))
        client.half_close()

        assert (await client.response()).body == b"/v1/x=%d" % size
        assert await client.ended() == (b"", False)


async def test_a_fin_between_two_requests_closes_the_connection(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    assert (await client.request(request())).status == 200
    client.half_close()

    assert await client.ended() == (b"", False)
    await until(lambda: not gateway.worker._clients)


@pytest.mark.parametrize("size", [2, 4096], ids=["few", "more-than-is-read"])
async def test_requests_behind_the_last_one_do_not_reset_its_response(testbed: Testbed, size: int) -> None:
    """The gateway drains, so it answers only the first one. If it closed while others are unread, the client
    would lose what it has not read of that response."""
    gateway, backend = await testbed.gateway_and_backend(always(response(200, body=b"x" * 8 * MIB)))
    client = await gateway.client(small_buffer=16 * KIB)
    gateway.worker.context.draining = True
    client.writer.write(request() + request("GET", "/v1/x", f"X-Long: {'y' * 1000}") * size)

    answer = await client.response()

    assert len(answer.body) == 8 * MIB
    assert answer.every("connection") == ["close"]
    assert await client.ended() == (b"", False)
    assert len(backend.requests) == 1


# --- what waits is bounded ---------------------------------------------------------------------------------


async def send_on(client: Client, data: bytes) -> None:
    """Send the same bytes for ever."""
    with suppress(ConnectionError):
        while True:
            await client.send(data)


async def read_on(client: Client) -> None:
    """Read whatever comes."""
    with suppress(ConnectionError):
        while await client.reader.read(MIB):
            pass


@pytest.mark.parametrize("reads", [True, False])
async def test_R_B4_pipelined_requests_wait_in_a_bounded_buffer(testbed: Testbed, reads: bool) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(response(200, body=b"x" * 100)))
    client = await gateway.client(small_buffer=0 if reads else 16 * KIB)
    assert (await client.request(request())).status == 200
    loop = asyncio.get_running_loop()
    data = request("GET", "/v1/x", f"X-Long: {'y' * 1000}")
    tasks = [loop.create_task(send_on(client, data * 1000))]
    if reads:
        tasks.append(loop.create_task(read_on(client)))
    else:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]

    (connection,) = gateway.worker._clients
    most = 0
    async with asyncio.timeout(PATIENCE):
        while len(gateway.records) * len(data) < 3 * MAX_PIPELINED:
            most = max(most, len(connection._buffer))
            await asyncio.sleep(0)

    assert most <= MAX_PIPELINED + ONE_READ + len(data)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_R_B4_what_waits_behind_an_unread_response_is_bounded_too(testbed: Testbed) -> None:
    """No request is in flight: the response to the last one waits until the client reads."""
    gateway, _ = await testbed.gateway_and_backend(always(response(200, body=b"x" * 50_000)))
    client = await gateway.client(small_buffer=16 * KIB)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: bool(gateway.worker._clients))
    (connection,) = gateway.worker._clients
    sock = connection.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
    await client.send(request(), request())
    await gateway.recorded(2)
    await until(lambda: connection.congested)
    data = request("GET", "/v1/x", f"X-Long: {'y' * 1000}")
    sending = asyncio.get_running_loop().create_task(send_on(client, data * 1000))
    stopped = False
    while not stopped:  # until the gateway has not read for a moment
        before = len(connection._buffer)
        await asyncio.wait([sending], timeout=0.15)
        stopped = len(connection._buffer) == before
        assert before <= MAX_PIPELINED + ONE_READ + len(data)

    assert len(connection._buffer) > 0
    sending.cancel()
    await asyncio.wait([sending])


@pytest.mark.load
async def test_pipelined_heads_cost_the_same_however_many_wait(testbed: Testbed) -> None:
    """No head is looked for in all that waits behind it. What is left is copied for each, which is much
    less. It measures, so nothing else runs beside it."""
    gateway, _ = await testbed.gateway_and_backend(serve, match=Match(path="/elsewhere"))
    head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

    async def cost(number: int) -> float:
        client = await gateway.client()
        await until(lambda: len(gateway.worker._room.unproven) == 1)
        (connection,) = gateway.worker._room.unproven
        began = time.process_time()
        connection.data_received(head * number)
        seconds = time.process_time() - began
        client.writer.transport.abort()
        return seconds / number

    few = min([await cost(500) for _ in range(5)])
    many = min([await cost(4000) for _ in range(5)])
    assert many < 2.5 * few
