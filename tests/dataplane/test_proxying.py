"""The ordinary day: requests and replies pass, connections are kept and shared, heads are rewritten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.service import Match
from gateway.telemetry.outcome import NO_BACKEND
from tests.dataplane.stand import Hop, House, always, answering, serve
from tests.dataplane.wire import HIGHEST, LOWEST, SERVED, STANDARD, asks, chunked, reply, request

KIB = 1024


async def test_a_request_is_negotiated_forwarded_answered_and_told(house: House) -> None:
    gateway, backend = await house.behind(serve)

    answer = await gateway.ask(request("GET", "/v1/nodes?limit=5", asks("1.31"), "Accept: text/plain"))

    assert (answer.status, answer.body) == (200, b'{"nodes": []}')
    assert (answer.one(SERVED), answer.one(LOWEST), answer.one(HIGHEST)) == ("1.31", "1.1", "1.90")
    assert answer.one("vary") == f"{STANDARD}, {SERVED}"
    assert backend.only.start == "GET /v1/nodes?limit=5 HTTP/1.1"
    assert backend.only.one(SERVED) == "1.31"
    assert backend.only.one(STANDARD) == "baremetal 1.31"
    assert backend.only.one("accept") == "text/plain"
    seen = await gateway.told()
    assert (seen.service, seen.backend, seen.method, seen.status) == ("baremetal", "api-1", "GET", 200)
    assert (seen.version, seen.attempts, seen.bytes_out, seen.error) == ("1.31", 1, 13, "")
    assert (seen.target, seen.client) == ("/v1/nodes?limit=5", "127.0.0.1")


async def test_one_backend_connection_serves_many_requests_of_many_clients(house: House) -> None:
    gateway, backend = await house.behind(serve)
    first, second = await gateway.client(), await gateway.client()

    for client in (first, second, first, second):
        assert (await client.ask(request())).status == 200

    assert backend.connections == 1
    assert gateway.worker.connections() == {("baremetal", "api-1"): (1, 0)}


async def test_requests_at_the_same_time_never_share_a_backend_connection(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.backend.connected(2)
        await hop.say(reply(200, body=b"one at a time"))
        await hop.ended()

    gateway, backend = await house.behind(script)
    first, second = await gateway.client(), await gateway.client()
    await first.send(request())
    await second.send(request())

    assert (await first.reply()).status == (await second.reply()).status == 200
    assert len(backend.requests) == 2


async def test_a_backend_that_closes_after_its_reply_is_connected_to_anew(house: House) -> None:
    gateway, backend = await house.behind(answering(reply(200, "Connection: close", body=b"bye")))
    client = await gateway.client()

    for _ in range(3):
        answer = await client.ask(request())
        assert (answer.status, answer.body) == (200, b"bye")
        assert "connection" not in answer.names

    assert backend.connections == 3


@pytest.mark.parametrize(
    "method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT", "SEARCH"]
)
async def test_methods_are_passed_on(house: House, method: str) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request(method))).status == 200
    assert backend.only.method == method


async def test_requests_without_a_service_get_a_short_plain_404(house: House) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, match=Match(host="metal.example", path="/baremetal"))
    client = await gateway.client()

    for target, host in (("/baremetal/v1", "other.example"), ("/baremetals", "metal.example")):
        answer = await client.ask(request("GET", target, host=host))
        assert answer.status == 404
        assert answer.one("content-type").startswith("text/plain")
    assert (await client.ask(request("GET", "/baremetal/v1/x", host="METAL.example:8080"))).status == 200
    assert [each.target for each in backend.requests] == ["/v1/x"]
    assert [each.backend for each in gateway.outcomes] == [NO_BACKEND, NO_BACKEND, "api-1"]


# --- bodies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 100, 64 * KIB, 64 * KIB + 1, 300 * KIB])
async def test_a_body_with_a_length_arrives_with_that_length(house: House, size: int) -> None:
    gateway, backend = await house.behind(serve)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    assert (await gateway.ask(request("POST", body=body))).status == 200
    assert backend.only.one("content-length") == str(size)
    assert backend.only.body == body


async def test_a_small_chunked_body_is_sent_with_a_length_since_old_servers_refuse_chunks(
    house: House,
) -> None:
    gateway, backend = await house.behind(serve)
    head = request("POST", "/v1/nodes", "Transfer-Encoding: chunked")

    assert (await gateway.ask(head, chunked(b"a" * 100, b"", b"b" * 50))).status == 200
    assert (backend.only.framing, backend.only.body) == ("length", b"a" * 100 + b"b" * 50)


async def test_an_empty_chunked_body_is_an_empty_body(house: House) -> None:
    gateway, backend = await house.behind(serve)

    assert (
        await gateway.ask(request("POST", "/v1/nodes", "Transfer-Encoding: chunked"), chunked())
    ).status == 200
    assert (backend.only.framing, backend.only.one("content-length")) == ("length", "0")


async def test_a_large_chunked_body_stays_chunked(house: House) -> None:
    gateway, backend = await house.behind(serve)
    pieces = [b"%03d" % number * 1000 for number in range(100)]

    head = request("POST", "/v1/nodes", "Transfer-Encoding: Chunked")
    assert (await gateway.ask(head, chunked(*pieces))).status == 200
    assert (backend.only.framing, backend.only.body) == ("chunked", b"".join(pieces))


async def test_a_streamed_body_reaches_the_backend_before_it_is_complete(house: House) -> None:
    async def script(hop: Hop) -> None:
        await hop.head()
        assert await hop.reader.readexactly(70 * KIB) == b"a" * 70 * KIB
        hop.backend.note(hop.backend.requests[0])  # tells the client to go on
        assert await hop.reader.readexactly(70 * KIB) == b"b" * 70 * KIB
        await hop.say(reply(201, body=b"created"))

    gateway, backend = await house.behind(script)
    client = await gateway.client()
    await client.send(request("PUT", "/v1/x", f"Content-Length: {140 * KIB}"), b"a" * 70 * KIB)
    await backend.came(2)
    await client.send(b"b" * 70 * KIB)

    assert (await client.reply()).status == 201


async def test_a_reply_streams_before_it_is_complete(house: House) -> None:
    house_may_go_on: list[Hop] = []

    async def script(hop: Hop) -> None:
        await hop.request()
        await hop.say(reply(200, "Transfer-Encoding: chunked") + b"5\r\nfirst\r\n")
        house_may_go_on.append(hop)
        await hop.ended()

    gateway, _ = await house.behind(script)
    client = await gateway.client()
    await client.send(request())
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert await client.reader.readexactly(10) == b"5\r\nfirst\r\n"
    await house_may_go_on[0].say(b"4\r\nlast\r\n0\r\n\r\n")
    assert await client.reader.readexactly(14) == b"4\r\nlast\r\n0\r\n\r\n"


async def test_a_reply_until_close_becomes_chunked_and_the_client_stays(house: House) -> None:
    gateway, _ = await house.behind(answering(b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\nall of it"))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.ask(request())
        assert (answer.framing, answer.body) == ("chunked", b"all of it")


@pytest.mark.parametrize("length", ["Content-Length: 1234", "X-No: length", "Transfer-Encoding: chunked"])
async def test_a_reply_to_head_has_no_body_whatever_its_head_says(house: House, length: str) -> None:
    gateway, backend = await house.behind(always(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode()))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.ask(request("HEAD"))
        assert answer.status == 200
        assert answer.every("content-length") == (["1234"] if "1234" in length else [])
    assert backend.connections == 1


@pytest.mark.parametrize("line", ["HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified"])
async def test_replies_without_a_body_are_complete_with_their_head(house: House, line: str) -> None:
    gateway, backend = await house.behind(always(f'{line}\r\nETag: "1"\r\n\r\n'.encode()))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.ask(request())
        assert (answer.start, answer.one("etag"), answer.framing) == (line, '"1"', "none")
        assert "transfer-encoding" not in answer.names
    assert backend.connections == 1


async def test_a_204_leaves_without_a_length(house: House) -> None:
    gateway, _ = await house.behind(always(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"))

    assert "content-length" not in (await gateway.ask(request("DELETE"))).names


@pytest.mark.parametrize("body", [b"", b"x", b"y" * 200 * KIB])
async def test_reply_bodies_arrive_whole(house: House, body: bytes) -> None:
    gateway, _ = await house.behind(always(reply(200, body=body)))
    client = await gateway.client()

    for _ in range(2):
        answer = await client.ask(request())
        assert (answer.framing, answer.body) == ("length", body)


async def test_replies_keep_their_status_reason_and_own_headers(house: House) -> None:
    said = reply(418, "Set-Cookie: a=1", "Set-Cookie: b=2", "X-Odd:  two  words ", reason="I'm a  teapot")
    gateway, _ = await house.behind(always(said))

    answer = await gateway.ask(request())

    assert answer.start == "HTTP/1.1 418 I'm a  teapot"
    assert answer.every("set-cookie") == ["a=1", "b=2"]
    assert answer.one("x-odd") == "two  words"


# --- clients of HTTP/1.0, Host, targets --------------------------------------------------------------------


async def test_a_client_of_http_1_0_gets_no_chunks_and_the_end_of_the_connection(house: House) -> None:
    gateway, backend = await house.behind(
        always(reply(200, "Transfer-Encoding: chunked") + chunked(b"ab", b"cd"))
    )
    client = await gateway.client()

    answer = await client.ask(request(http="1.0"))

    assert (answer.framing, answer.body) == ("close", b"abcd")
    assert answer.one("connection") == "close"
    assert backend.only.start.endswith("HTTP/1.1")


async def test_a_client_of_http_1_0_may_keep_its_connection(house: House) -> None:
    gateway, _ = await house.behind(serve)
    client = await gateway.client()

    for _ in range(2):
        answer = await client.ask(request("GET", "/v1/nodes", "Connection: Keep-Alive", http="1.0"))
        assert answer.one("connection") == "keep-alive"
    assert (await client.ask(request(http="1.0"))).one("connection") == "close"
    assert not (await client.ended()).rest


async def test_a_client_of_http_1_0_may_leave_out_host(house: House) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request(http="1.0", host=None))).status == 200
    assert backend.only.one("host") == f"127.0.0.1:{backend.port}"


@pytest.mark.parametrize("host", ["api.example", "API.example:8080", "[::1]:80", "10.0.0.1", "a_b.example"])
async def test_host_is_kept(house: House, host: str) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request(host=host))).status == 200
    assert backend.only.one("host") == host


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
async def test_targets_go_on_byte_for_byte(house: House, target: str) -> None:
    gateway, backend = await house.behind(serve)

    assert (await gateway.ask(request("GET", target))).status == 200
    assert backend.only.target == target


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
async def test_exactly_the_prefix_is_taken_off(house: House, target: str, local: str) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, match=Match(path="/metal"))

    assert (await gateway.ask(request("GET", target))).status == 200
    assert backend.only.target == local
    assert backend.only.one("x-forwarded-prefix") == "/metal"


async def test_a_prefix_may_be_left_on(house: House) -> None:
    backend = await house.backend()
    gateway = await house.gateway(backend, match=Match(path="/metal", strip_prefix=False))

    assert (await gateway.ask(request("GET", "/metal/v1/nodes"))).status == 200
    assert backend.only.target == "/metal/v1/nodes"
    assert "x-forwarded-prefix" not in backend.only.names


async def test_a_backend_may_live_below_a_path(house: House) -> None:
    scripted = await house.backend()
    gateway = await house.gateway(replace(scripted.backend, path="/base"))

    assert (await gateway.ask(request("GET", "/v1/nodes?x=1"))).status == 200
    assert scripted.only.target == "/base/v1/nodes?x=1"


async def test_the_server_as_a_whole_has_no_path_to_put_a_base_before(house: House) -> None:
    scripted = await house.backend(serve)
    gateway = await house.gateway(replace(scripted.backend, path="/base"))

    assert (await gateway.ask(request("OPTIONS", "*"))).status == 200
    assert scripted.only.target == "*"


# --- 100-continue ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5, 100 * KIB])
async def test_who_waits_for_100_is_told_to_go_on(house: House, size: int) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()

    interim = await client.ask(
        request("POST", "/v1/nodes", f"Content-Length: {size}", "Expect: 100-continue"), method="POST"
    )
    assert interim.head == b"HTTP/1.1 100 Continue\r\n\r\n"
    answer = await client.ask(b"x" * size, method="POST")

    assert answer.status == 200
    assert len(backend.only.body) == size
    assert "expect" not in backend.only.names
    assert await client.is_open()


async def test_a_refused_request_that_waits_for_100_gets_its_refusal_and_the_end(house: House) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()

    answer = await client.ask(
        request("POST", "/v1/nodes", asks("1.99"), "Content-Length: 5", "Expect: 100-continue")
    )

    assert (answer.status, answer.one("connection")) == (406, "close")
    assert await client.ended() == (b"", False)
    assert not backend.requests


async def test_a_refused_request_with_a_small_body_keeps_its_connection(house: House) -> None:
    gateway, backend = await house.behind(serve)
    client = await gateway.client()

    answer = await client.ask(request("POST", "/v1/nodes", asks("1.99"), "Content-Length: 1000"))
    assert answer.status == 406
    await client.send(b"x" * 1000)

    assert await client.is_open()
    assert [each.method for each in backend.requests] == ["GET"]


async def test_interim_replies_of_backends_do_not_disturb(house: House) -> None:
    gateway, _ = await house.behind(
        always(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + reply(200, body=b"done"))
    )
    client = await gateway.client()

    for _ in range(2):
        await client.send(request())
        answer = await client.reply()
        while answer.status < 200:
            answer = await client.reply()
        assert (answer.status, answer.body) == (200, b"done")
