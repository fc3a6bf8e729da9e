"""Deadlines of clients and backends: no side runs out of time because the other one is slow."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from gateway.core.fleet.backend import Backend
from tests.dataplane.assertions import assert_ironic_error
from tests.kit.backends import UpstreamConnection, always, never_respond, serve
from tests.kit.ironic import versions
from tests.kit.messages import KIB, request, response
from tests.kit.waiting import until
from tests.kit.workers import Testbed, wait_ticks


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_backend_without_a_head_in_time_is_504_in_the_dialects_shape(
    testbed: Testbed, method: str
) -> None:
    gateway, backend = await testbed.gateway_and_backend(never_respond, backend_head=0.1)
    client = await gateway.client()

    assert_ironic_error(await client.request(request(method)), 504)
    await backend.disconnected()
    assert len(backend.requests) == 1
    assert (await gateway.recorded()).reason == "reply_timeout"


@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked", "X-Until: close"])
async def test_a_backend_that_stalls_in_the_body_ends_both_connections(
    testbed: Testbed, framing: str
) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        begun = b"5\r\nbegun\r\n" if "chunked" in framing else b"begun"
        await upstream.send(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode() + begun)
        await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script, backend_body_idle=0.1)
    client = await gateway.client()
    await client.send(request())

    end = await client.ended()

    assert end.rest.count(b"HTTP/1.1") == 1
    assert end.rest.rstrip(b"\r\n").endswith(b"begun")
    assert (await gateway.recorded()).reason == "reply_stalled"
    await backend.disconnected()


async def test_an_unused_backend_connection_is_closed_in_time(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, backend_idle=0.1)

    assert (await gateway.request(request())).status == 200
    await backend.disconnected()
    await until(lambda: gateway.worker.report().connections == {("baremetal", "api-1"): (0, 0)})
    assert (await gateway.request(request())).status == 200


async def test_an_idle_client_is_closed_quietly(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, client_idle=0.1)
    client = await gateway.client()
    assert (await client.request(request())).status == 200

    assert await client.ended() == (b"", False)


async def test_a_client_that_never_sends_anything_is_closed_quietly(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, client_head=0.1)
    client = await gateway.client()

    assert await client.ended() == (b"", False)


async def test_a_slow_head_on_a_kept_connection_gets_408(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, client_head=0.1)
    client = await gateway.client()
    assert (await client.request(request())).status == 200

    assert (await client.request(b"GET /v1/nod")).status == 408
    assert await client.ended() == (b"", False)


@pytest.mark.parametrize("size", [100, 100 * KIB])
async def test_a_body_that_stops_coming_gets_408(testbed: Testbed, size: int) -> None:
    gateway, backend = await testbed.gateway_and_backend(never_respond, client_body_idle=0.1)
    client = await gateway.client()

    answer = await client.request(request("POST", "/v1/x", f"Content-Length: {size}"), b"x" * (size - 50))

    assert_ironic_error(answer, 408)
    assert answer.one("connection") == "close"
    assert await client.ended() == (b"", False)
    await backend.disconnected()
    assert (await gateway.recorded()).reason == "client_stalled"


async def test_a_slow_client_is_not_taken_for_a_stalled_backend(testbed: Testbed) -> None:
    """The backend is not read while the client takes nothing. The backend has no deadline meanwhile."""
    size = 32 * KIB * KIB
    gateway, _ = await testbed.gateway_and_backend(
        always(response(200, body=b"x" * size)), backend_body_idle=0.4
    )
    client = await gateway.client(small_buffer=16 * KIB)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(request())
    await wait_ticks(gateway)
    assert not gateway.records
    client.reader._transport.resume_reading()  # type: ignore[attr-defined]

    assert len((await client.response()).body) == size


async def test_a_slow_backend_is_not_taken_for_a_stalled_client(testbed: Testbed) -> None:
    """The client is not read while the backend takes nothing. The client has no deadline meanwhile."""
    size = 32 * KIB * KIB
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await go_on.wait()
        left = size
        while left:
            left -= len(await upstream.reader.read(1 << 20))
        await upstream.send(response(200, body=b"all there"))

    gateway, backend = await testbed.gateway_and_backend(
        script, client_body_idle=10.0, backend_write_idle=900.0, backend_head=900.0
    )
    gateway.clock.stop()
    client = await gateway.client()
    sending = asyncio.get_running_loop().create_task(client.send(request("PUT", body=b"x" * size)))
    await backend.received()
    await until(lambda: not any(one._reading for one in gateway.worker._clients))
    gateway.turn(60.0)
    begun = list(gateway.records)
    go_on.set()
    await asyncio.wait([sending])

    assert not begun
    assert (await client.response("PUT")).body == b"all there"


async def test_the_gateways_own_pause_is_not_held_against_a_backend(testbed: Testbed) -> None:
    """The process is stopped for longer than `backend_head`. The response has come meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_once() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                received.set()
                connection.sendall(response(200, body=b"in time"))

        received = threading.Event()
        backend = Backend("raw", "127.0.0.1", listener.getsockname()[1], declared=versions("1.1-1.90"))
        gateway = await testbed.gateway(backend, backend_head=9.0)
        gateway.clock.stop()
        thread = threading.Thread(target=serve_once, daemon=True)
        thread.start()
        client = await gateway.client()
        await client.send(request("POST"))
        await until(received.is_set)
        thread.join()  # the response was sent
        time.sleep(1.2)  # noqa: ASYNC251 - the whole loop stands still, as after SIGSTOP
        gateway.clock.turn(10.0)

        assert (await client.response("POST")).body == b"in time"
