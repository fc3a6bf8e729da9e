"""What clients send that two readers could read differently is refused, never guessed about, and no backend sees it.

Ids are rows of the list of attacks: S framing and smuggling, H hop-by-hop and methods, P paths.
"""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import pytest

from tests.dataplane.stand import Client, House, Hop, ScriptedBackend, Stand, always, serve
from tests.dataplane.wire import HOST, SERVED, Message, asks, chunked, reply, request

KIB = 1024
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: api.example\r\n\r\n"


def head(*lines: str, start: str = "GET /v1/nodes HTTP/1.1", host: bool = True) -> bytes:
    """A head that may hold anything."""
    return "\r\n".join((start, *([f"Host: {HOST}"] if host else []), *lines, "", "")).encode("latin-1")


async def refused(house: House, data: bytes, *statuses: int) -> Message:
    """`data`, and a good request behind it: one refusal that echoes nothing, the end, and nothing at the backend."""
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    answer = await client.ask(data + SMUGGLED, method="GET")
    assert answer.status in (statuses or (400,)), answer
    assert answer.one("connection") == "close"
    assert answer.one("content-type").startswith("text/plain")
    assert len(answer.body) < 100
    assert (await client.ended()).rest == b""
    assert not backend.requests
    return answer


async def broken_body(house: House, data: bytes) -> None:
    """A body that is not framed as HTTP requires: one 400, in any shape, and the end."""
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    answer = await client.ask(data, method="POST")
    assert (answer.status, answer.one("connection")) == (400, "close")
    assert (await client.ended()).rest == b""
    assert not backend.requests
    assert sum(gateway.metric("skewgate_client_errors_total", reason=each) for each in ("chunk", "chunk_overhead"))


# --- A.1 framing and smuggling -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1])
async def test_S1_a_length_beside_a_coding(house: House, order: int) -> None:
    lines = ["Content-Length: 6", "Transfer-Encoding: chunked"]
    await refused(house, head(*lines[:: 1 if order else -1], start="POST /v1/x HTTP/1.1") + chunked())


@pytest.mark.parametrize(
    "lines",
    [
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding:\tchunked, identity",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: identity, chunked",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: identity",),
        ("Transfer-Encoding: gzip",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "transfer-encoding: identity"),
        ("Transfer-Encoding: chunked;q=1",),
        ('Transfer-Encoding: "chunked"',),
        ("Transfer-Encoding: \x0bchunked",),
        ("Transfer-Encoding: \x0cchunked",),
        ("Transfer-Encoding: chunked\x00",),
        ("Transfer-Encoding: chunked,",),
        ("Transfer-Encoding: ,chunked",),
        ("Transfer-Encoding:",),
        ("Transfer-Encoding: ", "Content-Length: 5"),
        ("Transfer-Encoding: chunke\xff",),
        ("Transfer-Encoding: \xa0chunked",),
        ("Transfer-Encoding:\r\n chunked",),
        ("X: y", " Transfer-Encoding: chunked"),
    ],
)
async def test_S2_codings_in_disguise(house: House, lines: tuple[str, ...]) -> None:
    await refused(house, head(*lines, start="POST /v1/x HTTP/1.1") + chunked(b"hello"), 400, 501)


@pytest.mark.parametrize("twin", ["Transfer_Encoding: chunked", "Content_Length: 3", "TRANSFER_encoding: gzip"])
async def test_S2_twins_of_framing_headers_are_neither_read_nor_passed_on(house: House, twin: str) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("POST", "/v1/x", twin, "Content-Length: 5") + b"hello")).status == 200
    assert backend.only.body == b"hello"
    assert not [name for name in backend.only.names if "_" in name]


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5", "Content-Length: 5"),
        ("Content-Length: 5", "content-LENGTH: 5"),
        ("Content-Length: 5, 6",),
        ("Content-Length: 5, 5",),
        ("Content-Length: 5,",),
    ],
)
async def test_S3_several_lengths(house: House, lines: tuple[str, ...]) -> None:
    await refused(house, head(*lines, start="POST /v1/x HTTP/1.1") + b"hello")


@pytest.mark.parametrize(
    "length",
    ["+5", "-5", "0x5", "5_0", "5 0", "", " ", "5.0", "5e1", "\xb2", "\xd9\xa5", "five", "5\x0b", "9" * 19, "1" * 400],
)
async def test_S4_lengths_that_are_no_numbers(house: House, length: str) -> None:
    await refused(house, head(f"Content-Length: {length}", start="POST /v1/x HTTP/1.1") + b"hello", 400, 413)


async def test_S4_a_length_that_is_a_number_but_too_large(house: House) -> None:
    gateway, backend = await house.behind(serve, limits={"body": 1000})
    client = await gateway.client()

    answer = await client.ask(request("POST", "/v1/x", "Content-Length: 1001"))

    assert (answer.status, answer.one("connection")) == (413, "close")
    assert (await client.ended()).rest == b""
    assert not backend.requests
    assert (await gateway.told()).error == "body_too_large"


@pytest.mark.parametrize("length", ["5  ", "\t5\t", "0005"])
async def test_S4_blanks_and_zeros_around_a_length_are_not_passed_on(house: House, length: str) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("POST", "/v1/x", f"Content-Length: {length}") + b"hello")).status == 200
    assert (backend.only.one("content-length"), backend.only.body) == ("5", b"hello")


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("coded", [False, True])
async def test_S5_bodies_where_none_is_usual_are_framed_exactly(house: House, method: str, coded: bool) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    lines = ["Transfer-Encoding: chunked"] if coded else [f"Content-Length: {len(SMUGGLED)}"]

    answer = await client.ask(request(method, "/v1/nodes", *lines), chunked(SMUGGLED) if coded else SMUGGLED)

    assert answer.status == 200
    assert await client.is_open()
    assert [each.target for each in backend.requests] == ["/v1/nodes", "/v1/nodes"]
    assert backend.requests[0].body == SMUGGLED
    assert backend.requests[0].one("content-length") == str(len(SMUGGLED))


async def test_S5_a_backend_that_answers_before_the_body_has_ended_is_not_used_again(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.head()
        await hop.say(reply(200, body=b"early"))
        await hop.ended()

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    answer = await client.ask(request("POST", "/v1/x", f"Content-Length: {100 * KIB}"), b"x" * 70 * KIB)
    assert (answer.status, answer.body, answer.one("connection")) == (200, b"early", "close")
    await backend.gone()
    other = await gateway.ask(request())

    assert (other.status, backend.connections) == (200, 2)


async def test_S6_a_coding_in_http_1_0(house: House) -> None:
    await refused(house, head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.0") + chunked(b"hello"))


@pytest.mark.parametrize(
    "body",
    [
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"5_\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        b"10000000000000005\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhello\r\n0\n\n",
        b"5\rhello\r\n0\r\n\r\n",
        b"g\r\nhello\r\n0\r\n\r\n",
        "٥\r\nhello\r\n0\r\n\r\n".encode(),
    ],
)
async def test_S7_chunks_that_are_none(house: House, body: bytes) -> None:
    await broken_body(house, head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.1") + body + SMUGGLED)


async def test_S7_a_chunk_that_breaks_after_bytes_went_on_takes_both_sides_down(house: House) -> None:
    backend_heard: list[bytes] = []

    async def script(hop: Hop) -> None:
        await hop.head()
        backend_heard.append((await hop.ended()).rest)

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.1"), b"11170\r\n" + b"x" * 70000)
    await backend.came()
    answer = await client.ask(b"oops" + SMUGGLED, method="POST")

    assert (answer.status, answer.one("connection")) == (400, "close")
    assert (await client.ended()).rest == b""
    await backend.gone()
    assert not backend_heard[0].endswith(b"0\r\n\r\n")
    assert b"smuggled" not in backend_heard[0]
    assert gateway.outcomes[0].error == "client_broke"


@pytest.mark.parametrize(
    "body",
    [
        b"5;" + b"a" * 300 + b"\r\nhello\r\n0\r\n\r\n",
        b"5;a=b\nhello\r\n0\r\n\r\n",
        b"5;a\rb\r\nhello\r\n0\r\n\r\n",
        b"5;a\x00\r\nhello\r\n0\r\n\r\n",
        b"5;\r\nhello\r\n0\r\n\r\n",
        b"5\x0b;a\r\nhello\r\n0\r\n\r\n",
        b"0;a\n\r\n",
        b"1;" + b"a" * 200 + b"\r\nx\r\n",  # and again, below
    ],
)
async def test_S8_chunk_extensions_that_are_malformed_or_long(house: House, body: bytes) -> None:
    times = 100 if body.endswith(b"\r\nx\r\n") else 1
    await broken_body(house, head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.1") + body * times)


async def test_S8_chunk_extensions_are_not_passed_on(house: House) -> None:
    gateway, backend = await house.behind(serve)
    body = b"".join(b"3e8;name=value;other\r\n%b\r\n" % (b"x" * 1000) for _ in range(70)) + b"0;last\r\n\r\n"

    assert (await gateway.ask(request("POST", "/v1/x", "Transfer-Encoding: chunked"), body)).status == 200
    assert (backend.only.framing, backend.only.body) == ("chunked", b"x" * 70000)


@pytest.mark.parametrize("size", [5, 70000])
async def test_S9_trailers_are_never_headers(house: House, size: int) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    trailers = f"Content-Length: 3\r\nTransfer-Encoding: gzip\r\nHost: evil\r\n{asks('1.90')}\r\nSet-Cookie: a=b\r\n"
    body = b"%x\r\n%b\r\n0\r\n%b\r\n" % (size, b"x" * size, trailers.encode())
    lines = ("Transfer-Encoding: chunked", "Trailer: Set-Cookie", asks("1.10"))

    assert (await client.ask(request("POST", "/v1/x", *lines), body)).status == 200

    sent = backend.only
    assert (sent.body, sent.one("host"), sent.one(SERVED)) == (b"x" * size, HOST, "1.10")
    assert not {"set-cookie", "trailer"} & sent.names
    assert await client.is_open()


async def test_S9_endless_trailers(house: House) -> None:
    body = b"0\r\n" + b"X-More: and more\r\n" * 2000 + b"\r\n"
    await broken_body(house, head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.1") + body)


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
async def test_S15_of_an_absolute_form_the_target_wins(house: House, target: str, host: str, local: str) -> None:
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
    ["Transfer-Encoding", "content-length", "close, Host", SERVED, SERVED.lower().replace("-", "_"), "keep-alive,host"],
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


async def drip(client: Client, data: bytes) -> None:
    """One byte a segment."""
    for at in range(len(data)):
        client.writer.write(data[at : at + 1])
        if at % 64 == 0:
            await client.writer.drain()


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


# --- A.2 hop-by-hop, upgrade, methods, expectations --------------------------------------------------------


async def test_H1_what_connection_lists_is_removed_both_ways(house: House) -> None:
    said = reply(200, "Connection: X-Back, keep-alive", "X-Back: secret", "X-Stays: yes", body=b"ok")
    gateway, backend = await house.behind(always(said))

    lines = ("Connection: X-Hop, close", "Connection: x-other", "X-HOP: 1", "x_hop: 2", "X-Other: 3", "X-Stays: yes")
    answer = await gateway.ask(request("GET", "/v1/nodes", *lines))

    assert not {"connection", "x-hop", "x_hop", "x-other"} & backend.only.names
    assert "x-back" not in answer.names
    assert (answer.one("x-stays"), backend.only.one("x-stays")) == ("yes", "yes")


@pytest.mark.parametrize(
    "token", ["x" * 3000, "(", "[", "\\", "^x", "a|b", "x*", "\xe4\xf6", '"', "{1}", "-", "_", "]"]
)
async def test_H1_whatever_connection_lists_is_a_name_and_not_a_pattern(house: House, token: str) -> None:
    gateway, backend = await house.behind(serve)

    answer = await gateway.ask(request("GET", "/v1/nodes", f"Connection: {token}", "X-Stays: yes"))

    assert answer.status in (200, 400)
    assert all(each.one("x-stays") == "yes" for each in backend.requests)


@pytest.mark.parametrize("token", ["x" * 3000, "(", "^x"])
async def test_H1_the_same_for_what_a_backend_lists(house: House, token: str) -> None:
    gateway, _ = await house.behind(always(reply(200, f"Connection: {token}", "X-Stays: yes")))

    assert (await gateway.ask(request("POST"))).status in (200, 502)


async def test_H2_headers_of_one_hop_are_removed_both_ways(house: House) -> None:
    gone = ("Proxy-Connection: keep-alive", "Keep-Alive: timeout=5", "Upgrade: websocket", "Proxy-Authorization: b")
    said = reply(200, *gone[:3], "Trailer: X", "TE: deflate", body=b"ok")
    gateway, backend = await house.behind(always(said))

    answer = await gateway.ask(request("GET", "/v1/nodes", *gone, "TE: deflate", "Trailer: X", "Authorization: mine"))

    removed = {"proxy-connection", "keep-alive", "upgrade", "proxy-authorization", "te", "trailer", "connection"}
    assert not removed & backend.only.names
    assert not removed & answer.names
    assert backend.only.one("authorization") == "mine"


async def test_H3_no_upgrade_to_h2c(house: House) -> None:
    gateway, backend = await house.behind(serve)
    lines = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")

    assert (await gateway.ask(request("GET", "/v1/nodes", *lines))).status == 200
    assert not {"upgrade", "http2-settings", "connection"} & backend.only.names


async def test_H4_what_follows_an_upgrade_is_the_next_request(house: House) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    await client.send(request("GET", "/v1/nodes", "Connection: Upgrade", "Upgrade: x"), SMUGGLED)

    assert (await client.reply()).status == (await client.reply()).status == 200
    assert [each.target for each in backend.requests] == ["/v1/nodes", "/smuggled"]
    assert all(each.one(SERVED) == "1.1" for each in backend.requests)


async def test_H5_a_101_that_nobody_asked_for(house: House) -> None:
    gateway, backend = await house.behind(always(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"))
    client = await gateway.client()

    answer = await client.ask(request("GET", "/v1/nodes", "Connection: Upgrade", "Upgrade: x"))

    assert answer.status == 502
    assert "upgrade" not in answer.names
    await backend.gone()


@pytest.mark.parametrize(
    "start", ["CONNECT 127.0.0.1:22 HTTP/1.1", "TRACE /v1/nodes HTTP/1.1", "TRACK / HTTP/1.1", "FROBNICATE / HTTP/1.1"]
)
async def test_H6_methods_that_are_not_proxied(house: House, start: str) -> None:
    answer = await refused(house, head(start=start), 405, 501)

    allowed = answer.one("allow")
    assert "GET" in allowed
    assert "TRACE" not in allowed


async def test_H7_an_early_final_status_ends_the_connection(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.head()
        await hop.say(reply(401, "Content-Type: text/plain", body=b"who are you", reason="Unauthorized"))
        await hop.ended()

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request("POST", "/v1/x", f"Content-Length: {100 * KIB}", "Expect: 100-continue"))
    assert (await client.reply("POST")).status == 100
    answer = await client.reply("POST")

    assert (answer.status, answer.one("connection")) == (401, "close")
    assert (await client.ended()).rest == b""
    await backend.gone()


@pytest.mark.parametrize("expected", ["200-ok", "100-continue, x", "100-continue\r\nExpect: 200-ok"])
async def test_H7_unknown_expectations(house: House, expected: str) -> None:
    await refused(house, head(f"Expect: {expected}", "Content-Length: 5", start="POST /v1/x HTTP/1.1"), 417)


async def ways(gateway: Stand, backend: ScriptedBackend, times: int) -> Message:
    lines = [f"Via: 1.1 {'skewgate' if number % 2 else 'SkewGate'}" for number in range(times)]
    answer = await gateway.ask(request("GET", "/v1/nodes", "Via: 1.0 fred, 1.1 other", *lines))
    return backend.requests[-1] if answer.status == 200 else answer


async def test_H9_via_is_kept_and_ours_added(house: House) -> None:
    gateway, backend = await house.behind(serve)

    sent = await ways(gateway, backend, 1)
    assert sent.every("via") == ["1.0 fred, 1.1 other", "1.1 SkewGate", "1.1 skewgate"]
    assert (await gateway.ask(request())).status == 200
    assert backend.requests[-1].every("via") == ["1.1 skewgate"]


@pytest.mark.parametrize("warm", [False, True])
async def test_H9_a_loop_is_cut(house: House, warm: bool) -> None:
    gateway, backend = await house.behind(serve)
    if warm:  # with a connection to the backend at hand, and without
        assert (await gateway.ask(request())).status == 200

    answer = await ways(gateway, backend, 20)

    assert answer.status == 508
    assert len(backend.requests) == int(warm)


# --- A.4 paths ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/v1/../admin", "/v1/%2e%2e/admin", "/v1/.%2e/admin", "/v1/%2E./admin", "/..", "/v1/..", "/v1/.", "/./v1", "/%2e"],
)
async def test_P1_dots(house: House, path: str) -> None:
    await refused(house, head(start=f"GET {path} HTTP/1.1"))


@pytest.mark.parametrize("path", ["/v1%2fnodes", "/v1%2Fnodes", "/v1%5cnodes", "/v1%5Cnodes", "/v1\\nodes"])
async def test_P2_escaped_and_turned_slashes(house: House, path: str) -> None:
    await refused(house, head(start=f"GET {path} HTTP/1.1"))


@pytest.mark.parametrize("path", ["/v1/..;/admin", "/v1/..;x=1/admin", "/v1/.;/x", "/v1/%2e%2e;a/x"])
async def test_P3_dots_with_parameters(house: House, path: str) -> None:
    await refused(house, head(start=f"GET {path} HTTP/1.1"))


@pytest.mark.parametrize("path", ["/v1//nodes", "//v1/nodes", "/v1;a=b/nodes;c", "/v1/...", "/v1/.x", "/v1/x..y"])
async def test_P3_double_slashes_and_parameters_are_kept(house: House, path: str) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("GET", path))).status == 200
    assert backend.only.target == path


@pytest.mark.parametrize(
    "path",
    [
        "/v1/%00", "/v1/%0d%0aX:y", "/v1/%1f", "/v1/%7F", "/v1/\x01", "/v1/\x7f", "/v1/\xff", "/v1/\xc3\xa4",
        "/v1/%c0%ae", "/v1/%c0%af", "/v1/%e0%80%af", "/v1/%ff", "/v1/%ed%a0%80", "/v1/%", "/v1/%4", "/v1/%zz", "/v1/%u002e",
    ],
)  # fmt: skip
async def test_P4_control_bytes_and_what_is_no_utf_8(house: House, path: str) -> None:
    await refused(house, head(start=f"GET {path} HTTP/1.1"))


@pytest.mark.parametrize("target", ["/v1#x", "/v1/nodes?a=b#c", "/#", "#"])
async def test_P5_fragments(house: House, target: str) -> None:
    await refused(house, head(start=f"GET {target} HTTP/1.1"))


@pytest.mark.parametrize("path", ["/v1/%252e%252e/x", "/v1/%252f", "/v1/%2500"])
async def test_P6_what_is_escaped_twice_is_decoded_by_nobody_here(house: House, path: str) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("GET", path))).status == 200
    assert backend.only.target == path


@pytest.mark.parametrize("target", ["//evil.example/x", "/@evil.example", "/http://evil.example/", "/v1?@evil"])
async def test_P7_no_target_changes_who_is_asked(house: House, target: str) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("GET", target))).status == 200
    assert (backend.only.target, backend.only.one("host")) == (target, HOST)


@pytest.mark.parametrize("target", ["@evil.example/", "evil.example"])
async def test_P7_targets_without_a_slash(house: House, target: str) -> None:
    await refused(house, head(start=f"GET {target} HTTP/1.1"))


# --- what own errors say -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        head("X-Canary : canary"),
        head(start="GET /canary#canary HTTP/1.1"),
        head(start="CANARY /canary HTTP/1.1"),
        head("Host: canary@canary", host=False),
        head("Expect: canary", "Content-Length: 1"),
        head(start="GET /canary HTTP/1.7"),
    ],
)
async def test_O12_refusals_echo_nothing(house: House, data: bytes) -> None:
    answer = await refused(house, data, 400, 405, 417, 505)

    assert b"canary" not in (answer.head + answer.body).lower()


async def test_O12_failures_echo_nothing(house: House) -> None:
    gateway, _ = await house.behind(always(b"canary\r\n\r\n"))

    answer = await gateway.ask(request("GET", "/v1/canary", "X-Canary: canary"))

    assert answer.status == 502
    assert b"canary" not in (answer.head + answer.body).lower()
