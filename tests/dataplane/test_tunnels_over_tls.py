"""Tunnels where the client, the backend or both speak TLS to the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.dataplane.backend_tls import both_sides
from tests.dataplane.listener_tls import tls_listener
from tests.dataplane.upgrades import SWITCHES, UPGRADE, echo, exactly, waiting_in
from tests.kit.backends import Script, UpstreamConnection
from tests.kit.clients import Client
from tests.kit.messages import KIB
from tests.kit.waiting import PATIENCE
from tests.kit.workers import Gateway, Testbed

MUCH: Final = 8 * KIB * KIB
MOST: Final = 400 * KIB
"""Bytes that wait at most: what TLS has read and not passed on comes on top."""
SIDES: Final = ["client", "backend", "both"]
T = TypeVar("T")


async def tunnel_to(testbed: Testbed, folder: Path, sides: str, script: Script) -> tuple[Gateway, Client]:
    """An open tunnel. `sides`: those that speak TLS."""
    if sides != "client":
        testbed.backend_tls = both_sides(folder)
    if sides != "backend":
        testbed.listener = tls_listener(folder)
    gateway, _ = await testbed.gateway_and_backend(script, upgrade=["echo"])
    client = await gateway.client()
    assert (await client.request(UPGRADE)).status == 101
    return gateway, client


@pytest.mark.parametrize("sides", SIDES)
async def test_bytes_pass_both_ways(testbed: Testbed, tmp_path: Path, sides: str) -> None:
    gateway, client = await tunnel_to(testbed, tmp_path, sides, echo)
    data = b"0123456789abcdef" * (MUCH // 16)
    sending = asyncio.create_task(client.send(data))

    assert await exactly(client, MUCH) == data
    await sending
    client.writer.close()
    record = await gateway.recorded()
    assert (record.status, record.bytes_out) == (101, MUCH)
    assert record.reason in {"", "client_gone"}


@pytest.mark.parametrize("sides", SIDES)
async def test_what_a_backend_sends_at_its_end_arrives(testbed: Testbed, tmp_path: Path, sides: str) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        await upstream.send(b"x" * MUCH)

    gateway, client = await tunnel_to(testbed, tmp_path, sides, script)

    assert len((await client.ended()).rest) == MUCH
    client.writer.close()
    assert (await gateway.recorded()).bytes_out == MUCH


@pytest.mark.parametrize("sides", SIDES)
async def test_what_a_client_sends_at_its_end_arrives(testbed: Testbed, tmp_path: Path, sides: str) -> None:
    got: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        got.set_result(len(await upstream.reader.read(-1)))

    gateway, client = await tunnel_to(testbed, tmp_path, sides, script)
    await client.send(b"x" * MUCH)
    client.writer.close()

    async with asyncio.timeout(PATIENCE):
        assert await got == MUCH
    await gateway.recorded()


@pytest.mark.parametrize("sides", SIDES)
async def test_a_client_that_does_not_read_holds_its_backend_back(
    testbed: Testbed, tmp_path: Path, sides: str
) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        while True:
            await upstream.send(b"x" * 64 * KIB)

    gateway, client = await tunnel_to(testbed, tmp_path, sides, script)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]

    assert await waiting_in(gateway) <= MOST


class RawTlsClient:
    """One of which the test makes every step: asyncio's cannot close one side alone."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def do(self, action: Callable[[ssl.SSLObject], T]) -> T:
        """Do something, with as many reads as it needs."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                result = action(self._tls)
            except ssl.SSLWantReadError:
                await self._flush()
                self._incoming.write(await loop.sock_recv(self._socket, 65536))
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, self._outgoing.read())

    async def handshake(self) -> None:
        await self.do(lambda tls: tls.do_handshake())

    async def send(self, data: bytes) -> None:
        await self.do(lambda tls: tls.write(data))

    async def read_until(self, end: bytes) -> bytes:
        data = b""
        while not data.endswith(end):
            piece = await self.do(lambda tls: tls.read(65536))
            assert piece, data
            data += piece
        return data

    async def half_close(self) -> None:
        """close_notify, and read on."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        await self._flush()


@contextlib.asynccontextmanager
async def raw_client(testbed: Testbed, gateway: Gateway) -> AsyncIterator[RawTlsClient]:
    """One that has asked for a tunnel, for as long as tests wait."""
    assert testbed.listener is not None
    context = testbed.listener.client_tls
    assert context is not None
    with socket.socket() as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, gateway.address)
        async with asyncio.timeout(PATIENCE):
            client = RawTlsClient(sock, context)
            await client.handshake()
            await client.send(UPGRADE)
            yield client


async def test_a_client_of_tls_closes_one_side_and_still_reads(testbed: Testbed, tmp_path: Path) -> None:
    """As the `docker` command line does over TLS, at the end of standard input."""

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES)
        await upstream.send(b"all of " + await upstream.reader.read(-1) + b".")

    testbed.listener = tls_listener(tmp_path)
    gateway, _ = await testbed.gateway_and_backend(script, upgrade=["echo"])
    async with raw_client(testbed, gateway) as client:
        await client.read_until(b"\r\n\r\n")
        await client.send(b"standard input")
        await client.half_close()
        assert await client.read_until(b".") == b"all of standard input."

    assert (await gateway.recorded()).reason == ""


async def test_a_backend_closes_one_side_and_a_client_of_tls_still_sends(
    testbed: Testbed, tmp_path: Path
) -> None:
    got: list[bytes] = []

    async def script(upstream: UpstreamConnection) -> None:
        await upstream.head()
        await upstream.send(SWITCHES + b"bye.")
        upstream.half_close()
        got.append(await upstream.reader.read(-1))

    testbed.listener = tls_listener(tmp_path)
    gateway, backend = await testbed.gateway_and_backend(script, upgrade=["echo"])
    async with raw_client(testbed, gateway) as client:
        await client.read_until(b"bye.")
        with contextlib.suppress(ssl.SSLZeroReturnError):
            await client.do(lambda tls: tls.read(1))
        await client.send(b"still here")
        await client.half_close()
        await backend.disconnected()

    assert got == [b"still here"]
    assert (await gateway.recorded()).reason == ""
