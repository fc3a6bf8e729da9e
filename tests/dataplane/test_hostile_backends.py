"""What backends say that is not one honest reply reaches no client, and their connection is not used again.

Ids are rows B of the list of attacks. Where the reply's head has been sent already, the only honest end is an
abort: never a second head, never a proper end."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import asyncio
import json

import pytest

from tests.dataplane.stand import Client, Hop, House, Script, always, answering, serve, until
from tests.dataplane.wire import HIGHEST, LOWEST, SERVED, chunked, reply, request

KIB = 1024


def then_good(data: bytes, *, close: bool = False) -> Script:
    """The first connection says `data` to its request; every further one is honest."""

    async def script(hop: Hop) -> None:
        if hop.backend.connections > 1:
            await serve(hop)
        await hop.request()
        await hop.say(data)
        if not close:
            await hop.ended()

    return script


async def bad_gateway(
    house: House, data: bytes, *, close: bool = False, status: int = 502, **timeouts: float
) -> None:
    """One refusal in the dialect's shape, the backend's connection is gone, the next request is served."""
    gateway, backend = await house.behind(then_good(data, close=close), **timeouts)
    client = await gateway.client()

    answer = await client.ask(request("POST"))

    assert answer.status == status
    assert answer.one("content-type") == "application/json"
    told = json.loads(json.loads(answer.body)["error_message"])
    assert told["code"] == status
    assert (answer.one(LOWEST), answer.one(HIGHEST)) == ("1.1", "1.90")
    if "connection" in answer.names:
        assert answer.one("connection") == "close"
        client = await gateway.client()
    assert await client.is_open()
    assert backend.connections == 2
    assert (gateway.outcomes[0].status, gateway.outcomes[0].backend) == (status, "none")


async def cut_off(client: Client) -> None:
    """The reply has begun, and then the connection was cut: no second head, no end of the chunks."""
    end = await client.ended()
    assert b"HTTP/1.1" not in end.rest
    assert not end.rest.endswith(b"0\r\n\r\n")
    assert len(end.rest) < 50


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        reply(200, "Content-Length: 100") + b"begun",
        reply(200, "Transfer-Encoding: chunked") + b"5\r\nbegun\r\n",
    ],
)
async def test_B1_a_backend_that_dies_in_the_body_takes_the_client_connection_along(
    house: House, data: bytes, reset: bool
) -> None:
    hops: list[Hop] = []

    async def script(hop: Hop) -> None:
        await hop.request()
        hops.append(hop)
        await hop.say(data)
        await hop.ended()

    gateway, _ = await house.behind(script)
    client = await gateway.client()
    await client.send(request(), request("GET", "/v1/next"))
    await client.reader.readuntil(b"\r\n\r\n")
    assert b"begun" in await client.reader.readuntil(b"begun")
    if reset:
        hops[0].reset()
    else:
        hops[0].writer.close()

    await cut_off(client)
    seen = await gateway.told()
    assert (seen.status, seen.error, seen.backend) == (200, "reply_cut", "api-1")
    assert len(gateway.outcomes) == 1  # the pipelined one was never begun


async def test_B1_where_the_end_of_the_connection_is_the_end_of_the_reply_it_is_reset(house: House) -> None:
    """To a client of HTTP/1.0 a FIN would say: that was all of it."""

    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(reply(200, "Transfer-Encoding: chunked") + b"5\r\nbegun\r\n")
        hop.reset()

    gateway, _ = await house.behind(script)
    client = await gateway.client()
    await client.send(request(http="1.0"))

    assert (await client.ended()).aborted


@pytest.mark.parametrize(
    "data", [b"", b"HT", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\n"]
)
async def test_B2_a_backend_that_closes_before_a_whole_head(house: House, data: bytes) -> None:
    await bad_gateway(house, data, close=True)


async def test_B4_interim_replies_without_end(house: House) -> None:
    await bad_gateway(house, b"HTTP/1.1 102 Processing\r\n\r\n" * 17)


async def test_B4_interim_replies_without_end_one_by_one(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        while True:
            await hop.say(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request("POST"))
    answer = await client.reply()
    while answer.status < 200:
        answer = await client.reply()

    assert answer.status == 502
    await backend.gone()


@pytest.mark.parametrize(
    "data",
    [
        reply(200, body=b"ok") + b"more than said",
        reply(200, body=b"ok") + reply(200, "X-Second: 1", body=b"second"),
        reply(200, "Transfer-Encoding: chunked")
        + chunked(b"o", b"k")
        + reply(200, "X-Second: 1", body=b"second"),
        reply(200, body=b"ok") + b"\r\n",
    ],
)
async def test_B5_what_follows_a_reply_is_nobodys(house: House, data: bytes) -> None:
    gateway, backend = await house.behind(then_good(data))
    client, other = await gateway.client(), await gateway.client()

    assert (await client.ask(request())).body == b"ok"
    for each in (client, other, client):
        assert (await each.ask(request())).body == b'{"nodes": []}'
    assert backend.connections == 2


async def test_B5_what_an_idle_connection_says_is_nobodys(house: House) -> None:
    hops: list[Hop] = []

    async def script(hop: Hop) -> None:
        hops.append(hop)
        await serve(hop)

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    assert (await client.ask(request())).status == 200
    await hops[0].say(reply(200, "X-Poison: 1", body=b"poison"))
    await until(lambda: gateway.worker.connections()["baremetal", "api-1"] == (0, 0))

    assert (await client.ask(request())).body == b'{"nodes": []}'
    assert backend.connections == 2


async def test_B6_a_length_and_a_coding(house: House) -> None:
    await bad_gateway(
        house, reply(200, "Content-Length: 5", "Transfer-Encoding: chunked") + chunked(b"hello")
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5, 6",),
        ("Content-Length: -5",),
        ("Content-Length: 0x5",),
        ("Content-Length: " + "9" * 30,),
        ("Content-Length:",),
    ],
)
async def test_B7_lengths_that_are_not_one_number(house: House, lines: tuple[str, ...]) -> None:
    await bad_gateway(house, reply(200, *lines) + b"hello")


@pytest.mark.parametrize(
    "lines",
    [
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked, chunked",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding:",),
    ],
)
async def test_B8_codings_that_are_not_chunked(house: House, lines: tuple[str, ...]) -> None:
    await bad_gateway(house, reply(200, *lines) + chunked(b"hello"))


@pytest.mark.parametrize(
    "body", [b"5\nhello\n0\n\n", b"5\r\nhello\n0\r\n\r\n", b"x\r\n", b"5;\n\r\nhello\r\n0\r\n\r\n"]
)
async def test_B9_chunks_that_are_none(house: House, body: bytes) -> None:
    """In one piece with the head there is still time for a 502; later, an abort."""
    gateway, backend = await house.behind(then_good(reply(200, "Transfer-Encoding: chunked") + body))
    client = await gateway.client()
    await client.send(request("POST"))

    end_or_reply = await client.reader.readuntil(b"\r\n\r\n")

    if b" 502 " not in end_or_reply.splitlines()[0]:
        await cut_off(client)
    await until(lambda: bool(gateway.outcomes))
    assert gateway.outcomes[0].error in ("bad_reply", "reply_cut")
    assert (await gateway.ask(request())).status == 200
    assert backend.connections == 2


async def test_B9_chunks_that_break_later(house: House) -> None:
    hops: list[Hop] = []

    async def script(hop: Hop) -> None:
        await hop.request()
        hops.append(hop)
        await hop.say(reply(200, "Transfer-Encoding: chunked") + b"5\r\nhello\r\n")
        await hop.ended()

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request())
    await client.reader.readuntil(b"5\r\nhello\r\n")
    await hops[0].say(b"5\nhello\n0\n\n")

    await cut_off(client)
    await backend.gone()


@pytest.mark.parametrize(
    "data, close",
    [
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", True),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok", False),
        (b"HTTP/1.1 200 OK\r\nX: y\nContent-Length: 2\r\n\r\nok", False),
        (b"HTTP/1.1 200 OK\r\nX: y\rz\r\nContent-Length: 2\r\n\r\nok", False),
    ],
)
async def test_B10_head_lines_that_end_in_something_else(house: House, data: bytes, close: bool) -> None:
    await bad_gateway(house, data, close=close)


@pytest.mark.parametrize("byte", ["\x00", "\x01", "\x7f", "\x1b"])
async def test_B11_control_bytes_in_a_value(house: House, byte: str) -> None:
    await bad_gateway(house, reply(200, f"X: a{byte}b", body=b"ok"))


@pytest.mark.parametrize("fold", [" ", "\t"])
async def test_B12_folded_lines(house: House, fold: str) -> None:
    await bad_gateway(house, reply(200, "X: a", f"{fold}b", body=b"ok"))


@pytest.mark.parametrize("line", ["X : a", ": a", "no colon", "X-\xe4: a", "X Y: a"])
async def test_B12_lines_that_are_no_fields(house: House, line: str) -> None:
    await bad_gateway(house, reply(200, line, body=b"ok"))


async def test_B13_trailers_are_dropped(house: House) -> None:
    said = reply(200, "Transfer-Encoding: chunked", "Trailer: Set-Cookie")
    trailers = b"2\r\nok\r\n0\r\nSet-Cookie: a=b\r\nContent-Length: 7\r\n\r\n"
    gateway, backend = await house.behind(always(said + trailers))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.ask(request())  # the reader here takes no trailer
        assert answer.body == b"ok"
        assert not {"set-cookie", "trailer"} & answer.names
    assert backend.connections == 1


@pytest.mark.parametrize("line", [b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 Not Modified"])
async def test_B14_bodies_where_none_may_be(house: House, line: bytes) -> None:
    gateway, backend = await house.behind(then_good(line + b"\r\nContent-Length: 4\r\n\r\nbody"))
    client = await gateway.client()

    assert (await client.ask(request())).head.startswith(line)
    assert await client.is_open()
    assert backend.connections == 2


@pytest.mark.parametrize(
    "line",
    [
        "HTTP/1.1 099 Low",
        "HTTP/1.1 999 High",
        "HTTP/1.1 9999 Higher",
        "HTTP/1.1 20 Short",
        "HTTP/1.1 -200 OK",
        "HTTP/1.1 2xx OK",
        "HTTP/2.0 200 OK",
        "HTTP/1.2 200 OK",
        "HTTP/0.9 200 OK",
        "ICY 200 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1\t200 OK",
        "HTTP/1.1 200 O\x00K",
        "HTTP/1.1 200 O\x1bK",
        "<html>hello</html>",
        "\xff\xfe",
    ],
)
async def test_B15_status_lines(house: House, line: str) -> None:
    await bad_gateway(house, f"{line}\r\nContent-Length: 2\r\n\r\nok".encode("latin-1"))


async def test_B15_a_status_line_without_a_reason_is_one(house: House) -> None:
    gateway, _ = await house.behind(always(b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok"))

    assert (await gateway.ask(request())).status == 200


@pytest.mark.parametrize(
    "data",
    [
        reply(200, f"X: {'a' * 65 * KIB}", body=b"ok"),
        reply(200, *(f"X-{number}: a" for number in range(2000)), body=b"ok"),
        reply(200, *(f"X-{number}: a" for number in range(201)), body=b"ok"),
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100 * KIB,
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 20000,
    ],
    ids=["long", "many", "just too many", "endless line", "endless lines"],
)
async def test_B16_heads_that_are_too_large(house: House, data: bytes) -> None:
    await bad_gateway(house, data)


async def test_B17_a_head_that_drips_has_a_deadline_in_all(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(b"HTTP/1.1 200 OK\r\nX: ")
        while not hop.reader.at_eof():
            await hop.say(b"a")
            await asyncio.sleep(0.02)  # the attack itself

    gateway, backend = await house.behind(script, backend_head=0.1)

    answer = await gateway.ask(request("POST"))

    assert answer.status == 504
    await backend.gone()


@pytest.mark.parametrize("close", [False, True])
async def test_B18_a_refusal_before_the_upload_has_ended_is_relayed(house: House, close: bool) -> None:
    async def script(hop: Hop) -> None:
        await hop.head()
        line = "Connection: close" if close else "X-Stays: yes"
        await hop.say(reply(413, line, body=b"too much", reason="Too Large"))
        if not close:
            await hop.ended()

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    client.writer.write(request("PUT", "/v1/x", f"Content-Length: {2000 * KIB}") + b"x" * 100 * KIB)

    answer = await client.reply("PUT")

    assert (answer.status, answer.body, answer.one("connection")) == (413, b"too much", "close")
    await backend.gone()
    assert gateway.outcomes[0].status == 413


async def test_B18_a_client_that_reads_only_after_its_upload_finds_the_refusal(house: House) -> None:
    """As blocking clients do: everything is sent (or fails to be), then the reply is read."""

    async def script(hop: Hop) -> None:
        await hop.head()
        await hop.say(reply(413, body=b"too much", reason="Too Large"))
        await hop.ended()

    gateway, _ = await house.behind(script)
    client = await gateway.client()
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    client.writer.write(request("PUT", "/v1/x", f"Content-Length: {300 * KIB}") + b"x" * 300 * KIB)
    await gateway.told()
    client.reader._transport.resume_reading()  # type: ignore[attr-defined]

    assert (await client.reply("PUT")).status == 413


async def test_B20_what_a_backend_lists_in_connection_is_removed(house: House) -> None:
    lines = (
        "Connection: X-One, X-Two",
        "connection: x-three",
        "X-One: 1",
        "X-TWO: 2",
        "x-three: 3",
        "X-Four: 4",
    )
    gateway, backend = await house.behind(always(reply(200, *lines, body=b"ok")))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.ask(request())
        assert not {"connection", "x-one", "x-two", "x-three"} & answer.names
        assert (answer.one("x-four"), answer.body) == ("4", b"ok")
    assert backend.connections == 1


@pytest.mark.parametrize(
    "text", ["1.50\tX", "1.50, 1.51", "abc", "1.050", "+1.5", "1.5\xa0", "999999999.1", "", "1.50\xff"]
)
async def test_V8_what_a_backend_says_is_told_only_if_it_is_a_version(house: House, text: str) -> None:
    said = reply(200, f"{SERVED}: {text}", f"{LOWEST}: 1.1", f"{HIGHEST}: {text}", body=b"ok")
    gateway, _ = await house.behind(always(said))

    answer = await gateway.ask(request())

    assert answer.status == 200
    assert (answer.every(SERVED), answer.one(HIGHEST)) == ([], "1.90")


async def test_V8_two_served_versions_are_none(house: House) -> None:
    said = reply(200, f"{SERVED}: 1.5", f"{SERVED}: 1.6", body=b"ok")
    gateway, _ = await house.behind(always(said))

    assert (await gateway.ask(request())).every(SERVED) == []


async def test_a_connection_that_ended_with_its_reply_is_no_failure(house: House) -> None:
    gateway, backend = await house.behind(answering(reply(200, body=b"ok")))
    client = await gateway.client()

    for number in range(1, 4):
        assert (await client.ask(request())).status == 200
        await backend.gone()
        await until(lambda: gateway.worker.connections()["baremetal", "api-1"] == (0, 0))
        assert backend.connections == number
