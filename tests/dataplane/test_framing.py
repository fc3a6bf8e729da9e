"""Bodies that two readers could frame differently are refused (threats S1-S9)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import pytest

from tests.dataplane.assertions import assert_body_refused, assert_refused
from tests.kit.backends import UpstreamConnection, serve
from tests.kit.messages import (
    HOST,
    KIB,
    SMUGGLED,
    VERSION_FIELD,
    chunked,
    request,
    request_head,
    response,
    version_line,
)
from tests.kit.workers import Testbed


@pytest.mark.parametrize("order", [0, 1])
async def test_S1_a_length_beside_a_coding(testbed: Testbed, order: int) -> None:
    lines = ["Content-Length: 6", "Transfer-Encoding: chunked"]
    await assert_refused(
        testbed, request_head(*lines[:: 1 if order else -1], start="POST /v1/x HTTP/1.1") + chunked()
    )


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
async def test_S2_codings_in_disguise(testbed: Testbed, lines: tuple[str, ...]) -> None:
    await assert_refused(
        testbed, request_head(*lines, start="POST /v1/x HTTP/1.1") + chunked(b"hello"), 400, 501
    )


@pytest.mark.parametrize(
    "alias", ["Transfer_Encoding: chunked", "Content_Length: 3", "TRANSFER_encoding: gzip"]
)
async def test_S2_aliases_of_framing_headers_are_neither_read_nor_forwarded(
    testbed: Testbed, alias: str
) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (
        await gateway.request(request("POST", "/v1/x", alias, "Content-Length: 5") + b"hello")
    ).status == 200
    assert backend.only_request.body == b"hello"
    assert not [name for name in backend.only_request.names if "_" in name]


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
async def test_S3_several_lengths(testbed: Testbed, lines: tuple[str, ...]) -> None:
    await assert_refused(testbed, request_head(*lines, start="POST /v1/x HTTP/1.1") + b"hello")


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
async def test_S4_malformed_lengths(testbed: Testbed, length: str) -> None:
    await assert_refused(
        testbed, request_head(f"Content-Length: {length}", start="POST /v1/x HTTP/1.1") + b"hello", 400, 413
    )


async def test_S4_a_length_that_is_too_large(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, limits={"body": 1000})
    client = await gateway.client()

    answer = await client.request(request("POST", "/v1/x", "Content-Length: 1001"))

    assert (answer.status, answer.one("connection")) == (413, "close")
    assert (await client.ended()).rest == b""
    assert not backend.requests
    assert (await gateway.recorded()).reason == "body_too_large"


@pytest.mark.parametrize("length", ["5  ", "\t5\t", "0005"])
async def test_S4_blanks_and_zeros_around_a_length_are_not_forwarded(testbed: Testbed, length: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (
        await gateway.request(request("POST", "/v1/x", f"Content-Length: {length}") + b"hello")
    ).status == 200
    assert (backend.only_request.one("content-length"), backend.only_request.body) == ("5", b"hello")


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("chunked_body", [False, True])
async def test_S5_bodies_where_none_is_usual_are_framed_exactly(
    testbed: Testbed, method: str, chunked_body: bool
) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    lines = ["Transfer-Encoding: chunked"] if chunked_body else [f"Content-Length: {len(SMUGGLED)}"]

    answer = await client.request(
        request(method, "/v1/nodes", *lines), chunked(SMUGGLED) if chunked_body else SMUGGLED
    )

    assert answer.status == 200
    assert await client.is_open()
    assert [message.target for message in backend.requests] == ["/v1/nodes", "/v1/nodes"]
    assert backend.requests[0].body == SMUGGLED
    assert backend.requests[0].one("content-length") == str(len(SMUGGLED))


async def test_S5_a_response_before_the_end_of_the_body_ends_the_connection(
    testbed: Testbed,
) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(response(200, body=b"early"))
        await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    answer = await client.request(request("POST", "/v1/x", f"Content-Length: {100 * KIB}"), b"x" * 70 * KIB)
    assert (answer.status, answer.body, answer.one("connection")) == (200, b"early", "close")
    await backend.disconnected()
    other = await gateway.request(request())

    assert (other.status, backend.connections) == (200, 2)


async def test_S6_a_coding_in_http_1_0(testbed: Testbed) -> None:
    await assert_refused(
        testbed, request_head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.0") + chunked(b"hello")
    )


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
async def test_S7_malformed_chunks(testbed: Testbed, body: bytes) -> None:
    await assert_body_refused(
        testbed, request_head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.1") + body + SMUGGLED
    )


async def test_S7_a_malformed_chunk_in_a_streamed_body_ends_both_connections(testbed: Testbed) -> None:
    rests: list[bytes] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        rests.append((await upstream.ended()).rest)

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(
        request_head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.1"), b"11170\r\n" + b"x" * 70000
    )
    await backend.received()
    answer = await client.request(b"oops" + SMUGGLED, method="POST")

    assert (answer.status, answer.one("connection")) == (400, "close")
    assert (await client.ended()).rest == b""
    await backend.disconnected()
    assert not rests[0].endswith(b"0\r\n\r\n")
    assert b"smuggled" not in rests[0]
    assert gateway.records[0].reason == "client_broke"


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
        b"1;" + b"a" * 200 + b"\r\nx\r\n",  # repeated below
    ],
)
async def test_S8_chunk_extensions_that_are_malformed_or_long(testbed: Testbed, body: bytes) -> None:
    times = 100 if body.endswith(b"\r\nx\r\n") else 1
    await assert_body_refused(
        testbed, request_head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.1") + body * times
    )


async def test_S8_chunk_extensions_are_not_forwarded(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    body = b"".join(b"3e8;name=value;other\r\n%b\r\n" % (b"x" * 1000) for _ in range(70)) + b"0;last\r\n\r\n"

    assert (await gateway.request(request("POST", "/v1/x", "Transfer-Encoding: chunked"), body)).status == 200
    assert (backend.only_request.framing, backend.only_request.body) == ("chunked", b"x" * 70000)


@pytest.mark.parametrize("size", [5, 70000])
async def test_S9_trailers_are_never_merged_into_the_head(testbed: Testbed, size: int) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    fields = (
        "Content-Length: 3",
        "Transfer-Encoding: gzip",
        "Host: evil",
        version_line("1.90"),
        "Set-Cookie: a=b",
    )
    trailers = "".join(f"{field}\r\n" for field in fields)
    body = b"%x\r\n%b\r\n0\r\n%b\r\n" % (size, b"x" * size, trailers.encode())
    lines = ("Transfer-Encoding: chunked", "Trailer: Set-Cookie", version_line("1.10"))

    assert (await client.request(request("POST", "/v1/x", *lines), body)).status == 200

    message = backend.only_request
    assert (message.body, message.one("host"), message.one(VERSION_FIELD)) == (b"x" * size, HOST, "1.10")
    assert not {"set-cookie", "trailer"} & message.names
    assert await client.is_open()


async def test_S9_endless_trailers(testbed: Testbed) -> None:
    body = b"0\r\n" + b"X-More: and more\r\n" * 2000 + b"\r\n"
    await assert_body_refused(
        testbed, request_head("Transfer-Encoding: chunked", start="POST /v1/x HTTP/1.1") + body
    )
