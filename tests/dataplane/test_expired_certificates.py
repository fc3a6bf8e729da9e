"""Certificates of clients that expire while their sessions and connections last (threats R3-T2)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gateway.dataplane.edge.phases import IDLE
from tests.dataplane.listener_tls import client_leaf, tls_listener
from tests.dataplane.test_tls_listeners import GET, handshakes
from tests.dataplane.upgrades import SWITCHES, UPGRADE, echo, exactly
from tests.kit.backends import UpstreamConnection, serve
from tests.kit.certificates import DAY, Authority, Leaf, authority, client_context
from tests.kit.clients import Client
from tests.kit.messages import response
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed, wait_ticks

MONTH = 30 * DAY.total_seconds()
"""Seconds for which the short certificates are valid; the others are for three times as long."""


@cache
def brief_leaf() -> Leaf:
    """The certificate of a client that expires first."""
    return authority().client("brief", days=30)


@cache
def brief_issuer() -> Leaf:
    """That of a client whose CA expires first."""
    return Authority("A brief CA", authority(), days=30).client("alice")


async def client_with(gateway: Gateway, folder: Path, leaf: Leaf | None) -> Client:
    """A client with this certificate, or without."""
    pair = None if leaf is None else leaf.write(folder, "client")
    gateway.listener = replace(gateway.listener, client_tls=client_context(authority(), pair))
    return await gateway.client()


# --- the handshake


def session_of(
    gateway: Gateway, context: ssl.SSLContext
) -> Callable[[ssl.SSLSession | None], tuple[bytes, bool | None, ssl.SSLSession | None]]:
    """One request in a session, or in a new one: what came, whether the session was resumed, and the session.
    With a blocking socket: asyncio does not hand in a session."""

    def once(session: ssl.SSLSession | None) -> tuple[bytes, bool | None, ssl.SSLSession | None]:
        with (
            socket.create_connection(gateway.address, PATIENCE) as raw,
            context.wrap_socket(raw, server_hostname="localhost", session=session) as sock,
        ):
            try:
                sock.sendall(GET)
                data = sock.recv(65536)
            except OSError:  # closed meanwhile
                data = b""
            return data[:12], sock.session_reused, sock.session

    return once


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("leaf", [brief_leaf, brief_issuer], ids=["certificate", "issuer"])
async def test_R3_T2_no_session_is_resumed_with_a_certificate_that_has_expired(
    testbed: Testbed, tmp_path: Path, version: ssl.TLSVersion, leaf: Callable[[], Leaf]
) -> None:
    testbed.listener = tls_listener(tmp_path, client_ca=True, client=leaf())
    gateway, backend = await testbed.gateway_and_backend(serve)
    context = testbed.listener.client_tls
    assert context is not None
    context.maximum_version = version
    once, loop = session_of(gateway, context), asyncio.get_running_loop()

    data, reused, session = await loop.run_in_executor(None, once, None)
    assert (data, reused) == (b"HTTP/1.1 200", False)
    gateway.ahead = MONTH - 3600
    data, reused, _ = await loop.run_in_executor(None, once, session)
    assert (data, reused) == (b"HTTP/1.1 200", True)

    gateway.ahead = MONTH + 1
    data, reused, _ = await loop.run_in_executor(None, once, session)
    assert (data, reused) == (b"", True)
    data, reused, _ = await loop.run_in_executor(None, once, None)
    assert (data, reused) == (b"", False)

    assert len(backend.requests) == 2
    results = {result: handshakes(gateway, result) for result in ("full", "resumed", "client_certificate")}
    assert results == {"full": 1, "resumed": 1, "client_certificate": 2}
    await until(lambda: not gateway.worker.accept_phase)


# --- connections


async def test_R3_T2_idle_connections_end_with_the_certificate(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path, client_ca=True, required=False)
    gateway, _ = await testbed.gateway_and_backend(serve)
    leaves = (brief_leaf(), brief_issuer(), client_leaf(), None)
    clients = [await client_with(gateway, tmp_path, leaf) for leaf in leaves]
    new = await client_with(gateway, tmp_path, brief_leaf())
    for client in clients:
        assert await client.is_open()
    half = await client_with(gateway, tmp_path, brief_leaf())
    await half.send(GET[:-2])
    await until(lambda: sum(client.phase is not IDLE for client in gateway.worker._clients) == 1)

    gateway.ahead = MONTH - 3600
    await wait_ticks(gateway)
    assert len(gateway.worker._clients) == len(gateway.clients)

    gateway.ahead = MONTH + 1
    for client in (clients[0], clients[1], new, half):
        assert (await client.ended()).rest == b""
    for client in clients[2:]:
        assert await client.is_open()

    gateway.ahead = 3 * MONTH + 1
    assert (await clients[2].ended()).rest == b""
    assert await clients[3].is_open()


async def test_R3_T2_a_request_in_flight_is_answered_and_is_the_last(
    testbed: Testbed, tmp_path: Path
) -> None:
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await go_on.wait()
        await upstream.send(response(200, body=b"late"))

    testbed.listener = tls_listener(tmp_path, client_ca=True, client=brief_leaf())
    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(GET + GET)
    await backend.received(1)
    gateway.ahead = MONTH + 1
    await wait_ticks(gateway)
    go_on.set()

    answer = await client.response()
    assert (answer.status, answer.body, answer.every("connection")) == (200, b"late", ["close"])
    assert (await client.ended()).rest == b""
    assert len(backend.requests) == 1


async def test_R3_T2_a_response_that_has_begun_is_sent_whole_and_the_last(
    testbed: Testbed, tmp_path: Path
) -> None:
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegin")
        await go_on.wait()
        await upstream.send(b"s end")

    testbed.listener = tls_listener(tmp_path, client_ca=True, client=brief_leaf())
    gateway, backend = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    await client.send(GET + GET)
    async with asyncio.timeout(PATIENCE):
        head = await client.reader.readuntil(b"begin")
    gateway.ahead = MONTH + 1
    await wait_ticks(gateway)
    go_on.set()

    assert b"onnection: close" not in head
    assert (await client.ended()).rest == b"s end"
    assert len(backend.requests) == 1


async def test_R3_T2_a_tunnel_ends_with_the_certificate(testbed: Testbed, tmp_path: Path) -> None:
    testbed.listener = tls_listener(tmp_path, client_ca=True, client=brief_leaf())
    gateway, _ = await testbed.gateway_and_backend(echo, upgrade=["echo"])
    client = await gateway.client()
    assert (await client.request(UPGRADE)).status == 101
    gateway.ahead = MONTH - 3600
    await wait_ticks(gateway)
    await client.send(b"ping")
    assert await exactly(client, 4) == b"ping"

    gateway.ahead = MONTH + 1
    await client.ended()
    assert (await gateway.recorded()).reason == "certificate_expired"
    assert gateway.metric("skewgate_tunnels_total", service="baremetal", result="certificate_expired") == 1


async def test_R3_T2_a_request_that_becomes_a_tunnel_too_late_is_cut(
    testbed: Testbed, tmp_path: Path
) -> None:
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await go_on.wait()
        await upstream.send(SWITCHES)
        await upstream.ended()

    testbed.listener = tls_listener(tmp_path, client_ca=True, client=brief_leaf())
    gateway, backend = await testbed.gateway_and_backend(script, upgrade=["echo"])
    client = await gateway.client()
    await client.send(UPGRADE)
    await backend.received(1)
    gateway.ahead = MONTH + 1
    await wait_ticks(gateway)
    go_on.set()

    await client.ended()
    assert (await gateway.recorded()).reason == "certificate_expired"
