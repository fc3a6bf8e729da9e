"""Heads, request lines, hosts, targets, pipelining, sizes: what is not HTTP/1.1 is refused (S10 to S19)."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import pytest

from tests.dataplane.attacks import SMUGGLED, drip, head, refused
from tests.dataplane.stand import Hop, House, serve
from tests.dataplane.wire import SERVED, asks, reply, request


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v1 HTTP/1.1\nHost: api.example\n\n",
        b"GET /v1 HTTP/1.1\r\nHost: api.example\nX: y\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: api.example\rX: y\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: api.example\r\r\nX: y\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\r\nHost: api.example\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: api.example\r\nX: a\x00b\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: api.example\r\nX: a\x01b\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: api.example\r\nX: a\x7fb\r\n\r\n",
        b"GET /v1 HTTP/1.1\r\nHost: api.example\r\nX\x00: ab\r\n\r\n",
        b"\x00GET /v1 HTTP/1.1\r\nHost: api.example\r\n\r\n",
    ],
)
async def test_S10_line_ends_and_control_bytes(house: House, data: bytes) -> None:
    await refused(house, data)


@pytest.mark.parametrize(
    "data",
    [
        head("X: a", " folded"),
        head("X: a", "\tfolded"),
        head(" X: a"),
        b"GET /v1 HTTP/1.1\r\n Host: api.example\r\n\r\n",
        b" GET /v1 HTTP/1.1\r\nHost: api.example\r\n\r\n",
        b"\r\n\r\n\r\nGET /v1 HTTP/1.1\r\nHost: api.example\r\n\r\n",
        b"\n" + head(),
    ],
)
async def test_S11_folded_lines_and_leading_blanks(house: House, data: bytes) -> None:
    await refused(house, data)


async def test_S11_one_empty_line_before_a_request_is_forgiven(house: House) -> None:
    gateway, _ = await house.behind(serve)
    client = await gateway.client()

    for _ in range(2):
        assert (await client.ask(b"\r\n" + request(), method="GET")).status == 200


@pytest.mark.parametrize(
    "line",
    [
        "X-A : b",
        "X-A\t: b",
        "Content-Length : 5",
        ": no name",
        "no colon",
        "X A: b",
        "X-\xc4: b",
        'X"A: b',
        "X(A): b",
        "X/A: b",
        "Host\xa0: evil",
    ],
)
async def test_S12_names_that_are_no_tokens(house: House, line: str) -> None:
    await refused(house, head(line))


@pytest.mark.parametrize(
    "start, statuses",
    [
        ("GET /v1", (400,)),
        ("GET", (400,)),
        ("GET /v1 HTTP/0.9", (400, 505)),
        ("GET /v1 HTTP/1.2", (505,)),
        ("GET /v1 HTTP/2.0", (505,)),
        ("GET /v1 HTTP/3.0", (505,)),
        ("GET /v1 HTTP/1.10", (400,)),
        ("GET /v1 HTTP/01.1", (400,)),
        ("GET /v1 HTTP/1", (400,)),
        ("GET /v1 ICE/1.0", (400,)),
        ("GET /v1 http/1.1", (400,)),
        ("GET /v1 HTTP/1.1 ", (400,)),
        ("GET /v1 x HTTP/1.1", (400,)),
        ("GET\t/v1\tHTTP/1.1", (400,)),
        ("GET  /v1 HTTP/1.1", (400,)),
        ("GET /v1  HTTP/1.1", (400,)),
        ("GET /v1\x0bHTTP/1.1", (400,)),
        ("get /v1 HTTP/1.1", (400,)),
        ("G\xc4T /v1 HTTP/1.1", (400,)),
        ("PRI * HTTP/2.0", (505,)),
    ],
)
async def test_S13_request_lines(house: House, start: str, statuses: tuple[int, ...]) -> None:
    await refused(house, head(start=start), *statuses)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Host: a.example", "Host: b.example"),
        ("Host: a.example", "host: a.example"),
        ("Host:",),
        ("Host:   ",),
        ("Host: user@a.example",),
        ("Host: a.example/path",),
        ("Host: a.example, b.example",),
        ("Host: a.example:port",),
        ("Host: a.example:123456",),
        ("Host: a.example:",),
        ("Host: a example",),
        ("Host: [::1",),
        ("Host: [v1.x]",),
        ("Host: \xe4.example",),
        ("Host: a%2eexample",),
        ("Host: " + "a" * 300,),
    ],
)
async def test_S14_hosts(house: House, lines: tuple[str, ...]) -> None:
    await refused(house, head(*lines, host=False))


async def test_S14_an_empty_host_after_a_request_that_had_none(house: House) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    first = b"GET /v1/nodes HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    assert (await client.ask(first)).status == 200

    assert (await client.ask(head("Host: ", host=False))).status == 400
    assert len(backend.requests) == 1


@pytest.mark.parametrize(
    "target, host, local",
    [
        ("http://target.example/v1/nodes?x=1", "target.example", "/v1/nodes?x=1"),
        ("HTTP://target.example:81/v1//x", "target.example:81", "/v1//x"),
        ("https://target.example", "target.example", "/"),
        ("http://target.example?x", "target.example", "/?x"),
    ],
)
async def test_S15_of_an_absolute_form_the_target_wins(
    house: House, target: str, host: str, local: str
) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()

    assert (await client.ask(request("GET", target, host="other.example"))).status == 200
    assert (backend.only.target, backend.only.one("host")) == (local, host)
    assert (await client.ask(request(host="other.example"))).status == 200
    assert backend.requests[1].one("host") == "other.example"


@pytest.mark.parametrize(
    "start",
    [
        "GET api.example:80 HTTP/1.1",
        "GET * HTTP/1.1",
        "GET v1/nodes HTTP/1.1",
        "GET ftp://api.example/ HTTP/1.1",
        "GET http:// HTTP/1.1",
        "GET http:///v1 HTTP/1.1",
        "GET http://user@api.example/ HTTP/1.1",
        "GET http:/v1 HTTP/1.1",
        "OPTIONS ** HTTP/1.1",
    ],
)
async def test_S15_other_forms_of_a_target(house: House, start: str) -> None:
    await refused(house, head(start=start), 400, 501)


async def test_S15_the_asterisk_is_for_options(house: House) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("OPTIONS", "*"))).status == 200
    assert backend.only.start == "OPTIONS * HTTP/1.1"


@pytest.mark.parametrize(
    "listed",
    [
        "Transfer-Encoding",
        "content-length",
        "close, Host",
        SERVED,
        SERVED.lower().replace("-", "_"),
        "keep-alive,host",
    ],
)
async def test_S16_connection_must_not_list_what_makes_the_message(house: House, listed: str) -> None:
    await refused(house, head(f"Connection: {listed}", asks("1.10"), "Content-Length: 0"))


async def test_S17_pipelined_requests_are_answered_in_order(house: House) -> None:
    async def script(hop: Hop) -> None:
        while True:
            message = await hop.request()
            await hop.say(reply(200, body=message.target.encode() + message.body))

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    asked = [request("POST", f"/v1/{number}", body=b"=%d" % number) for number in range(20)]
    await client.send(*asked)

    for number in range(20):
        assert (await client.reply()).body == b"/v1/%d=%d" % (number, number)
    assert backend.connections == 1  # one at a time: no second connection was ever needed


async def test_S17_nothing_is_read_behind_a_framing_error(house: House) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    await client.send(request(), head("bad line"), SMUGGLED)

    assert (await client.reply()).status == 200
    assert (await client.reply()).status == 400
    assert (await client.ended()).rest == b""
    assert [each.target for each in backend.requests] == ["/v1/nodes"]


async def test_S17_nothing_is_read_behind_connection_close(house: House) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    await client.send(request("GET", "/v1/nodes", "Connection: close"), SMUGGLED)

    assert (await client.reply()).one("connection") == "close"
    assert (await client.ended()).rest == b""
    assert [each.target for each in backend.requests] == ["/v1/nodes"]


async def test_S18_a_head_that_pauses_gets_408_and_the_end(house: House) -> None:
    gateway, backend = await house.behind(serve, client_head=0.1)
    client = await gateway.client()
    await client.send(b"POST /v1/nodes HTTP/1.1\r\nHost: api.example\r\nContent-Le")

    answer = await client.reply()

    assert (answer.status, answer.one("connection")) == (408, "close")
    assert (await client.ended()).rest == b""
    assert not backend.requests
    assert gateway.metric("skewgate_client_errors_total", reason="timeout") == 1


@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.parametrize(
    "data, status",
    [
        (head(start=f"GET /{'a' * 3000} HTTP/1.1"), 414),
        (b"GET /" + b"a" * 6000, 414),
        (b"G" * 6000, 414),
        (head(f"X-Long: {'a' * 3000}"), 431),
        (head(f"{'X' * 3000}: a"), 431),
        (head(*(f"X-{number}: a" for number in range(60))), 431),
        (head(*(f"X: {'a' * 500}" for _ in range(10))), 431),
        (b"GET / HTTP/1.1\r\n" + b"X: aaaaaaaaaaaaaa\r\n" * 300, 431),
        (head(start=f"{'G' * 40} /v1 HTTP/1.1"), 400),
    ],
)
async def test_S19_what_is_too_large(house: House, data: bytes, status: int, slowly: bool) -> None:
    limits = {"head": 4096, "line": 2048, "headers": 50}
    gateway, backend = await house.behind(serve, limits=limits)
    client = await gateway.client()
    if slowly:
        await drip(client, data)
    else:
        await client.send(data)

    answer = await client.reply()

    assert (answer.status, answer.one("connection")) == (status, "close")
    assert not backend.requests


async def test_S19_limits_hold_on_further_requests_with_the_same_fields(house: House) -> None:
    gateway, backend = await house.behind(serve, limits={"head": 4096, "line": 2048})
    client = await gateway.client()
    for _ in range(2):
        assert (await client.ask(request())).status == 200

    answer = await client.ask(request("GET", f"/{'a' * 2100}"))

    assert answer.status == 414
    assert answer.one("connection") == "close"
    assert len(backend.requests) == 2


@pytest.mark.parametrize(
    "start, status",
    [
        ("GET /v1#x HTTP/1.1", 400),
        ("GET /v1/../x HTTP/1.1", 400),
        ("TRACE / HTTP/1.1", 405),
        ("get / HTTP/1.1", 400),
    ],
)
async def test_S17_further_requests_are_read_as_strictly_as_the_first(
    house: House, start: str, status: int
) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    for _ in range(2):
        assert (await client.ask(head())).status == 200

    assert (await client.ask(head(start=start), method="GET")).status == status
    assert len(backend.requests) == 2


async def test_S19_what_is_just_small_enough(house: House) -> None:
    gateway, backend = await house.behind(serve, limits={"line": 2048, "headers": 20})
    lines = [f"X-Long: {'a' * 2040}", *(f"X-{number}: a" for number in range(18))]

    assert (await gateway.ask(head(*lines, start=f"GET /{'a' * (2048 - 14)} HTTP/1.1"))).status == 200
    assert backend.only.one("x-17") == "a"


async def test_S19_a_head_byte_by_byte_is_a_head(house: House) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    await drip(client, request("POST", "/v1/nodes", asks("1.12"), body=b"hello"))

    assert (await client.reply()).status == 200
    assert (backend.only.body, backend.only.one(SERVED)) == (b"hello", "1.12")
