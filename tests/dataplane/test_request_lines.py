"""Heads, request lines, hosts, targets, pipelining and sizes: invalid ones are refused (threats S10-S19)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio

import pytest

from tests.dataplane.assertions import assert_refused
from tests.kit.backends import UpstreamConnection, serve
from tests.kit.messages import SMUGGLED, VERSION_FIELD, request, request_head, response, version_line
from tests.kit.workers import Testbed


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
async def test_S10_line_ends_and_control_bytes(testbed: Testbed, data: bytes) -> None:
    await assert_refused(testbed, data)


@pytest.mark.parametrize(
    "data",
    [
        request_head("X: a", " folded"),
        request_head("X: a", "\tfolded"),
        request_head(" X: a"),
        b"GET /v1 HTTP/1.1\r\n Host: api.example\r\n\r\n",
        b" GET /v1 HTTP/1.1\r\nHost: api.example\r\n\r\n",
        b"\r\n\r\n\r\nGET /v1 HTTP/1.1\r\nHost: api.example\r\n\r\n",
        b"\n" + request_head(),
    ],
)
async def test_S11_folded_lines_and_leading_blanks(testbed: Testbed, data: bytes) -> None:
    await assert_refused(testbed, data)


async def test_S11_one_empty_line_before_a_request_is_skipped(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    for _ in range(2):
        assert (await client.request(b"\r\n" + request(), method="GET")).status == 200


async def test_S11_a_second_empty_line_is_refused_also_when_it_arrives_alone(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client, other = await gateway.client(), await gateway.client()
    await client.send(b"\r\n")
    await other.request(request())  # meanwhile the empty line has been read

    assert (await client.request(b"\r\n" + request(), method="GET")).status == 400
    assert len(backend.requests) == 1


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
async def test_S12_names_that_are_not_tokens(testbed: Testbed, line: str) -> None:
    await assert_refused(testbed, request_head(line))


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
async def test_S13_request_lines(testbed: Testbed, start: str, statuses: tuple[int, ...]) -> None:
    await assert_refused(testbed, request_head(start=start), *statuses)


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
        ("Host: a example",),
        ("Host: [::1",),
        ("Host: [v1.x]",),
        ("Host: \xe4.example",),
        ("Host: a%2eexample",),
        ("Host: " + "a" * 300,),
    ],
)
async def test_S14_hosts(testbed: Testbed, lines: tuple[str, ...]) -> None:
    await assert_refused(testbed, request_head(*lines, host=False))


@pytest.mark.parametrize("host", ["a.example", "127.0.0.1", "[::1]"])
@pytest.mark.parametrize("port", ["65536", "65540", "65600", "66000", "70000", "99999", "000080"])
async def test_R3_V13_a_port_that_no_server_can_have(testbed: Testbed, host: str, port: str) -> None:
    await assert_refused(testbed, request_head(f"Host: {host}:{port}", host=False))
    await assert_refused(testbed, request_head(start=f"GET http://{host}:{port}/v1/nodes HTTP/1.1"))


@pytest.mark.parametrize("port", ["", ":", ":0", ":80", ":00080", ":9999", ":59999", ":60000", ":65535"])
async def test_R3_V13_every_other_port_passes(testbed: Testbed, port: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    for _ in range(2):  # the second one is read by a layout
        assert (await client.request(request(host=f"a.example{port}"))).status == 200

    assert [each.one("host") for each in backend.requests] == [f"a.example{port}"] * 2


async def test_R3_V13_a_layout_refuses_such_a_port_as_well(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    assert (await client.request(request(host="a.example:65535"))).status == 200

    assert (await client.request(request(host="a.example:65536"))).status == 400
    assert len(backend.requests) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v1/nodes HTTP/1.1\n",
        b"GET /v1/nodes HTTP/1.1\nHost: api.example\n\n",
        b"GET /v1/nodes HTTP/1.1\nHost: api.example\r\n",
        b"GET /v1/nodes HTTP/1.0\n\n",
        b"GET /v1/nodes HTTP/1.1\r\nHost: api.example\n\n",
        b"\n",
    ],
)
async def test_R3_V13_a_bare_line_end_is_refused_before_the_head_ends(testbed: Testbed, data: bytes) -> None:
    """The client waits for the response to a head that, to it, is complete."""
    gateway, backend = await testbed.gateway_and_backend(serve, client_head=3600.0)
    client = await gateway.client()

    answer = await client.request(data, method="GET")

    assert (answer.status, answer.one("connection")) == (400, "close")
    assert gateway.metric("skewgate_client_errors_total", reason="line_end") == 1
    assert not backend.requests


async def test_R3_V13_a_head_that_is_cut_between_its_line_ends_is_no_broken_one(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    for byte in request():
        await client.send(bytes([byte]))
        await asyncio.sleep(0)

    assert (await client.response()).status == 200
    assert len(backend.requests) == 1


async def test_S14_an_empty_host_after_a_request_that_had_none(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    first = b"GET /v1/nodes HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    assert (await client.request(first)).status == 200

    assert (await client.request(request_head("Host: ", host=False))).status == 400
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
async def test_S15_the_authority_of_an_absolute_form_replaces_host(
    testbed: Testbed, target: str, host: str, local: str
) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    assert (await client.request(request("GET", target, host="other.example"))).status == 200
    assert (backend.only_request.target, backend.only_request.one("host")) == (local, host)
    assert (await client.request(request(host="other.example"))).status == 200
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
async def test_S15_other_forms_of_a_target(testbed: Testbed, start: str) -> None:
    await assert_refused(testbed, request_head(start=start), 400, 501)


async def test_S15_the_asterisk_is_for_options(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request("OPTIONS", "*"))).status == 200
    assert backend.only_request.start_line == "OPTIONS * HTTP/1.1"


@pytest.mark.parametrize(
    "listed",
    [
        "Transfer-Encoding",
        "content-length",
        "close, Host",
        VERSION_FIELD,
        VERSION_FIELD.lower().replace("-", "_"),
        "keep-alive,host",
    ],
)
async def test_S16_connection_must_not_list_host_framing_or_versions(testbed: Testbed, listed: str) -> None:
    await assert_refused(
        testbed, request_head(f"Connection: {listed}", version_line("1.10"), "Content-Length: 0")
    )


async def test_S17_pipelined_requests_are_answered_in_order(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            await upstream.send(response(200, body=message.target.encode() + message.body))

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    requests = [request("POST", f"/v1/{number}", body=b"=%d" % number) for number in range(20)]
    await client.send(*requests)

    for number in range(20):
        assert (await client.response()).body == b"/v1/%d=%d" % (number, number)
    assert backend.connections == 1  # one at a time: a second connection was never needed


async def test_S17_nothing_is_read_behind_a_framing_error(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    await client.send(request(), request_head("bad line"), SMUGGLED)

    assert (await client.response()).status == 200
    assert (await client.response()).status == 400
    assert (await client.ended()).rest == b""
    assert [message.target for message in backend.requests] == ["/v1/nodes"]


async def test_S17_nothing_is_read_behind_connection_close(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    await client.send(request("GET", "/v1/nodes", "Connection: close"), SMUGGLED)

    assert (await client.response()).one("connection") == "close"
    assert (await client.ended()).rest == b""
    assert [message.target for message in backend.requests] == ["/v1/nodes"]


async def test_S18_a_head_that_pauses_gets_408_and_the_end(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, client_head=0.1)
    client = await gateway.client()
    await client.send(b"POST /v1/nodes HTTP/1.1\r\nHost: api.example\r\nContent-Le")

    answer = await client.response()

    assert (answer.status, answer.one("connection")) == (408, "close")
    assert (await client.ended()).rest == b""
    assert not backend.requests
    assert gateway.metric("skewgate_client_errors_total", reason="timeout") == 1


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize(
    "data, status",
    [
        (request_head(start=f"GET /{'a' * 3000} HTTP/1.1"), 414),
        (b"GET /" + b"a" * 6000, 414),
        (b"G" * 6000, 414),
        (request_head(f"X-Long: {'a' * 3000}"), 431),
        (request_head(f"{'X' * 3000}: a"), 431),
        (request_head(*(f"X-{number}: a" for number in range(60))), 431),
        (request_head(*(f"X: {'a' * 500}" for _ in range(10))), 431),
        (b"GET / HTTP/1.1\r\n" + b"X: aaaaaaaaaaaaaa\r\n" * 300, 431),
        (request_head(start=f"{'G' * 40} /v1 HTTP/1.1"), 400),
    ],
)
async def test_S19_heads_that_are_too_large(
    testbed: Testbed, data: bytes, status: int, bytewise: bool
) -> None:
    limits = {"head": 4096, "line": 2048, "headers": 50}
    gateway, backend = await testbed.gateway_and_backend(serve, limits=limits)
    client = await gateway.client()
    if bytewise:
        await client.send_bytewise(data)
    else:
        await client.send(data)

    answer = await client.response()

    assert (answer.status, answer.one("connection")) == (status, "close")
    assert not backend.requests


async def test_S19_limits_hold_on_further_requests_with_the_same_fields(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, limits={"head": 4096, "line": 2048})
    client = await gateway.client()
    for _ in range(2):
        assert (await client.request(request())).status == 200

    answer = await client.request(request("GET", f"/{'a' * 2100}"))

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
    testbed: Testbed, start: str, status: int
) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    for _ in range(2):
        assert (await client.request(request_head())).status == 200

    assert (await client.request(request_head(start=start), method="GET")).status == status
    assert len(backend.requests) == 2


async def test_S19_heads_just_within_the_limits(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, limits={"line": 2048, "headers": 20})
    lines = [f"X-Long: {'a' * 2040}", *(f"X-{number}: a" for number in range(18))]

    assert (
        await gateway.request(request_head(*lines, start=f"GET /{'a' * (2048 - 14)} HTTP/1.1"))
    ).status == 200
    assert backend.only_request.one("x-17") == "a"


async def test_S19_a_head_byte_by_byte_is_a_head(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    await client.send_bytewise(request("POST", "/v1/nodes", version_line("1.12"), body=b"hello"))

    assert (await client.response()).status == 200
    assert (backend.only_request.body, backend.only_request.one(VERSION_FIELD)) == (b"hello", "1.12")
