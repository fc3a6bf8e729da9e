"""The admin listener over TLS: certificates in place of the token, the same bounds for hostile clients."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gateway.admin import connection
from tests.admin.raw_clients import FILE, TOKEN, Admin, Peer, at_most, connections_to, running
from tests.kit.certificates import Authority, client_context
from tests.kit.waiting import PATIENCE, until

AT_MOST = 64
"""Connections that the admin listener keeps."""


@cache
def authority() -> Authority:
    return Authority("CA of the operators")


class TlsAdmin:
    """A running gateway whose admin listener speaks TLS."""

    def __init__(self, admin: Admin, folder: Path, stack: AsyncExitStack) -> None:
        self.admin = admin
        self._folder = folder
        self._stack = stack

    def context(self, *, operator: bool = False) -> ssl.SSLContext:
        pair = authority().client("an operator").write(self._folder, "operator") if operator else None
        return client_context(authority(), pair)

    async def peer(self, context: ssl.SSLContext | None = None) -> Peer:
        reader, writer = await asyncio.open_connection(
            self.admin.host, self.admin.port, ssl=context or self.context()
        )
        peer = Peer(reader, writer)
        self._stack.callback(peer.abort)
        return peer

    async def status(self, path: str, *, token: str | None = None, operator: bool = False) -> int:
        """Of the response to one request on a connection of its own."""
        peer = await self.peer(self.context(operator=operator))
        peer.send(self.admin.request(path, token))
        return (await peer.response())[0]


@asynccontextmanager
async def running_tls(
    folder: Path, *, token: str | None = TOKEN, client: str | None = None, more: str = ""
) -> AsyncIterator[TlsAdmin]:
    certificate, key = authority().server().write(folder, "admin")
    clients = f", client_ca: {authority().write(folder)}, client: {client}" if client else ""
    tls = f"tls: {{certificates: [{{certificate: {certificate}, key: {key}}}]{clients}}}"
    secret = f', token: "{token}"' if token else ""
    text = FILE.replace(
        f'admin: {{listen: "127.0.0.1:0", token: "{TOKEN}"}}',
        f'admin: {{listen: "127.0.0.1:0"{secret}, {tls}{more}}}',
    )
    async with running(text) as admin, AsyncExitStack() as stack:
        yield TlsAdmin(admin, folder, stack)


async def test_https_needs_the_token_as_http_does(tmp_path: Path) -> None:
    async with running_tls(tmp_path) as tls:
        assert tls.admin.gateway.admin_url.startswith("https://127.0.0.1:")
        assert await tls.status("/status", token=TOKEN) == 200
        assert await tls.status("/status") == 401
        assert await tls.status("/livez") == 200


@pytest.mark.parametrize("token", [TOKEN, None])
async def test_a_certificate_stands_for_the_token(tmp_path: Path, token: str | None) -> None:
    async with running_tls(tmp_path, token=token, client="optional") as tls:
        assert await tls.status("/status", operator=True) == 200
        assert await tls.status("/status") == (401 if token else 403)
        assert await tls.status("/livez") == 200


async def test_without_a_certificate_there_is_no_connection_where_one_is_required(tmp_path: Path) -> None:
    async with running_tls(tmp_path, token=None, client="required") as tls:
        assert await tls.status("/status", operator=True) == 200
        with suppress(ssl.SSLError, ConnectionError):
            peer = await tls.peer()
            peer.send(tls.admin.request("/livez", None))
            assert await peer.everything() == b""


async def test_a_certificate_of_another_ca_is_refused(tmp_path: Path) -> None:
    pair = Authority("Somebody").client("a stranger").write(tmp_path, "stranger")
    async with running_tls(tmp_path, token=None, client="optional") as tls:
        with suppress(ssl.SSLError, ConnectionError):
            peer = await tls.peer(client_context(authority(), pair))
            peer.send(tls.admin.request("/livez", None))
            assert await peer.everything() == b""


@pytest.mark.parametrize("scheme, status", [("https", 200), ("http", 403)])
async def test_O6_host_and_origin_are_checked(tmp_path: Path, scheme: str, status: int) -> None:
    async with running_tls(tmp_path) as tls:
        peer, port = await tls.peer(), tls.admin.port
        peer.send(tls.admin.request("/status", more=f"Origin: {scheme}://127.0.0.1:{port}\r\n"))
        assert (await peer.response())[0] == status

        peer = await tls.peer()
        peer.send(b"GET /status HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert (await peer.response())[0] == 403


async def test_further_names_are_taken_as_host(tmp_path: Path) -> None:
    async with running_tls(tmp_path, more=", hosts: [Gateway-1.example.org]") as tls:
        peer = await tls.peer()
        host = f"gateway-1.example.org:{tls.admin.port}".encode()
        peer.send(b"GET /livez HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert (await peer.response())[0] == 200


async def test_plain_http_gets_a_plain_answer(tmp_path: Path) -> None:
    async with running_tls(tmp_path) as tls:
        peer = await tls.admin.peer()
        peer.send(tls.admin.request("/livez"))
        answer = await peer.everything()

        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"this port speaks TLS" in answer


async def test_R_B7_a_handshake_that_does_not_end_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_TIME", 0.3)
    async with running_tls(tmp_path) as tls:
        peers = [await tls.admin.peer() for _ in range(3)]
        peers[1].send(b"\x16\x03\x01\x02\x00\x01")
        peers[2].send(b"\x16\x03\x01\x00\x05nonsense of a client")
        for peer in peers:
            assert await peer.closed()


async def test_R_B7_handshakes_that_do_not_end_keep_no_operator_out(tmp_path: Path) -> None:
    async with running_tls(tmp_path) as tls:
        peers = [await tls.admin.peer() for _ in range(3 * AT_MOST)]
        for peer in peers:
            peer.send(b"\x16\x03\x01\x02\x00\x01")

        assert await tls.status("/status", token=TOKEN) == 200
        await at_most(AT_MOST, tls.admin.port)


async def test_R_B7_the_one_too_many_is_told_so_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All connections are those of operators in the middle of a request, and stay there however slow the
    machine is."""
    for name in ("HEAD_TIME", "BODY_TIME"):
        monkeypatch.setattr(connection, name, PATIENCE)
    async with running_tls(tmp_path) as tls:
        command = tls.admin.request(
            "/services/baremetal/ceiling", method="PUT", more="Content-Length: 40\r\n"
        )
        for _ in range(AT_MOST):
            peer = await tls.peer()
            peer.send(tls.admin.request("/livez", TOKEN))
            assert (await peer.response())[0] == 200
            peer.send(command)

        async def refused() -> bool:
            peer = await tls.peer()
            peer.send(tls.admin.request("/livez"))
            return (await peer.response())[0] == 503

        await until(refused)
        monkeypatch.setattr(connection, "MAX_TURNED_AWAY", 0)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await tls.peer()


async def test_a_request_in_drips_and_a_large_response_pass(tmp_path: Path) -> None:
    async with running_tls(tmp_path) as tls:
        peer = await tls.peer()
        for byte in tls.admin.request("/metrics"):
            peer.send(bytes([byte]))
        peer.send(tls.admin.request("/status"))
        for path in ("metrics", "status"):
            status, _, body = await peer.response()
            assert status == 200, path
            assert len(body) > 100


async def test_the_certificate_is_read_again(tmp_path: Path) -> None:
    async with running_tls(tmp_path) as tls:
        before = (await tls.peer()).writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        authority().server().write(tmp_path, "admin")
        await tls.admin.gateway.parts.certificate_watch.check_for_changes()  # what its timer does
        after = (await tls.peer()).writer.get_extra_info("ssl_object").getpeercert(binary_form=True)

    assert before != after


async def test_after_a_reload_new_connections_need_what_the_file_says_now(tmp_path: Path) -> None:
    async with running_tls(tmp_path, token=None) as tls:
        assert await tls.status("/status") == 200
        ca = authority().write(tmp_path)
        certificates = tls.admin.gateway.parts.certificates.of_admin
        assert certificates is not None
        certificates.reload(replace(certificates.settings, client_ca=str(ca), client="optional"))

        assert await tls.status("/status") == 403
        assert await tls.status("/status", operator=True) == 200


# --- admin.metrics_listen ----------------------------------------------------------------------------------


async def test_metrics_and_health_need_no_token_on_their_own_listener() -> None:
    text = FILE.replace("token:", 'metrics_listen: "127.0.0.1:0", token:')
    async with running(text) as admin, AsyncExitStack() as stack:
        url = admin.gateway.metrics_url
        assert url is not None
        port = int(url.rpartition(":")[2])

        async def status(path: str, method: str = "GET", host: str = f"127.0.0.1:{port}") -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            peer = Peer(reader, writer)
            stack.callback(peer.abort)
            peer.send(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            return (await peer.response())[0]

        assert await status("/metrics") == 200
        assert await status("/livez") == 200
        assert await status("/readyz") == 200
        assert await status("/status") == 404
        assert await status("/explain?path=/") == 404
        assert await status("/-/reload", "POST") == 404
        assert await status("/services/baremetal/ceiling", "DELETE") == 404
        assert await status("/metrics", "POST") == 405
        assert await status("/metrics", host="evil.example") == 200


async def test_the_two_listeners_share_the_connections() -> None:
    text = FILE.replace("token:", 'metrics_listen: "127.0.0.1:0", token:')
    async with running(text) as admin, AsyncExitStack() as stack:
        url = admin.gateway.metrics_url
        assert url is not None
        port = int(url.rpartition(":")[2])
        for _ in range(AT_MOST):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(Peer(reader, writer).abort)

        async def bounded() -> bool:
            return connections_to(port) <= AT_MOST // 2 and not connections_to(port, accepted=False)

        await until(bounded)
        peer = await admin.peer()
        peer.send(admin.request("/livez"))
        assert (await peer.response())[0] == 200
