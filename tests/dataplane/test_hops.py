"""Fields for one hop only: Connection, Upgrade, expectations, Via; and methods (threats H1-H9)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import pytest

from tests.dataplane.assertions import assert_refused
from tests.kit.backends import ScriptedBackend, UpstreamConnection, always, serve
from tests.kit.messages import KIB, SMUGGLED, VERSION_FIELD, Message, request, request_head, response
from tests.kit.workers import Gateway, Testbed


async def test_H1_fields_that_connection_lists_are_removed_both_ways(testbed: Testbed) -> None:
    data = response(200, "Connection: X-Back, keep-alive", "X-Back: secret", "X-Stays: yes", body=b"ok")
    gateway, backend = await testbed.gateway_and_backend(always(data))

    lines = (
        "Connection: X-Hop, close",
        "Connection: x-other",
        "X-HOP: 1",
        "x_hop: 2",
        "X-Other: 3",
        "X-Stays: yes",
    )
    answer = await gateway.request(request("GET", "/v1/nodes", *lines))

    assert not {"connection", "x-hop", "x_hop", "x-other"} & backend.only_request.names
    assert "x-back" not in answer.names
    assert (answer.one("x-stays"), backend.only_request.one("x-stays")) == ("yes", "yes")


@pytest.mark.parametrize(
    "token", ["x" * 3000, "(", "[", "\\", "^x", "a|b", "x*", "\xe4\xf6", '"', "{1}", "-", "_", "]"]
)
async def test_H1_options_of_a_client_are_names_and_not_patterns(testbed: Testbed, token: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    answer = await gateway.request(request("GET", "/v1/nodes", f"Connection: {token}", "X-Stays: yes"))

    assert answer.status in (200, 400)
    assert all(message.one("x-stays") == "yes" for message in backend.requests)


@pytest.mark.parametrize("token", ["x" * 3000, "(", "^x"])
async def test_H1_options_of_a_backend_are_names_and_not_patterns(testbed: Testbed, token: str) -> None:
    gateway, _ = await testbed.gateway_and_backend(
        always(response(200, f"Connection: {token}", "X-Stays: yes"))
    )

    assert (await gateway.request(request("POST"))).status in (200, 502)


async def test_H2_headers_of_one_hop_are_removed_both_ways(testbed: Testbed) -> None:
    fields = (
        "Proxy-Connection: keep-alive",
        "Keep-Alive: timeout=5",
        "Upgrade: websocket",
        "Proxy-Authorization: b",
    )
    data = response(200, *fields[:3], "Trailer: X", "TE: deflate", body=b"ok")
    gateway, backend = await testbed.gateway_and_backend(always(data))

    answer = await gateway.request(
        request("GET", "/v1/nodes", *fields, "TE: deflate", "Trailer: X", "Authorization: mine")
    )

    removed = {
        "proxy-connection",
        "keep-alive",
        "upgrade",
        "proxy-authorization",
        "te",
        "trailer",
        "connection",
    }
    assert not removed & backend.only_request.names
    assert not removed & answer.names
    assert backend.only_request.one("authorization") == "mine"


async def test_H3_no_upgrade_to_h2c(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    lines = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    )

    assert (await gateway.request(request("GET", "/v1/nodes", *lines))).status == 200
    assert not {"upgrade", "http2-settings", "connection"} & backend.only_request.names


async def test_H4_what_follows_an_upgrade_is_the_next_request(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    await client.send(request("GET", "/v1/nodes", "Connection: Upgrade", "Upgrade: x"), SMUGGLED)

    assert (await client.response()).status == (await client.response()).status == 200
    assert [message.target for message in backend.requests] == ["/v1/nodes", "/smuggled"]
    assert all(message.one(VERSION_FIELD) == "1.1" for message in backend.requests)


async def test_H5_a_101_from_a_backend(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(
        always(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
    )
    client = await gateway.client()

    answer = await client.request(request("GET", "/v1/nodes", "Connection: Upgrade", "Upgrade: x"))

    assert answer.status == 502
    assert "upgrade" not in answer.names
    await backend.disconnected()


@pytest.mark.parametrize(
    "start",
    [
        "CONNECT 127.0.0.1:22 HTTP/1.1",
        "TRACE /v1/nodes HTTP/1.1",
        "TRACK / HTTP/1.1",
    ],
)
async def test_H6_methods_that_are_not_proxied(testbed: Testbed, start: str) -> None:
    answer = await assert_refused(testbed, request_head(start=start), 405, 501)

    allowed = answer.one("allow")
    assert "GET" in allowed
    assert "TRACE" not in allowed


async def test_H7_an_early_final_status_ends_the_connection(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(response(401, "Content-Type: text/plain", body=b"unknown", reason="Unauthorized"))
        await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(request("POST", "/v1/x", f"Content-Length: {100 * KIB}", "Expect: 100-continue"))
    assert (await client.response("POST")).status == 100
    answer = await client.response("POST")

    assert (answer.status, answer.one("connection")) == (401, "close")
    assert (await client.ended()).rest == b""
    await backend.disconnected()


@pytest.mark.parametrize("expected", ["200-ok", "100-continue, x", "100-continue\r\nExpect: 200-ok"])
async def test_H7_unknown_expectations(testbed: Testbed, expected: str) -> None:
    await assert_refused(
        testbed, request_head(f"Expect: {expected}", "Content-Length: 5", start="POST /v1/x HTTP/1.1"), 417
    )


async def request_with_via(gateway: Gateway, backend: ScriptedBackend, times: int) -> Message:
    """A request with `times` entries of a gateway in `Via`: as the backend received it, or the refusal."""
    lines = [f"Via: 1.1 {'skewgate' if number % 2 else 'SkewGate'}" for number in range(times)]
    answer = await gateway.request(request("GET", "/v1/nodes", "Via: 1.0 fred, 1.1 other", *lines))
    return backend.requests[-1] if answer.status == 200 else answer


async def test_H9_via_is_kept_and_extended(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    message = await request_with_via(gateway, backend, 1)
    assert message.every("via") == ["1.0 fred, 1.1 other", "1.1 SkewGate", "1.1 skewgate"]
    assert (await gateway.request(request())).status == 200
    assert backend.requests[-1].every("via") == ["1.1 skewgate"]


@pytest.mark.parametrize("warm", [False, True])
async def test_H9_a_loop_is_cut(testbed: Testbed, warm: bool) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    if warm:  # with an idle connection to the backend, and without
        assert (await gateway.request(request())).status == 200

    answer = await request_with_via(gateway, backend, 20)

    assert answer.status == 508
    assert len(backend.requests) == int(warm)
