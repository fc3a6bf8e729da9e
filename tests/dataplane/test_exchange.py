"""Ordinary exchanges: requests and responses pass, connections are reused, heads are rewritten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.fleet.service import Match
from gateway.telemetry.request_record import NO_BACKEND
from tests.kit.backends import UpstreamConnection, always, respond_with, serve
from tests.kit.messages import (
    KIB,
    MAX_FIELD,
    MIN_FIELD,
    STANDARD_FIELD,
    VERSION_FIELD,
    chunked,
    request,
    response,
    version_line,
)
from tests.kit.workers import Testbed


async def test_a_request_is_negotiated_forwarded_answered_and_recorded(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    answer = await gateway.request(
        request("GET", "/v1/nodes?limit=5", version_line("1.31"), "Accept: text/plain")
    )

    assert (answer.status, answer.body) == (200, b'{"nodes": []}')
    assert (answer.one(VERSION_FIELD), answer.one(MIN_FIELD), answer.one(MAX_FIELD)) == (
        "1.31",
        "1.1",
        "1.90",
    )
    assert answer.one("vary") == f"{STANDARD_FIELD}, {VERSION_FIELD}"
    assert backend.only_request.start_line == "GET /v1/nodes?limit=5 HTTP/1.1"
    assert backend.only_request.one(VERSION_FIELD) == "1.31"
    assert backend.only_request.one(STANDARD_FIELD) == "baremetal 1.31"
    assert backend.only_request.one("accept") == "text/plain"
    record = await gateway.recorded()
    assert (record.service, record.backend, record.method, record.status) == (
        "baremetal",
        "api-1",
        "GET",
        200,
    )
    assert (record.version, record.attempts, record.bytes_out, record.reason) == ("1.31", 1, 13, "")
    assert (record.target, record.client) == ("/v1/nodes?limit=5", "127.0.0.1")


async def test_one_backend_connection_serves_many_requests_of_many_clients(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    first, second = await gateway.client(), await gateway.client()

    for client in (first, second, first, second):
        assert (await client.request(request())).status == 200

    assert backend.connections == 1
    assert gateway.worker.report().connections == {("baremetal", "api-1"): (1, 0)}


async def test_requests_at_the_same_time_never_share_a_backend_connection(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.backend.connected(2)
        await upstream.send(response(200, body=b"one at a time"))
        await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script)
    first, second = await gateway.client(), await gateway.client()
    await first.send(request())
    await second.send(request())

    assert (await first.response()).status == (await second.response()).status == 200
    assert len(backend.requests) == 2


async def test_a_backend_that_closes_after_its_response_gets_a_new_connection(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(
        respond_with(response(200, "Connection: close", body=b"bye"))
    )
    client = await gateway.client()

    for _ in range(3):
        answer = await client.request(request())
        assert (answer.status, answer.body) == (200, b"bye")
        assert "connection" not in answer.names

    assert backend.connections == 3


@pytest.mark.parametrize(
    "method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT", "SEARCH"]
)
async def test_methods_are_forwarded(testbed: Testbed, method: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request(method))).status == 200
    assert backend.only_request.method == method


async def test_requests_without_a_service_get_a_short_plain_404(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, match=Match(host=("metal.example",), path="/baremetal"))
    client = await gateway.client()

    for target, host in (("/baremetal/v1", "other.example"), ("/baremetals", "metal.example")):
        answer = await client.request(request("GET", target, host=host))
        assert answer.status == 404
        assert answer.one("content-type").startswith("text/plain")
    assert (await client.request(request("GET", "/baremetal/v1/x", host="METAL.example:8080"))).status == 200
    assert [message.target for message in backend.requests] == ["/v1/x"]
    assert [record.backend for record in gateway.records] == [NO_BACKEND, NO_BACKEND, "api-1"]


# --- bodies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 100, 64 * KIB, 64 * KIB + 1, 300 * KIB])
async def test_a_body_with_a_length_arrives_with_that_length(testbed: Testbed, size: int) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    assert (await gateway.request(request("POST", body=body))).status == 200
    assert backend.only_request.one("content-length") == str(size)
    assert backend.only_request.body == body


async def test_a_small_chunked_body_is_sent_with_a_length_since_old_servers_refuse_chunks(
    testbed: Testbed,
) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    head = request("POST", "/v1/nodes", "Transfer-Encoding: chunked")

    assert (await gateway.request(head, chunked(b"a" * 100, b"", b"b" * 50))).status == 200
    assert (backend.only_request.framing, backend.only_request.body) == ("length", b"a" * 100 + b"b" * 50)


async def test_an_empty_chunked_body_is_an_empty_body(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (
        await gateway.request(request("POST", "/v1/nodes", "Transfer-Encoding: chunked"), chunked())
    ).status == 200
    assert (backend.only_request.framing, backend.only_request.one("content-length")) == ("length", "0")


async def test_a_large_chunked_body_stays_chunked(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    pieces = [b"%03d" % number * 1000 for number in range(100)]

    head = request("POST", "/v1/nodes", "Transfer-Encoding: Chunked")
    assert (await gateway.request(head, chunked(*pieces))).status == 200
    assert (backend.only_request.framing, backend.only_request.body) == ("chunked", b"".join(pieces))


async def test_a_streamed_body_reaches_the_backend_before_it_is_complete(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        assert await upstream.reader.readexactly(70 * KIB) == b"a" * 70 * KIB
        upstream.backend.record_request(upstream.backend.requests[0])  # lets the test go on
        assert await upstream.reader.readexactly(70 * KIB) == b"b" * 70 * KIB
        await upstream.send(response(201, body=b"created"))

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request("PUT", "/v1/x", f"Content-Length: {140 * KIB}"), b"a" * 70 * KIB)
    await backend.received(2)
    await client.send(b"b" * 70 * KIB)

    assert (await client.response()).status == 201


async def test_a_response_streams_before_it_is_complete(testbed: Testbed) -> None:
    upstreams: list[UpstreamConnection] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(response(200, "Transfer-Encoding: chunked") + b"5\r\nfirst\r\n")
        upstreams.append(upstream)
        await upstream.ended()

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request())
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert await client.reader.readexactly(10) == b"5\r\nfirst\r\n"
    await upstreams[0].send(b"4\r\nlast\r\n0\r\n\r\n")
    assert await client.reader.readexactly(14) == b"4\r\nlast\r\n0\r\n\r\n"


async def test_a_response_until_close_becomes_chunked_and_the_client_stays_connected(
    testbed: Testbed,
) -> None:
    gateway, _ = await testbed.gateway_and_backend(
        respond_with(f"HTTP/1.0 200 OK\r\n{version_line('1.1')}\r\n\r\nall of it".encode())
    )
    client = await gateway.client()

    for _ in range(2):
        answer = await client.request(request())
        assert (answer.framing, answer.body) == ("chunked", b"all of it")


@pytest.mark.parametrize("length", ["Content-Length: 1234", "X-No: length", "Transfer-Encoding: chunked"])
async def test_a_response_to_head_has_no_body_whatever_its_fields_say(testbed: Testbed, length: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(
        always(f"HTTP/1.1 200 OK\r\n{version_line('1.1')}\r\n{length}\r\n\r\n".encode())
    )
    client = await gateway.client()

    for _ in range(2):
        answer = await client.request(request("HEAD"))
        assert answer.status == 200
        assert answer.every("content-length") == (["1234"] if "1234" in length else [])
    assert backend.connections == 1


@pytest.mark.parametrize("line", ["HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified"])
async def test_responses_without_a_body_are_complete_with_their_head(testbed: Testbed, line: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(
        always(f'{line}\r\n{version_line("1.1")}\r\nETag: "1"\r\n\r\n'.encode())
    )
    client = await gateway.client()

    for _ in range(2):
        answer = await client.request(request())
        assert (answer.start_line, answer.one("etag"), answer.framing) == (line, '"1"', "none")
        assert "transfer-encoding" not in answer.names
    assert backend.connections == 1


async def test_a_204_leaves_without_a_length(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(
        always(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
    )

    assert "content-length" not in (await gateway.request(request("DELETE"))).names


@pytest.mark.parametrize("body", [b"", b"x", b"y" * 200 * KIB])
async def test_response_bodies_arrive_whole(testbed: Testbed, body: bytes) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(response(200, body=body)))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.request(request())
        assert (answer.framing, answer.body) == ("length", body)


async def test_responses_keep_their_status_reason_phrase_and_fields(testbed: Testbed) -> None:
    data = response(418, "Set-Cookie: a=1", "Set-Cookie: b=2", "X-Odd:  two  words ", reason="I'm a  teapot")
    gateway, _ = await testbed.gateway_and_backend(always(data))

    answer = await gateway.request(request())

    assert answer.start_line == "HTTP/1.1 418 I'm a  teapot"
    assert answer.every("set-cookie") == ["a=1", "b=2"]
    assert answer.one("x-odd") == "two  words"


# --- clients of HTTP/1.0, Host, targets --------------------------------------------------------------------


async def test_a_client_of_http_1_0_gets_no_chunks_and_the_end_of_the_connection(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(
        always(response(200, "Transfer-Encoding: chunked") + chunked(b"ab", b"cd"))
    )
    client = await gateway.client()

    answer = await client.request(request(http="1.0"))

    assert (answer.framing, answer.body) == ("close", b"abcd")
    assert answer.one("connection") == "close"
    assert backend.only_request.start_line.endswith("HTTP/1.1")


async def test_a_client_of_http_1_0_may_keep_its_connection(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    for _ in range(2):
        answer = await client.request(request("GET", "/v1/nodes", "Connection: Keep-Alive", http="1.0"))
        assert answer.one("connection") == "keep-alive"
    assert (await client.request(request(http="1.0"))).one("connection") == "close"
    assert not (await client.ended()).rest


async def test_a_client_of_http_1_0_may_leave_out_host(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request(http="1.0", host=None))).status == 200
    assert backend.only_request.one("host") == f"127.0.0.1:{backend.port}"


@pytest.mark.parametrize("host", ["api.example", "API.example:8080", "[::1]:80", "10.0.0.1", "a_b.example"])
async def test_host_is_kept(testbed: Testbed, host: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request(host=host))).status == 200
    assert backend.only_request.one("host") == host


@pytest.mark.parametrize(
    "target",
    [
        "/v1//nodes",
        "/v1/nodes/a%20b",
        "/v1/n%C3%B6des",
        "/v1/nodes?x=%2F%00&y=a//b",
        "/v1/nodes?",
        "/v1/(a);p=1/*",
    ],
)
async def test_targets_are_forwarded_byte_for_byte(testbed: Testbed, target: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request("GET", target))).status == 200
    assert backend.only_request.target == target


@pytest.mark.parametrize(
    "target, local",
    [
        ("/metal", "/"),
        ("/metal/", "/"),
        ("/metal/v1/nodes", "/v1/nodes"),
        ("/metal//v1//n%20x?", "//v1//n%20x?"),
        ("/metal/metal/x?a=/metal", "/metal/x?a=/metal"),
        ("/metal?q=1", "/?q=1"),
    ],
)
async def test_exactly_the_prefix_is_removed(testbed: Testbed, target: str, local: str) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, match=Match(path="/metal"))

    assert (await gateway.request(request("GET", target))).status == 200
    assert backend.only_request.target == local
    assert backend.only_request.one("x-forwarded-prefix") == "/metal"


async def test_a_prefix_may_be_kept(testbed: Testbed) -> None:
    backend = await testbed.backend()
    gateway = await testbed.gateway(backend, match=Match(path="/metal", strip_prefix=False))

    assert (await gateway.request(request("GET", "/metal/v1/nodes"))).status == 200
    assert backend.only_request.target == "/metal/v1/nodes"
    assert "x-forwarded-prefix" not in backend.only_request.names


async def test_a_backend_may_have_a_base_path(testbed: Testbed) -> None:
    scripted = await testbed.backend()
    gateway = await testbed.gateway(replace(scripted.backend, path="/base"))

    assert (await gateway.request(request("GET", "/v1/nodes?x=1"))).status == 200
    assert scripted.only_request.target == "/base/v1/nodes?x=1"


async def test_the_asterisk_form_gets_no_base_path(testbed: Testbed) -> None:
    scripted = await testbed.backend(serve)
    gateway = await testbed.gateway(replace(scripted.backend, path="/base"))

    assert (await gateway.request(request("OPTIONS", "*"))).status == 200
    assert scripted.only_request.target == "*"


# --- 100-continue ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 100 * KIB])
async def test_a_client_that_expects_100_gets_it_from_the_gateway(testbed: Testbed, size: int) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    interim = await client.request(
        request("POST", "/v1/nodes", f"Content-Length: {size}", "Expect: 100-continue"), method="POST"
    )
    assert interim.head == b"HTTP/1.1 100 Continue\r\n\r\n"
    answer = await client.request(b"x" * size, method="POST")

    assert answer.status == 200
    assert len(backend.only_request.body) == size
    assert "expect" not in backend.only_request.names
    assert await client.is_open()


async def test_a_refused_request_that_expects_100_ends_its_connection(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    answer = await client.request(
        request("POST", "/v1/nodes", version_line("1.99"), "Content-Length: 5", "Expect: 100-continue")
    )

    assert (answer.status, answer.one("connection")) == (406, "close")
    assert await client.ended() == (b"", False)
    assert not backend.requests


async def test_a_refused_request_with_a_small_body_keeps_its_connection(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    answer = await client.request(request("POST", "/v1/nodes", version_line("1.99"), "Content-Length: 1000"))
    assert answer.status == 406
    await client.send(b"x" * 1000)

    assert await client.is_open()
    assert [message.method for message in backend.requests] == ["GET"]


async def test_interim_responses_of_backends_are_no_final_responses(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(
        always(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + response(200, body=b"done"))
    )
    client = await gateway.client()

    for _ in range(2):
        await client.send(request())
        answer = await client.response()
        while answer.status < 200:
            answer = await client.response()
        assert (answer.status, answer.body) == (200, b"done")
