"""A broken response reaches no client as a valid one, and the backend connection is not used again.

The ids are rows B and V of docs/threats.md. Once the client has the response head, the only correct end is an
abort: never a second head, never a regular end."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import json

import pytest

from tests.kit.backends import Script, UpstreamConnection, always, respond_with, serve
from tests.kit.clients import Client
from tests.kit.messages import KIB, MAX_FIELD, MIN_FIELD, VERSION_FIELD, chunked, request, response
from tests.kit.waiting import until
from tests.kit.workers import Testbed


def first_then_serve(data: bytes, *, close: bool = False) -> Script:
    """The first connection sends `data` to its request; every further one serves correctly."""

    async def script(upstream: UpstreamConnection) -> None:
        if upstream.backend.connections > 1:
            await serve(upstream)
        await upstream.request()
        await upstream.send(data)
        if not close:
            await upstream.ended()

    return script


async def assert_bad_gateway(
    testbed: Testbed, data: bytes, *, close: bool = False, status: int = 502, **timeouts: float
) -> None:
    """The client gets one error in the shape of the dialect, the backend connection is closed, and the next
    request is served."""
    gateway, backend = await testbed.gateway_and_backend(first_then_serve(data, close=close), **timeouts)
    client = await gateway.client()

    answer = await client.request(request("POST"))

    assert answer.status == status
    assert answer.one("content-type") == "application/json"
    error = json.loads(json.loads(answer.body)["error_message"])
    assert error["code"] == status
    assert (answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == ("1.1", "1.90")
    if "connection" in answer.names:
        assert answer.one("connection") == "close"
        client = await gateway.client()
    assert await client.is_open()
    assert backend.connections == 2
    assert (gateway.records[0].status, gateway.records[0].backend) == (status, "none")


async def assert_cut(client: Client) -> None:
    """The response was cut after its begin: there is no second head, and no last chunk."""
    end = await client.ended()
    assert b"HTTP/1.1" not in end.rest
    assert not end.rest.endswith(b"0\r\n\r\n")
    assert len(end.rest) < 50


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        response(200, "Content-Length: 100") + b"begun",
        response(200, "Transfer-Encoding: chunked") + b"5\r\nbegun\r\n",
    ],
)
async def test_B1_a_backend_that_dies_in_the_body_ends_the_client_connection(
    testbed: Testbed, data: bytes, reset: bool
) -> None:
    upstreams: list[UpstreamConnection] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        upstreams.append(upstream)
        await upstream.send(data)
        await upstream.ended()

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request(), request("GET", "/v1/next"))
    await client.reader.readuntil(b"\r\n\r\n")
    assert b"begun" in await client.reader.readuntil(b"begun")
    if reset:
        upstreams[0].reset()
    else:
        upstreams[0].writer.close()

    await assert_cut(client)
    record = await gateway.recorded()
    assert (record.status, record.reason, record.backend) == (200, "reply_cut", "api-1")
    assert len(gateway.records) == 1  # the pipelined request has not begun


async def test_B1_a_response_that_ends_with_the_connection_is_cut_by_a_reset(
    testbed: Testbed,
) -> None:
    """For a client of HTTP/1.0 a FIN would be the regular end of the response."""

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(response(200, "Transfer-Encoding: chunked") + b"5\r\nbegun\r\n")
        upstream.reset()

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request(http="1.0"))

    assert (await client.ended()).aborted


@pytest.mark.parametrize(
    "data", [b"", b"HT", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\n"]
)
async def test_B2_a_backend_that_closes_before_a_whole_head(testbed: Testbed, data: bytes) -> None:
    await assert_bad_gateway(testbed, data, close=True)


async def test_B4_endless_interim_responses(testbed: Testbed) -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\n"
    gateway, backend = await testbed.gateway_and_backend(first_then_serve(interim * 17))
    client = await gateway.client()
    await client.send(request("POST"))

    assert [(await client.response()).status for _ in range(17)] == [102] * 16 + [502]
    await backend.disconnected()
    assert await client.is_open()


async def test_B4_endless_interim_responses_one_by_one(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        while True:
            await upstream.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request("POST"))
    answer = await client.response()
    while answer.status < 200:
        answer = await client.response()

    assert answer.status == 502
    await backend.disconnected()


@pytest.mark.parametrize(
    "data",
    [
        response(200, body=b"ok") + b"more bytes than announced",
        response(200, body=b"ok") + response(200, "X-Second: 1", body=b"second"),
        response(200, "Transfer-Encoding: chunked")
        + chunked(b"o", b"k")
        + response(200, "X-Second: 1", body=b"second"),
        response(200, body=b"ok") + b"\r\n",
    ],
)
async def test_B5_bytes_behind_a_response_reach_no_client(testbed: Testbed, data: bytes) -> None:
    gateway, backend = await testbed.gateway_and_backend(first_then_serve(data))
    client, other = await gateway.client(), await gateway.client()

    assert (await client.request(request())).body == b"ok"
    for connection in (client, other, client):
        assert (await connection.request(request())).body == b'{"nodes": []}'
    assert backend.connections == 4, "each of its connections carries one request from now on (R3-T1)"


async def test_B5_bytes_on_an_idle_connection_reach_no_client(testbed: Testbed) -> None:
    upstreams: list[UpstreamConnection] = []

    async def script(upstream: UpstreamConnection) -> None:
        upstreams.append(upstream)
        await serve(upstream)

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    assert (await client.request(request())).status == 200
    await upstreams[0].send(response(200, "X-Poison: 1", body=b"poison"))
    await until(lambda: gateway.worker.report().connections["baremetal", "api-1"] == (0, 0))

    assert (await client.request(request())).body == b'{"nodes": []}'
    assert backend.connections == 2


async def test_B6_a_length_and_a_coding(testbed: Testbed) -> None:
    await assert_bad_gateway(
        testbed, response(200, "Content-Length: 5", "Transfer-Encoding: chunked") + chunked(b"hello")
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
async def test_B7_lengths_that_are_not_one_number(testbed: Testbed, lines: tuple[str, ...]) -> None:
    await assert_bad_gateway(testbed, response(200, *lines) + b"hello")


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
async def test_B8_codings_that_are_not_chunked(testbed: Testbed, lines: tuple[str, ...]) -> None:
    await assert_bad_gateway(testbed, response(200, *lines) + chunked(b"hello"))


@pytest.mark.parametrize(
    "body", [b"5\nhello\n0\n\n", b"5\r\nhello\n0\r\n\r\n", b"x\r\n", b"5;\n\r\nhello\r\n0\r\n\r\n"]
)
async def test_B9_malformed_chunks(testbed: Testbed, body: bytes) -> None:
    """If the chunk comes with the head, a 502 is still possible; later only an abort."""
    gateway, backend = await testbed.gateway_and_backend(
        first_then_serve(response(200, "Transfer-Encoding: chunked") + body)
    )
    client = await gateway.client()
    await client.send(request("POST"))

    start = await client.reader.readuntil(b"\r\n\r\n")

    if b" 502 " not in start.splitlines()[0]:
        await assert_cut(client)
    await until(lambda: bool(gateway.records))
    assert gateway.records[0].reason in ("bad_reply", "reply_cut")
    assert (await gateway.request(request())).status == 200
    assert backend.connections == 2


async def test_B9_malformed_chunks_later_in_the_body(testbed: Testbed) -> None:
    upstreams: list[UpstreamConnection] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        upstreams.append(upstream)
        await upstream.send(response(200, "Transfer-Encoding: chunked") + b"5\r\nhello\r\n")
        await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request())
    await client.reader.readuntil(b"5\r\nhello\r\n")
    await upstreams[0].send(b"5\nhello\n0\n\n")

    await assert_cut(client)
    await backend.disconnected()


@pytest.mark.parametrize(
    "data, close",
    [
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", True),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\nok", False),
        (b"HTTP/1.1 200 OK\r\nX: y\nContent-Length: 2\r\n\r\nok", False),
        (b"HTTP/1.1 200 OK\r\nX: y\rz\r\nContent-Length: 2\r\n\r\nok", False),
    ],
)
async def test_B10_head_lines_that_end_in_something_else(testbed: Testbed, data: bytes, close: bool) -> None:
    await assert_bad_gateway(testbed, data, close=close)


@pytest.mark.parametrize("byte", ["\x00", "\x01", "\x7f", "\x1b"])
async def test_B11_control_bytes_in_a_value(testbed: Testbed, byte: str) -> None:
    await assert_bad_gateway(testbed, response(200, f"X: a{byte}b", body=b"ok"))


@pytest.mark.parametrize("fold", [" ", "\t"])
async def test_B12_folded_lines(testbed: Testbed, fold: str) -> None:
    await assert_bad_gateway(testbed, response(200, "X: a", f"{fold}b", body=b"ok"))


@pytest.mark.parametrize("line", ["X : a", ": a", "no colon", "X-\xe4: a", "X Y: a"])
async def test_B12_lines_that_are_not_fields(testbed: Testbed, line: str) -> None:
    await assert_bad_gateway(testbed, response(200, line, body=b"ok"))


async def test_B13_trailers_are_dropped(testbed: Testbed) -> None:
    data = response(200, "Transfer-Encoding: chunked", "Trailer: Set-Cookie")
    trailers = b"2\r\nok\r\n0\r\nSet-Cookie: a=b\r\nContent-Length: 7\r\n\r\n"
    gateway, backend = await testbed.gateway_and_backend(always(data + trailers))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.request(request())  # the reader accepts no trailers
        assert answer.body == b"ok"
        assert not {"set-cookie", "trailer"} & answer.names
    assert backend.connections == 1


@pytest.mark.parametrize("line", [b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 Not Modified"])
async def test_B14_bodies_of_204_and_304(testbed: Testbed, line: bytes) -> None:
    gateway, backend = await testbed.gateway_and_backend(
        first_then_serve(line + f"\r\n{VERSION_FIELD}: 1.1\r\nContent-Length: 4\r\n\r\nbody".encode())
    )
    client = await gateway.client()

    assert (await client.request(request())).head.startswith(line)
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
async def test_B15_status_lines(testbed: Testbed, line: str) -> None:
    await assert_bad_gateway(testbed, f"{line}\r\nContent-Length: 2\r\n\r\nok".encode("latin-1"))


async def test_B15_a_status_line_without_a_reason_phrase_is_valid(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok"))

    assert (await gateway.request(request())).status == 200


@pytest.mark.parametrize(
    "data",
    [
        response(200, f"X: {'a' * 65 * KIB}", body=b"ok"),
        response(200, *(f"X-{number}: a" for number in range(2000)), body=b"ok"),
        response(200, *(f"X-{number}: a" for number in range(201)), body=b"ok"),
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100 * KIB,
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 20000,
    ],
    ids=["long", "many", "just too many", "endless line", "endless lines"],
)
async def test_B16_heads_that_are_too_large(testbed: Testbed, data: bytes) -> None:
    await assert_bad_gateway(testbed, data)


async def test_B17_a_slow_head_has_one_deadline_for_the_whole_head(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(b"HTTP/1.1 200 OK\r\nX: ")
        while not upstream.reader.at_eof():
            await upstream.send(b"a")
            await asyncio.sleep(0.02)  # the attack

    gateway, backend = await testbed.gateway_and_backend(script, backend_head=0.1)

    answer = await gateway.request(request("POST"))

    assert answer.status == 504
    await backend.disconnected()


@pytest.mark.parametrize("close", [False, True])
async def test_B18_a_refusal_before_the_end_of_the_body_is_forwarded(testbed: Testbed, close: bool) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        line = "Connection: close" if close else "X-Stays: yes"
        await upstream.send(response(413, line, body=b"too much", reason="Too Large"))
        if not close:
            await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    client.writer.write(request("PUT", "/v1/x", f"Content-Length: {2000 * KIB}") + b"x" * 100 * KIB)

    answer = await client.response("PUT")

    assert (answer.status, answer.body, answer.one("connection")) == (413, b"too much", "close")
    await backend.disconnected()
    assert gateway.records[0].status == 413


async def test_B18_a_client_that_reads_only_after_its_body_finds_the_refusal(testbed: Testbed) -> None:
    """Blocking clients send everything, or fail to, and read the response only then."""

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(response(413, body=b"too much", reason="Too Large"))
        await upstream.ended()

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]
    client.writer.write(request("PUT", "/v1/x", f"Content-Length: {300 * KIB}") + b"x" * 300 * KIB)
    await gateway.recorded()
    client.reader._transport.resume_reading()  # type: ignore[attr-defined]

    assert (await client.response("PUT")).status == 413


async def test_B20_fields_that_a_backend_lists_in_connection_are_removed(testbed: Testbed) -> None:
    lines = (
        "Connection: X-One, X-Two",
        "connection: x-three",
        "X-One: 1",
        "X-TWO: 2",
        "x-three: 3",
        "X-Four: 4",
    )
    gateway, backend = await testbed.gateway_and_backend(always(response(200, *lines, body=b"ok")))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.request(request())
        assert not {"connection", "x-one", "x-two", "x-three"} & answer.names
        assert (answer.one("x-four"), answer.body) == ("4", b"ok")
    assert backend.connections == 1


@pytest.mark.parametrize(
    "text", ["1.50\tX", "1.50, 1.51", "abc", "1.050", "+1.5", "1.5\xa0", "999999999.1", "", "1.50\xff"]
)
async def test_V8_only_valid_versions_of_a_backend_reach_the_client(testbed: Testbed, text: str) -> None:
    data = response(200, f"{VERSION_FIELD}: {text}", f"{MIN_FIELD}: 1.1", f"{MAX_FIELD}: {text}", body=b"ok")
    gateway, _ = await testbed.gateway_and_backend(always(data))

    answer = await gateway.request(request())

    assert answer.status == 200
    assert (answer.every(VERSION_FIELD), answer.one(MAX_FIELD)) == ([], "1.90")


async def test_V8_two_served_versions_are_none(testbed: Testbed) -> None:
    data = response(200, f"{VERSION_FIELD}: 1.5", f"{VERSION_FIELD}: 1.6", body=b"ok")
    gateway, _ = await testbed.gateway_and_backend(always(data))

    assert (await gateway.request(request())).every(VERSION_FIELD) == []


async def test_a_connection_that_ended_with_its_response_is_no_failure(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(respond_with(response(200, body=b"ok")))
    client = await gateway.client()

    for number in range(1, 4):
        assert (await client.request(request())).status == 200
        await backend.disconnected()
        await until(lambda: gateway.worker.report().connections["baremetal", "api-1"] == (0, 0))
        assert backend.connections == number
