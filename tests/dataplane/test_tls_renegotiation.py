"""A second ClientHello on a connection over TLS (threats R3-V10): TLS 1.2 calls it renegotiation."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.dataplane.listener_tls import tls_listener
from tests.dataplane.test_tls_listeners import GET
from tests.kit.backends import UpstreamConnection, serve
from tests.kit.messages import response
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed

HANDSHAKE = b"\x16"
CIPHER = "ECDHE-ECDSA-AES128-GCM-SHA256"


def expanded(secret: bytes, seed: bytes, size: int) -> bytes:
    """P_SHA256 of TLS 1.2 (RFC 5246 5)."""
    data, a = b"", seed
    while len(data) < size:
        a = hmac.digest(secret, a, "sha256")
        data += hmac.digest(secret, a + seed, "sha256")
    return data[:size]


class Renegotiator:
    """A client of TLS 1.2 with `CIPHER` that can send what Python's ssl cannot: handshake messages after the
    handshake."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, keys: Path) -> None:
        self._socket = sock
        self._keys = keys
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._first = b""
        """Whatever the server has sent first: its ServerHello."""
        self._number = 1
        """Of the next record; that of the handshake's end was 0."""

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            else:
                await self._flush()
                return

    async def send(self, data: bytes) -> None:
        self._tls.write(data)
        self._number += 1
        await self._flush()

    async def send_hello(self) -> None:
        """A ClientHello, encrypted as everything after the handshake."""
        line = next(line for line in self._keys.read_text().splitlines() if line.startswith("CLIENT_RANDOM"))
        client_random, master = map(bytes.fromhex, line.split()[1:])
        seed = b"key expansion" + self._first[11:43] + client_random
        keys = expanded(
            master, seed, 2 * 16 + 2 * 4
        )  # of client and server, then what their nonces begin with
        number = self._number.to_bytes(8, "big")
        hello = b"\x01\x00\x00\x26\x03\x03" + client_random + bytes(4)
        head = HANDSHAKE + b"\x03\x03" + len(hello).to_bytes(2, "big")
        sealed = number + AESGCM(keys[:16]).encrypt(keys[32:36] + number, hello, number + head)
        record = HANDSHAKE + b"\x03\x03" + len(sealed).to_bytes(2, "big") + sealed
        await asyncio.get_running_loop().sock_sendall(self._socket, record)

    async def refusal(self) -> str:
        """The reason that OpenSSL reads out of the server's alert."""
        while True:
            try:
                assert self._tls.read(65536) == b"", "no response may come any more"
            except ssl.SSLWantReadError:
                await self._receive()
            except ssl.SSLError as error:
                return error.reason
            else:
                return "the end"

    async def ended(self) -> bool:
        while await asyncio.get_running_loop().sock_recv(self._socket, 65536):
            pass
        return True

    async def _flush(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, self._outgoing.read())

    async def _receive(self) -> None:
        data = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        assert data, "the connection has ended without an alert"
        self._first = self._first or data
        self._incoming.write(data)


@asynccontextmanager
async def renegotiator(
    gateway: Gateway, context: ssl.SSLContext, folder: Path
) -> AsyncIterator[Renegotiator]:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHER)
    context.keylog_filename = str(folder / "keys")
    with socket.socket() as sock:
        sock.setblocking(False)
        async with asyncio.timeout(PATIENCE):
            await asyncio.get_running_loop().sock_connect(sock, gateway.address)
            client = Renegotiator(sock, context, folder / "keys")
            await client.handshake()
            yield client


@pytest.mark.parametrize("waits", [False, True], ids=["idle", "awaiting a response"])
async def test_R3_V10_a_second_hello_gets_its_alert_at_once_and_the_end(
    testbed: Testbed, tmp_path: Path, waits: bool
) -> None:
    go_on = asyncio.Event()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await go_on.wait()
        await upstream.send(response(200, body=b"late"))

    testbed.listener = tls_listener(tmp_path)
    gateway, backend = await testbed.gateway_and_backend(script)
    context = testbed.listener.client_tls
    assert context is not None
    async with renegotiator(gateway, context, tmp_path) as client:
        if waits:
            await client.send(GET)
            await backend.received(1)
        await client.send_hello()
        assert await client.refusal() == "NO_RENEGOTIATION"
        assert await client.ended()
        await until(lambda: not gateway.worker._clients)
    go_on.set()

    assert gateway.metric("skewgate_client_errors_total", reason="tls_record") == 1
    if waits:
        assert (await gateway.recorded()).reason == "client_gone"


async def test_R3_V10_a_hello_in_plain_text_ends_the_connection(testbed: Testbed, tmp_path: Path) -> None:
    """In TLS 1.3 as well nothing begins anew."""
    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    assert (await client.request(GET)).status == 200

    hello = HANDSHAKE + b"\x03\x03\x00\x04\x01\x00\x00\x00"
    os.write(client.writer.get_extra_info("socket").fileno(), hello)

    await until(lambda: not gateway.worker._clients)
    assert gateway.metric("skewgate_client_errors_total", reason="tls_record") == 1
