"""TLS between the gateway and the backends of a test."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from gateway.core.fleet.backend import Backend, BackendTls
from tests.dataplane.tls_end import TlsEnd
from tests.kit.certificates import Authority, Leaf
from tests.kit.ironic import NEW, versions
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE

NAME = "backend.test"


@cache
def authority() -> Authority:
    """The CA of all backends."""
    return Authority("CA of the backends")


@cache
def backend_leaf() -> Leaf:
    return authority().server(NAME)


def both_sides(folder: Path, leaf: Leaf | None = None) -> tuple[ssl.SSLContext, BackendTls]:
    """The context of a backend with a good certificate, or with `leaf`; how the gateway speaks to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(leaf or backend_leaf()).write(folder, "backend"))
    return context, BackendTls(NAME, ca=str(authority().write(folder)))


class TlsPeer(TlsEnd):
    """The backend's end of one connection."""

    async def begin_handshake(self) -> None:
        """All but its end: the client's last message is not read, and no ticket is sent."""
        await self.read_more()
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        self.flush()

    def finish_handshake(self) -> None:
        """The rest, without a turn of the loop; tickets are sent."""
        select.select([self.socket], [], [], PATIENCE)
        self.incoming.write(self.socket.recv(65536))
        self.tls.do_handshake()
        self.flush()

    async def read_piece(self, most: int) -> bytes:
        """What is in the next bytes of the socket, perhaps nothing."""
        await self.read_more(most)
        pieces = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while piece := self.tls.read(65536):
                pieces.append(piece)
        return b"".join(pieces)


class RawTlsBackend:
    """A listener of which the test accepts every connection."""

    def __init__(self, folder: Path, receive_buffer: int = 0) -> None:
        self.context, self.tls = both_sides(folder)
        self.listener = socket.socket()
        if receive_buffer:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.listener.bind((LOOPBACK, 0))
        self.listener.listen()
        self.listener.setblocking(False)
        self.peers: list[TlsPeer] = []

    @property
    def backend(self) -> Backend:
        port = self.listener.getsockname()[1]
        return Backend("raw", LOOPBACK, port, declared=versions(NEW), tls=self.tls)

    async def accept(self) -> TlsPeer:
        async with asyncio.timeout(PATIENCE):
            sock, _ = await asyncio.get_running_loop().sock_accept(self.listener)
        self.peers.append(TlsPeer(sock, self.context, server_side=True))
        return self.peers[-1]

    def close(self) -> None:
        for peer in self.peers:
            peer.socket.close()
        self.listener.close()


@asynccontextmanager
async def raw_backend(folder: Path, receive_buffer: int = 0) -> AsyncIterator[RawTlsBackend]:
    backend = RawTlsBackend(folder, receive_buffer)
    try:
        yield backend
    finally:
        backend.close()
