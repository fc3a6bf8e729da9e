"""Bodies that two readers could frame differently are refused, never guessed at (attacks S1 to S9)."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import pytest

from tests.dataplane.attacks import KIB, SMUGGLED, broken_body, head, refused
from tests.dataplane.stand import Hop, House, serve
from tests.dataplane.wire import HOST, SERVED, asks, chunked, reply, request


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


@pytest.mark.parametrize(
    "twin", ["Transfer_Encoding: chunked", "Content_Length: 3", "TRANSFER_encoding: gzip"]
)
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
    [
        "+5",
        "-5",
        "0x5",
        "5_0",
        "5 0",
        "",
        " ",
        "5.0",
        "5e1",
        "\xb2",
        "\xd9\xa5",
        "five",
        "5\x0b",
        "9" * 19,
        "1" * 400,
    ],
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
async def test_S5_bodies_where_none_is_usual_are_framed_exactly(
    house: House, method: str, coded: bool
) -> None:
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
        b"\xd9\xa5\r\nhello\r\n0\r\n\r\n",
    ],
)
async def test_S7_chunks_that_are_none(house: House, body: bytes) -> None:
    await broken_body(
        house, head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.1") + body + SMUGGLED
    )


async def test_S7_a_chunk_that_breaks_after_bytes_went_on_takes_both_sides_down(house: House) -> None:
    backend_heard: list[bytes] = []

    async def script(hop: Hop) -> None:
        await hop.head()
        backend_heard.append((await hop.ended()).rest)

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(
        head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.1"), b"11170\r\n" + b"x" * 70000
    )
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
    trailers = (
        f"Content-Length: 3\r\nTransfer-Encoding: gzip\r\nHost: evil\r\n{asks('1.90')}\r\nSet-Cookie: a=b\r\n"
    )
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
