"""Listeners with TLS for tests of the data plane: one CA for all, certificates as files, clients that trust
it, and one of which the test makes every step."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from gateway.settings.sections.listen import Listen
from gateway.tls.server import ServerCertificates
from gateway.tls.values import CertificateFiles, ServerTls
from tests.kit.certificates import Leaf, authority, client_context
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE
from tests.kit.workers import Gateway, Listener

T = TypeVar("T")


@cache
def local_leaf() -> Leaf:
    """The certificate for loopback. Made once: keys take time."""
    return authority().server()


@cache
def client_leaf() -> Leaf:
    """The certificate of a client."""
    return authority().client("alice")


def files_of(leaf: Leaf, folder: Path, name: str = "tls") -> CertificateFiles:
    certificate, key = leaf.write(folder, name)
    return CertificateFiles(str(certificate), str(key))


def tls_listener(
    folder: Path,
    *,
    client_ca: bool = False,
    required: bool = True,
    forward: bool = False,
    client: Leaf | None = None,
    proxy_protocol: bool = False,
    path: str = "",
) -> Listener:
    """A listener with the certificate for loopback. `client`: what `Gateway.client` shows."""
    tls = ServerTls(
        (files_of(local_leaf(), folder),),
        str(authority().write(folder)) if client_ca else None,
        client="required" if required else "optional",
        forward_client_cert=forward,
    )
    listen = Listen("" if path else LOOPBACK, 0, path, proxy_protocol=proxy_protocol, tls=tls)
    shown = None if client is None else client.write(folder, "client")
    return Listener(listen, ServerCertificates(tls), client_context(authority(), shown))


class RawTlsClient:
    """One of which the test makes every step: asyncio's cannot close one side alone."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.socket = sock
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
                self._incoming.write(await loop.sock_recv(self.socket, 65536))
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, self._outgoing.read())

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
async def raw_client(gateway: Gateway) -> AsyncIterator[RawTlsClient]:
    """One that is connected, for as long as tests wait."""
    context = gateway.listener.client_tls
    assert context is not None
    with socket.socket() as sock:
        sock.setblocking(False)
        async with asyncio.timeout(PATIENCE):
            await asyncio.get_running_loop().sock_connect(sock, gateway.address)
            client = RawTlsClient(sock, context)
            await client.handshake()
            yield client
