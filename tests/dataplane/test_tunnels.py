"""Upgrades: which begin a tunnel, what passes through it, and how it ends (threats H3 to H5, H10 to H13).

Raw bytes on both ends; `test_websockets` has a real protocol on them.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import random
import socket
from dataclasses import replace
from typing import Final

import pytest

from gateway.core.fleet.fleet import VersionMismatch
from gateway.telemetry.series.service import TunnelEnding
from tests.dataplane.upgrades import ALLOWED, ASKS, SWITCHES, UPGRADE, echo, exactly, switching, waiting_in
from tests.kit.backends import Script, ScriptedBackend, UpstreamConnection, refusing_backend, serve
from tests.kit.clients import Client
from tests.kit.ironic import reconfigure
from tests.kit.messages import (
    KIB,
    MAX_FIELD,
    MIN_FIELD,
    SMUGGLED,
    VERSION_FIELD,
    request,
    response,
    version_line,
)
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed, service_of, wait_ticks

SHOWN: Final = f"\r\n{MIN_FIELD}: 1.1\r\n{MAX_FIELD}: 1.95"


async def tunnel_to(
    testbed: Testbed, script: Script = echo, small_buffer: int = 0, **timeouts: float
) -> tuple[Gateway, ScriptedBackend, Client]:
    """An open tunnel; the client has read the 101."""
    gateway, backend = await testbed.gateway_and_backend(script, upgrade=ALLOWED, **timeouts)
    client = await gateway.client(small_buffer)
    answer = await client.request(UPGRADE)
    assert (answer.status, answer.one("upgrade"), answer.one("connection")) == (101, "echo", "Upgrade")
    return gateway, backend, client


def counts(gateway: Gateway) -> dict[str, float]:
    """What the metrics say of upgrades, without zeros."""
    series = {
        "forwarded": ("skewgate_upgrades_total", {"result": "forwarded"}),
        "removed": ("skewgate_upgrades_total", {"result": "removed"}),
        "open": ("skewgate_tunnels_open", {}),
        "in": ("skewgate_tunnel_bytes_total", {"direction": "in"}),
        "out": ("skewgate_tunnel_bytes_total", {"direction": "out"}),
    } | {ending.value: ("skewgate_tunnels_total", {"result": ending.value}) for ending in TunnelEnding}
    found = {
        key: gateway.metric(name, service="baremetal", **labels) for key, (name, labels) in series.items()
    }
    return {key: value for key, value in found.items() if value}


# --- which requests begin one -------------------------------------------------------------------------------


async def test_bytes_pass_both_ways_and_the_record_comes_at_the_end(testbed: Testbed) -> None:
    gateway, backend, client = await tunnel_to(testbed)

    for data in (b"hello", b"\x00\xff", b"x" * 200 * KIB):
        await client.send(data)
        assert await exactly(client, len(data)) == data
    assert gateway.records == []
    assert gateway.metric("skewgate_requests_in_flight", service="baremetal") == 0
    client.half_close()

    assert (await client.ended()) == (b"", False)
    record = await gateway.recorded()
    size = 7 + 200 * KIB
    assert (record.status, record.bytes_out, record.reason, record.backend) == (101, size, "", "api-1")
    assert record.seconds >= record.backend_seconds >= 0
    assert counts(gateway) == {"forwarded": 1, "in": size, "out": size, "closed": 1}
    assert backend.only_request.one("upgrade") == "echo"


async def test_the_version_is_negotiated_as_for_any_request(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(
        switching(SWITCHES.replace(b"\r\n\r\n", f"\r\n{VERSION_FIELD}: 1.31{SHOWN}\r\n\r\n".encode())),
        upgrade=ALLOWED,
    )

    refused = await gateway.request(request("GET", "/v1/nodes", *ASKS, version_line("1.99")))
    assert (refused.status, backend.connections) == (406, 0)
    client = await gateway.client()
    answer = await client.request(request("GET", "/v1/nodes", *ASKS, version_line("1.31")))

    assert backend.only_request.every(VERSION_FIELD) == ["1.31"]
    assert (answer.status, answer.every(VERSION_FIELD)) == (101, ["1.31"])
    assert answer.one(MAX_FIELD) == "1.90", "that of the offer"
    client.reset()
    assert (await gateway.recorded(2)).version == "1.31"


@pytest.mark.parametrize(
    "lines, sent",
    [
        (("Connection: upgrade", "Upgrade: ECHO"), "ECHO"),
        (("Connection: keep-alive, Upgrade", "Upgrade: x, echo, other/2, h2c, other/3"), "echo, other/2"),
        (("Connection: upgrade", "Upgrade: other/2", "Upgrade: echo"), "other/2, echo"),
    ],
)
async def test_what_the_service_allows_is_asked_for(
    testbed: Testbed, lines: tuple[str, ...], sent: str
) -> None:
    gateway, backend = await testbed.gateway_and_backend(switching(), upgrade=ALLOWED)

    assert (await (await gateway.client()).request(request("GET", "/v1/nodes", *lines))).status == 101
    assert backend.only_request.one("upgrade") == sent
    assert backend.only_request.one("connection") == "Upgrade"


NOT_ASKED: Final = {
    "not allowed": (("Connection: Upgrade", "Upgrade: websocket"), "1.1"),
    "another version": (("Connection: Upgrade", "Upgrade: other/3"), "1.1"),
    "h2c": (("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"), "1.1"),
    "HTTP": (("Connection: Upgrade", "Upgrade: HTTP/2.0, TLS/1.0, H2C"), "1.1"),
    "not listed": (("Upgrade: echo",), "1.1"),
    "HTTP/1.0": (ASKS, "1.0"),
    "malformed": (("Connection: Upgrade", "Upgrade: echo, e cho"), "1.1"),
    "an alias": (("Connection: Upgrade", "Up_grade: echo", "Upgrade_: echo"), "1.1"),
    "empty": (("Connection: Upgrade", "Upgrade: ,"), "1.1"),
    "too many": (("Connection: Upgrade", f"Upgrade: {'echo,' * 17}"), "1.1"),
}


@pytest.mark.parametrize("case", NOT_ASKED)
async def test_H3_any_other_upgrade_is_removed_and_the_request_goes_on(testbed: Testbed, case: str) -> None:
    lines, http = NOT_ASKED[case]
    # Even a service that was made with h2c, which no file can do.
    gateway, backend = await testbed.gateway_and_backend(serve, upgrade=(*ALLOWED, "h2c", "http/2.0"))
    client = await gateway.client()

    assert (await client.request(request("GET", "/v1/nodes", *lines, http=http))).status == 200
    assert not {"upgrade", "connection", "http2-settings"} & backend.only_request.names
    if http == "1.1":
        assert await client.is_open()


async def test_H3_a_discovery_document_is_never_a_tunnel(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve, upgrade=ALLOWED)

    assert (await gateway.request(request("GET", "/v1", *ASKS))).status == 200
    assert "upgrade" not in backend.only_request.names
    assert counts(gateway) == {"removed": 1}


BAD: Final = {
    "another protocol": SWITCHES.replace(b"echo", b"websocket"),
    "h2c": SWITCHES.replace(b"echo", b"h2c"),
    "one of the service that was not asked for": SWITCHES.replace(b"echo", b"other/2"),
    "two": SWITCHES.replace(b"echo", b"echo, other/2"),
    "none": SWITCHES.replace(b"Upgrade: echo\r\n", b""),
    "not listed": SWITCHES.replace(b"Connection: Upgrade\r\n", b""),
    "HTTP/1.0": SWITCHES.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "a folded line": SWITCHES.replace(b": echo", b":\r\n echo"),
}


@pytest.mark.parametrize("case", BAD)
async def test_H5_a_101_to_something_else_is_a_bad_gateway(testbed: Testbed, case: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(switching(BAD[case]), upgrade=ALLOWED)
    client = await gateway.client()
    await client.send(UPGRADE, SMUGGLED)

    assert (await client.response()).status == 502
    assert (await gateway.recorded()).reason == "bad_reply"
    # What came behind is the next request of the same client, and not a part of any tunnel.
    assert (await client.response()).status == 502
    assert [message.target for message in backend.requests] == ["/v1/nodes", "/smuggled"]
    await backend.disconnected()


async def test_H5_a_101_that_nobody_asked_for_is_a_bad_gateway(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(switching(), upgrade=ALLOWED)

    assert (await gateway.request(request())).status == 502
    await backend.disconnected()


# --- requests with a body, and bytes that come early --------------------------------------------------------


def at_version(text: str) -> bytes:
    """A 101 that names the served version."""
    return SWITCHES[:-2] + f"{VERSION_FIELD}: {text}\r\n\r\n".encode()


async def test_R3_T11_a_101_at_another_version_opens_no_tunnel(testbed: Testbed) -> None:
    """Here an ordinary response would be passed on and counted. A tunnel lasts."""
    backend = await testbed.backend(switching(at_version("1.31")))
    gateway = await testbed.gateway(backend, upgrade=ALLOWED)
    client = await gateway.client()

    answer = await client.request(request("POST", "/v1/nodes", f"{VERSION_FIELD}: 1.38", *ASKS))

    assert answer.status == 502
    assert b"another API version" in answer.body
    await backend.disconnected()
    record = await gateway.recorded()
    assert (record.reason, record.negotiated, record.version) == ("other_version", "1.38", "1.31")
    assert gateway.metric("skewgate_contradictions_total", backend=backend.name) == 1
    assert [fact for _, _, fact in gateway.facts if isinstance(fact, VersionMismatch)]
    assert not gateway.worker.context.tunnels
    assert len(backend.requests) == 1


async def test_R3_T11_a_101_at_the_negotiated_version_opens_one(testbed: Testbed) -> None:
    backend = await testbed.backend(switching(at_version("1.38")))
    gateway = await testbed.gateway(backend, upgrade=ALLOWED)
    client = await gateway.client()

    answer = await client.request(request("GET", "/v1/nodes", f"{VERSION_FIELD}: 1.38", *ASKS))

    assert (answer.status, answer.one(VERSION_FIELD)) == (101, "1.38")
    assert gateway.metric("skewgate_contradictions_total", backend=backend.name) == 0


@pytest.mark.parametrize("framing", ["length", "chunked", "streamed", "expected"])
async def test_H11_a_request_with_a_body_switches_after_its_end(testbed: Testbed, framing: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(switching(body=True), upgrade=ALLOWED)
    client = await gateway.client()
    size = 300 * KIB if framing == "streamed" else 300
    body = b"x" * size
    if framing == "chunked":
        await client.send(
            request("POST", "/v1/x", *ASKS, "Transfer-Encoding: chunked"),
            b"%x\r\n%b\r\n0\r\n\r\n" % (size, body),
        )
    elif framing == "expected":
        await client.send(request("POST", "/v1/x", *ASKS, f"Content-Length: {size}", "Expect: 100-continue"))
        assert (await client.response()).status == 100
        await client.send(body)
    else:
        await client.send(request("POST", "/v1/x", *ASKS, body=body))

    assert (await client.response()).status == 101
    assert backend.only_request.body == body


@pytest.mark.parametrize("framing", ["Content-Length: 200000", "Transfer-Encoding: chunked"])
async def test_H11_a_101_before_the_end_of_the_request_is_a_bad_gateway(
    testbed: Testbed, framing: str
) -> None:
    gateway, backend = await testbed.gateway_and_backend(switching(), upgrade=ALLOWED)
    client = await gateway.client()
    part = b"x" * 100_000
    chunked = b"186a0\r\n%b\r\n" % part
    await client.send(request("POST", "/v1/x", *ASKS, framing), chunked if "chunked" in framing else part)

    answer = await client.response("POST")

    assert (answer.status, answer.one("connection")) == (502, "close")
    assert (await gateway.recorded()).reason == "bad_reply"
    await backend.disconnected()


async def test_H12_what_comes_before_the_101_is_held_and_sent_after_it(testbed: Testbed) -> None:
    switch = asyncio.Event()
    early: list[int] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await switch.wait()
        early.append(len(upstream.reader._buffer))  # type: ignore[attr-defined]
        await upstream.send(SWITCHES + b"welcome")
        await upstream.send(await upstream.reader.readexactly(len(SMUGGLED)))

    gateway, backend = await testbed.gateway_and_backend(script, upgrade=ALLOWED)
    client = await gateway.client()
    await client.send(UPGRADE, SMUGGLED)
    await backend.received()
    await wait_ticks(gateway, 1)
    switch.set()

    assert (await client.response()).status == 101
    assert await exactly(client, 7) == b"welcome"
    assert await exactly(client, len(SMUGGLED)) == SMUGGLED
    assert early == [0]
    assert len(backend.requests) == 1


async def test_H12_what_is_held_before_the_101_is_bounded(testbed: Testbed) -> None:
    switch = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await switch.wait()
        await upstream.send(SWITCHES)
        await upstream.send(b"%d" % len(await upstream.reader.read(-1)))

    gateway, backend = await testbed.gateway_and_backend(script, upgrade=ALLOWED)
    client = await gateway.client()
    size = 16 * KIB * KIB
    sending = asyncio.create_task(client.send(UPGRADE, b"x" * size))
    await backend.received()
    (connection,) = gateway.worker._clients
    await until(lambda: not connection.transport.is_reading())
    assert len(connection._buffer) < KIB * KIB

    switch.set()
    await sending
    client.half_close()
    assert (await client.response()).status == 101
    assert (await client.ended()).rest == b"%d" % size


async def test_H12_an_early_end_of_the_client_is_passed_on(testbed: Testbed) -> None:
    switch = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await switch.wait()
        await upstream.send(SWITCHES)
        await upstream.send(b"got " + await upstream.reader.read(-1))

    gateway, backend = await testbed.gateway_and_backend(script, upgrade=ALLOWED)
    client = await gateway.client()
    await client.send(UPGRADE, b"all")
    client.half_close()
    await backend.received()
    await wait_ticks(gateway, 1)
    switch.set()

    assert (await client.response()).status == 101
    assert (await client.ended()) == (b"got all", False)


# --- a backend that answers otherwise -----------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 400, 404, 426])
async def test_H4_after_an_ordinary_response_the_client_stays_http(testbed: Testbed, status: int) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            await upstream.send(response(status if "upgrade" in message.names else 200, body=b"ok"))

    gateway, backend = await testbed.gateway_and_backend(script, upgrade=ALLOWED)
    client = await gateway.client()
    await client.send(UPGRADE, SMUGGLED)

    assert (await client.response()).status == status
    assert (await client.response()).status == 200
    assert [message.target for message in backend.requests] == ["/v1/nodes", "/smuggled"]
    assert backend.requests[1].one(VERSION_FIELD) == "1.1", "negotiated, as any request"
    assert backend.connections == 2, "the connection that was asked to switch is not used again"
    assert counts(gateway) == {"forwarded": 1}


async def test_H4_a_connection_that_was_idle_is_not_asked_to_switch(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.send(
            response(200) if (await upstream.request()).names.isdisjoint({"upgrade"}) else SWITCHES
        )
        await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script, upgrade=ALLOWED)
    client = await gateway.client()
    assert (await client.request(request())).status == 200

    assert (await client.request(UPGRADE)).status == 101
    assert backend.connections == 2


async def test_no_member_is_asked_twice_after_the_request_was_sent(testbed: Testbed) -> None:
    """A GET without `Upgrade` would be sent again."""

    async def closes(upstream: UpstreamConnection) -> None:
        await upstream.head()

    first, other = await testbed.backend(closes), await testbed.backend(echo)
    gateway = await testbed.gateway(replace(first.backend, weight=1_000_000), other, upgrade=ALLOWED)

    assert (await gateway.request(UPGRADE)).status == 502
    record = await gateway.recorded()
    assert (record.attempts, record.reason, other.requests) == (1, "no_reply", [])


async def test_another_member_is_asked_where_nothing_was_sent(testbed: Testbed) -> None:
    alive = await testbed.backend(echo)
    gateway = await testbed.gateway(refusing_backend("dead"), alive, upgrade=ALLOWED)
    gateway.prefer(0, of=2)
    client = await gateway.client()

    assert (await client.request(UPGRADE)).status == 101
    client.reset()
    assert (await gateway.recorded()).attempts == 2


async def test_another_member_is_asked_where_the_version_was_refused(testbed: Testbed) -> None:
    async def refuses(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(
            response(
                406,
                f"{MIN_FIELD}: 1.1",
                f"{MAX_FIELD}: 1.58",
                "Content-Type: application/json",
                body=b'{"error_message": "Version was requested but is not supported"}',
            )
        )

    first, other = await testbed.backend(refuses), await testbed.backend(echo)
    gateway = await testbed.gateway(replace(first.backend, weight=1_000_000), other, upgrade=ALLOWED)
    client = await gateway.client()

    answer = await client.request(request("GET", "/v1/nodes", *ASKS, version_line("1.80")))
    assert answer.status == 101


async def test_a_backend_that_does_not_answer_is_504(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(switching(b""), upgrade=ALLOWED, backend_head=0.1)

    assert (await gateway.request(UPGRADE)).status == 504


# --- flow control -------------------------------------------------------------------------------------------

MUCH: Final = 64 * KIB * KIB


async def test_H13_a_client_that_does_not_read_holds_its_backend_back(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        for _ in range(MUCH // (256 * KIB)):
            await upstream.send(b"x" * 256 * KIB)

    gateway, _, client = await tunnel_to(testbed, script, small_buffer=8 * KIB)

    assert await waiting_in(gateway) <= 192 * KIB
    total = 0
    while piece := await client.reader.read(KIB * KIB):
        total += len(piece)
        if total == MUCH:
            client.half_close()
    assert total == MUCH
    assert (await gateway.recorded()).bytes_out == MUCH


async def test_H13_a_backend_that_does_not_read_holds_its_client_back(testbed: Testbed) -> None:
    read = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        upstream.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await read.wait()
        upstream.writer.transport.resume_reading()  # type: ignore[attr-defined]
        total = 0
        while piece := await upstream.reader.read(KIB * KIB):
            total += len(piece)
        await upstream.send(b"%d" % total)

    gateway, _, client = await tunnel_to(testbed, script)
    sending = asyncio.create_task(client.send(b"x" * MUCH))

    assert await waiting_in(gateway) <= 192 * KIB
    read.set()
    await sending
    client.half_close()
    assert (await client.ended()).rest == b"%d" % MUCH


# --- how it ends --------------------------------------------------------------------------------------------


async def test_the_end_of_a_client_is_passed_on_and_the_backend_may_still_send(testbed: Testbed) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        data = await upstream.reader.read(-1)
        for piece in (data, b"!" * 300 * KIB):
            await upstream.send(piece)

    gateway, _, client = await tunnel_to(testbed, script)
    await client.send(b"stdin")
    client.half_close()

    assert (await client.ended()) == (b"stdin" + b"!" * 300 * KIB, False)
    assert (await gateway.recorded()).reason == ""


async def test_the_end_of_a_backend_is_passed_on_and_the_client_may_still_send(testbed: Testbed) -> None:
    got: list[bytes] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES + b"bye")
        upstream.half_close()
        got.append(await upstream.reader.read(-1))

    gateway, backend, client = await tunnel_to(testbed, script)

    assert (await client.ended()) == (b"bye", False)
    await client.send(b"y" * 300 * KIB)
    client.half_close()
    await backend.disconnected()
    assert got == [b"y" * 300 * KIB]
    assert (await gateway.recorded()).reason == ""


async def test_a_client_that_resets_resets_its_backend(testbed: Testbed) -> None:
    gone: list[bool] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        gone.append((await upstream.ended()).aborted)

    gateway, backend, client = await tunnel_to(testbed, script)
    client.reset()
    await backend.disconnected()

    assert gone == [True]
    assert (await gateway.recorded()).reason == "client_gone"
    assert counts(gateway) == {"forwarded": 1, "client_gone": 1}


async def test_a_backend_that_resets_resets_its_client(testbed: Testbed) -> None:
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        await go_on.wait()
        upstream.reset()

    gateway, _, client = await tunnel_to(testbed, script)
    go_on.set()

    assert (await client.ended()).aborted
    assert (await gateway.recorded()).reason == "backend_gone"


async def test_H10_an_idle_tunnel_is_reset(testbed: Testbed) -> None:
    gateway, backend, client = await tunnel_to(testbed, tunnel_idle=0.2)

    assert (await client.ended()).aborted
    await backend.disconnected()
    assert (await gateway.recorded()).reason == "tunnel_idle"


@pytest.mark.parametrize("direction", ["in", "out"])
async def test_H10_either_direction_keeps_it_open(testbed: Testbed, direction: str) -> None:
    go_on = asyncio.Semaphore(0)
    arrived: list[bytes] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        for _ in range(3):
            if direction == "in":
                arrived.append(await upstream.reader.readexactly(1))
            else:
                await go_on.acquire()
                await upstream.send(b".")
        await upstream.ended()

    gateway, _, client = await tunnel_to(testbed, script, tunnel_idle=10.0)
    gateway.clock.stop()
    for number in range(3):
        if direction == "in":
            await client.send(b".")
            await until(lambda number=number: len(arrived) > number)  # type: ignore[misc]
        else:
            go_on.release()
            assert await exactly(client, 1) == b"."
        gateway.turn(7.0)
    assert gateway.records == []
    client.half_close()
    assert not (await client.ended()).aborted


async def test_H10_a_client_that_takes_nothing_of_the_end_is_reset(testbed: Testbed) -> None:
    """Both sides have sent everything: `tunnel_idle` would be too long to wait for the last reader."""
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        await go_on.wait()
        await upstream.send(b"x" * 60 * KIB)

    gateway, _, client = await tunnel_to(testbed, script, small_buffer=4 * KIB, client_write_idle=0.2)
    (connection,) = gateway.worker._clients
    connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KIB)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    client.half_close()
    go_on.set()

    assert (await gateway.recorded()).reason == "tunnel_idle"
    assert gateway.worker.context.tunnels == set()


async def test_E3_a_drain_leaves_tunnels_alone_until_its_end(testbed: Testbed) -> None:
    gateway, _, client = await tunnel_to(testbed)
    draining = asyncio.create_task(gateway.drain(0.5))
    await until(lambda: gateway.worker.context.draining)

    await client.send(b"still here")
    assert await exactly(client, 10) == b"still here"
    assert gateway.records == []
    await draining

    assert (await client.ended()).aborted
    (record,) = gateway.records
    assert record.reason == "drained"
    assert counts(gateway) == {"forwarded": 1, "in": 10, "out": 10, "drained": 1}


async def test_E3_a_drain_ends_with_its_last_tunnel(testbed: Testbed) -> None:
    gateway, _, client = await tunnel_to(testbed)
    draining = asyncio.create_task(gateway.drain(30.0))
    await until(lambda: gateway.worker.context.draining)
    client.half_close()

    async with asyncio.timeout(PATIENCE):
        await draining
    assert gateway.records[0].reason == ""


# --- nothing of it is used again ----------------------------------------------------------------------------


async def test_H4_no_connection_of_a_tunnel_is_used_again(testbed: Testbed) -> None:
    """Whatever passes through the tunnel looks like HTTP, in both directions."""

    async def script(upstream: UpstreamConnection) -> None:
        message = await upstream.request()
        if "upgrade" not in message.names:
            await upstream.send(response(200, body=b"honest"))
            return
        await upstream.send(SWITCHES + response(200, body=b"poison") * 2)
        assert await upstream.reader.readexactly(len(SMUGGLED)) == SMUGGLED
        upstream.half_close()
        await upstream.ended()

    gateway, backend = await testbed.gateway_and_backend(script, upgrade=ALLOWED)
    client = await gateway.client()
    await client.send(UPGRADE)
    assert (await client.response()).status == 101
    await client.send(SMUGGLED)
    client.half_close()
    rest = (await client.ended()).rest

    assert rest == response(200, body=b"poison") * 2
    await gateway.recorded()
    assert gateway.worker.report().connections["baremetal", "api-1"] == (0, 0)
    assert (await gateway.request(request())).body == b"honest"
    assert [message.target for message in backend.requests] == ["/v1/nodes", "/v1/nodes"]


async def test_bodies_that_are_held_for_others_do_not_end_a_tunnel(testbed: Testbed) -> None:
    """When held bodies fill their total, clients are read in another way; one in a tunnel is not."""
    gateway, _, client = await tunnel_to(testbed)
    gateway.worker._bound_reads()
    await client.send(SMUGGLED)

    assert await exactly(client, len(SMUGGLED)) == SMUGGLED


async def test_a_drained_backend_is_in_use_while_its_tunnel_is_open(testbed: Testbed) -> None:
    gateway, backend, client = await tunnel_to(testbed)

    assert dict(gateway.worker.report().in_flight_by_member) == {f"baremetal/{backend.name}": 1}
    client.half_close()
    await gateway.recorded()
    assert not any(gateway.worker.report().in_flight_by_member.values())


async def test_a_reload_takes_effect_on_the_next_upgrade_and_leaves_tunnels_alone(testbed: Testbed) -> None:
    gateway, backend, client = await tunnel_to(testbed)
    other = await testbed.backend(serve)
    reconfigure(gateway.snapshot_holder, [service_of(other)])
    await wait_ticks(gateway, 2)

    assert (await gateway.request(UPGRADE)).status == 200, "no longer allowed"
    await client.send(b"still here")
    assert await exactly(client, 10) == b"still here"
    client.half_close()
    await client.ended()
    await backend.disconnected()
    assert [record.backend for record in gateway.records] == ["api-2", "api-1"]
    assert not any(gateway.worker.report().in_flight_by_service.values())


async def test_many_pieces_of_every_size_keep_their_order(testbed: Testbed) -> None:
    """Both ways at once, while both ends now and then read nothing."""
    chance = random.Random(13)
    pieces = [chance.randbytes(chance.choice((1, 7, 100, 5000, 70_000))) for _ in range(300)]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        async def send() -> None:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        received = await reader.read(-1)
        await sending
        return received

    got: list[bytes] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        got.append(await talk(upstream.reader, upstream.writer))

    gateway, backend, client = await tunnel_to(testbed, script)
    async with asyncio.timeout(PATIENCE):
        got.append(await talk(client.reader, client.writer))
    await backend.disconnected()
    record = await gateway.recorded()

    assert got == [b"".join(pieces)] * 2
    assert (record.reason, record.bytes_out) == ("", len(got[0]))


async def test_the_head_of_a_101_follows_the_rules_of_every_response(testbed: Testbed) -> None:
    lines = (
        b"\r\nConnection: Upgrade, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nSec-WebSocket-Accept: x"
        b"\r\nContent-Length: 5\r\nX_OpenStack_Ironic_API_Maximum_Version: 1.99"
    )
    head = SWITCHES.replace(b"\r\nConnection: Upgrade", lines)
    gateway, _ = await testbed.gateway_and_backend(switching(head), upgrade=ALLOWED)

    answer = await (await gateway.client()).request(UPGRADE)

    assert (answer.status, answer.every("sec-websocket-accept")) == (101, ["x"])
    assert not {"x-hop", "keep-alive", "content-length", "transfer-encoding"} & answer.names
    assert b"1.99" not in answer.head
