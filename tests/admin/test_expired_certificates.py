"""Certificates of operators that expire while their connections last, and sessions of TLS (threats R3-T2)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from gateway.admin import AdminAccess, AdminSite, bind_site, create_app
from gateway.controlplane.reload import ReloadResult
from gateway.tls.server import ServerCertificates
from gateway.tls.values import CertificateFiles, ServerTls
from tests.admin.raw_clients import Peer
from tests.admin.test_tls import authority, running_tls
from tests.admin.testbed import AdminTestbed, mixed_fleet
from tests.kit.certificates import client_context

PATIENCE = 20.0
"""Seconds after which what is expected counts as missing. An idle connection lasts longer."""


class Operator:
    """An admin listener that asks for certificates, and an operator with one."""

    def __init__(self, site: AdminSite, context: ssl.SSLContext, stack: AsyncExitStack) -> None:
        self._site = site
        self._context = context
        self._stack = stack
        self.go_on = asyncio.Event()
        """What a reload waits for."""

    async def connect(self) -> Peer:
        host, port = self._site.address
        peer = Peer(
            *await asyncio.open_connection(host, port, ssl=self._context, server_hostname="localhost")
        )
        self._stack.callback(peer.abort)
        return peer

    def request(self, path: str, method: str = "GET") -> bytes:
        return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._site.address[1]}\r\n\r\n".encode()


class Clock:
    """Wall-clock seconds that the test sets."""

    def __init__(self) -> None:
        self.now = time()
        self.end = 0.0
        """When the operator's certificate expires."""

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def operator(folder: Path, clock: Clock, *, required: bool = True) -> AsyncIterator[Operator]:
    certificate, key = authority().server().write(folder, "admin")
    tls = ServerTls(
        (CertificateFiles(str(certificate), str(key)),),
        str(authority().write(folder)),
        client="required" if required else "optional",
    )
    leaf = authority().client("an operator")
    clock.end, pair = leaf.certificate.not_valid_after_utc.timestamp(), leaf.write(folder, "operator")
    bed = AdminTestbed(mixed_fleet())

    async def reload() -> ReloadResult:
        await here.go_on.wait()
        return ReloadResult()

    context = bed.context()
    context = replace(
        context,
        access=AdminAccess(by_certificate=lambda: True),
        commands=replace(context.commands, reload=reload),
    )
    site = AdminSite(
        create_app(context),
        await bind_site("127.0.0.1", 0),
        bed.count_admin_error,
        certificates=ServerCertificates(tls, resumption=False),
        wall_clock=clock,
    )
    await site.start()
    try:
        async with AsyncExitStack() as stack:
            here = Operator(site, client_context(authority(), pair), stack)
            yield here
    finally:
        await site.stop()


async def ended(peer: Peer) -> bytes:
    """What comes until the gateway closes the connection."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await peer.reader.read()
        except OSError:
            return b""


async def test_R3_T2_idle_connections_of_operators_end_with_the_certificate(tmp_path: Path) -> None:
    clock = Clock()
    async with operator(tmp_path, clock) as here:
        clock.now = clock.end - 3600
        peer, other = await here.connect(), await here.connect()
        for one in (peer, other):
            one.send(here.request("/status"))
            assert (await one.response())[0] == 200

        clock.now = clock.end - 0.05
        peer.send(here.request("/status"))
        assert (await peer.response())[0] == 200
        assert await ended(peer) == b""

        clock.now = clock.end  # it was turned on, and no timer knows
        other.send(here.request("/status"))
        status, fields, _ = await other.response()
        assert (status in {403, 408}, fields["connection"]) == (True, "close")
        assert await ended(other) == b""


async def test_R3_T2_no_handshake_with_an_expired_certificate_leads_to_a_request(tmp_path: Path) -> None:
    clock = Clock()
    async with operator(tmp_path, clock, required=False) as here:
        clock.now = clock.end
        peer = await here.connect()
        peer.send(here.request("/livez"))
        assert await ended(peer) == b""


async def test_R3_T2_a_command_in_flight_is_answered_and_is_the_last(tmp_path: Path) -> None:
    clock = Clock()
    async with operator(tmp_path, clock) as here:
        peer = await here.connect()
        peer.send(here.request("/-/reload", "POST"))
        peer.send(here.request("/status"))
        other = await here.connect()
        other.send(here.request("/livez"))
        assert (await other.response())[0] == 200
        clock.now = clock.end
        here.go_on.set()

        status, fields, _ = await peer.response()
        assert (status, fields["connection"]) == (200, "close")
        assert await ended(peer) == b""


async def test_R3_T2_a_stream_ends_with_the_certificate(tmp_path: Path) -> None:
    clock = Clock()
    async with operator(tmp_path, clock) as here:
        peer = await here.connect()
        peer.send(here.request("/ui/events"))
        async with asyncio.timeout(PATIENCE):
            await peer.reader.readuntil(b"event: update")
        clock.now = clock.end
        await ended(peer)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("client", [None, "optional"])
async def test_R3_T2_no_session_of_an_operator_is_resumed(
    tmp_path: Path, version: ssl.TLSVersion, client: str | None
) -> None:
    async with running_tls(tmp_path, client=client) as tls:
        context = tls.context(operator=client is not None)
        context.maximum_version = version
        request, address = tls.admin.request("/status"), (tls.admin.host, tls.admin.port)

        def once(session: ssl.SSLSession | None) -> tuple[bytes, bool | None, bool, ssl.SSLSession | None]:
            """With a blocking socket: asyncio does not hand in a session."""
            with (
                socket.create_connection(address, PATIENCE) as raw,
                context.wrap_socket(raw, server_hostname="localhost", session=session) as sock,
            ):
                sock.sendall(request)
                data = sock.recv(65536)
                found = sock.session
                return data[:12], sock.session_reused, found is not None and found.has_ticket, found

        loop = asyncio.get_running_loop()
        data, _, has_ticket, session = await loop.run_in_executor(None, once, None)
        assert (data, has_ticket) == (b"HTTP/1.1 200", False)
        data, reused, _, _ = await loop.run_in_executor(None, once, session)
        assert (data, reused) == (b"HTTP/1.1 200", False)
