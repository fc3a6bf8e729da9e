"""Whoever is too slow is told so or cut, and nobody is blamed for another's slowness."""

from __future__ import annotations

import asyncio

import pytest

from tests.dataplane.stand import (
    Hop,
    House,
    always,
    serve,
    until,
)
from tests.dataplane.troubles import KIB, clock, hold, told_as_ironic
from tests.dataplane.wire import reply, request


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_backend_without_a_head_in_time_is_504_in_the_dialects_shape(
    house: House, method: str
) -> None:
    gateway, backend = await house.behind(hold, backend_head=0.1)
    client = await gateway.client()

    told_as_ironic(await client.ask(request(method)), 504)
    await backend.gone()
    assert len(backend.requests) == 1
    assert (await gateway.told()).error == "reply_timeout"


@pytest.mark.parametrize("framing", ["Content-Length: 100", "Transfer-Encoding: chunked", "X-Until: close"])
async def test_a_backend_that_stalls_in_the_body_is_cut_and_so_is_the_client(
    house: House, framing: str
) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        begun = b"5\r\nbegun\r\n" if "chunked" in framing else b"begun"
        await hop.say(f"HTTP/1.1 200 OK\r\n{framing}\r\n\r\n".encode() + begun)
        await hop.ended()

    gateway, backend = await house.behind(script, backend_body_idle=0.1)
    client = await gateway.client()
    await client.send(request())

    end = await client.ended()

    assert end.rest.count(b"HTTP/1.1") == 1
    assert end.rest.rstrip(b"\r\n").endswith(b"begun")
    assert (await gateway.told()).error == "reply_stalled"
    await backend.gone()


async def test_an_unused_backend_connection_is_closed_in_time(house: House) -> None:
    gateway, backend = await house.behind(serve, backend_idle=0.1)

    assert (await gateway.ask(request())).status == 200
    await backend.gone()
    await until(lambda: gateway.worker.connections() == {("baremetal", "api-1"): (0, 0)})
    assert (await gateway.ask(request())).status == 200


async def test_an_idle_client_is_closed_quietly(house: House) -> None:
    gateway, _ = await house.behind(serve, client_idle=0.1)
    client = await gateway.client()
    assert (await client.ask(request())).status == 200

    assert await client.ended() == (b"", False)


async def test_a_client_that_never_says_anything_is_closed_quietly(house: House) -> None:
    gateway, _ = await house.behind(serve, client_head=0.1)
    client = await gateway.client()

    assert await client.ended() == (b"", False)


async def test_a_slow_head_on_a_kept_connection_gets_408(house: House) -> None:
    gateway, _ = await house.behind(serve, client_head=0.1)
    client = await gateway.client()
    assert (await client.ask(request())).status == 200

    assert (await client.ask(b"GET /v1/nod")).status == 408
    assert await client.ended() == (b"", False)


@pytest.mark.parametrize("size", [100, 100 * KIB])
async def test_a_body_that_stops_coming_gets_408(house: House, size: int) -> None:
    gateway, backend = await house.behind(hold, client_body_idle=0.1)
    client = await gateway.client()

    answer = await client.ask(request("POST", "/v1/x", f"Content-Length: {size}"), b"x" * (size - 50))

    told_as_ironic(answer, 408)
    assert answer.one("connection") == "close"
    assert await client.ended() == (b"", False)
    await backend.gone()
    assert (await gateway.told()).error == "client_stalled"


async def test_a_slow_client_is_no_stalled_backend(house: House) -> None:
    """The backend is not read while the client takes nothing: that is not the backend's silence."""
    size = 32 * KIB * KIB
    gateway, _ = await house.behind(always(reply(200, body=b"x" * size)), backend_body_idle=0.1)
    client = await gateway.client(small_buffer=16 * KIB)
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await client.send(request())
    await clock(gateway)
    assert not gateway.outcomes
    client.reader._transport.resume_reading()  # type: ignore[attr-defined]

    assert len((await client.reply()).body) == size


async def test_a_slow_backend_is_no_stalled_client(house: House) -> None:
    """The client is not read while the backend takes nothing: that is not the client's silence."""
    size = 32 * KIB * KIB
    go_on = asyncio.Event()

    async def script(hop: Hop) -> None:
        await hop.head()
        await go_on.wait()
        left = size
        while left:
            left -= len(await hop.reader.read(1 << 20))
        await hop.say(reply(200, body=b"all there"))

    gateway, backend = await house.behind(script, client_body_idle=0.1)
    client = await gateway.client()
    sending = asyncio.get_running_loop().create_task(client.send(request("PUT", body=b"x" * size)))
    await backend.came()
    await clock(gateway)
    begun = list(gateway.outcomes)
    go_on.set()
    await asyncio.wait([sending])

    assert not begun
    assert (await client.reply("PUT")).body == b"all there"
