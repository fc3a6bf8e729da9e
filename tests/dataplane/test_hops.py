"""What speaks of one hop only stays there: Connection, Upgrade, methods, expectations, Via (attacks H)."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import pytest

from tests.dataplane.attacks import KIB, SMUGGLED, head, refused
from tests.dataplane.stand import Hop, House, ScriptedBackend, Stand, always, serve
from tests.dataplane.wire import SERVED, Message, reply, request


async def test_H1_what_connection_lists_is_removed_both_ways(house: House) -> None:
    said = reply(200, "Connection: X-Back, keep-alive", "X-Back: secret", "X-Stays: yes", body=b"ok")
    gateway, backend = await house.behind(always(said))

    lines = (
        "Connection: X-Hop, close",
        "Connection: x-other",
        "X-HOP: 1",
        "x_hop: 2",
        "X-Other: 3",
        "X-Stays: yes",
    )
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
    gone = (
        "Proxy-Connection: keep-alive",
        "Keep-Alive: timeout=5",
        "Upgrade: websocket",
        "Proxy-Authorization: b",
    )
    said = reply(200, *gone[:3], "Trailer: X", "TE: deflate", body=b"ok")
    gateway, backend = await house.behind(always(said))

    answer = await gateway.ask(
        request("GET", "/v1/nodes", *gone, "TE: deflate", "Trailer: X", "Authorization: mine")
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
    assert not removed & backend.only.names
    assert not removed & answer.names
    assert backend.only.one("authorization") == "mine"


async def test_H3_no_upgrade_to_h2c(house: House) -> None:
    gateway, backend = await house.behind(serve)
    lines = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    )

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
    "start",
    [
        "CONNECT 127.0.0.1:22 HTTP/1.1",
        "TRACE /v1/nodes HTTP/1.1",
        "TRACK / HTTP/1.1",
        "FROBNICATE / HTTP/1.1",
    ],
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
