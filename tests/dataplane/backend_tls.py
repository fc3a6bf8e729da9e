"""TLS between the gateway and the backends of a test."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from gateway.core.fleet.backend import Backend, BackendTls
from tests.kit.certificates import Authority, Leaf
from tests.kit.ironic import NEW, versions
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE

NAME = "backend.test"
SOON = PATIENCE


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


class TlsPeer:
    """The backend's side of one connection, of which the test makes every step."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def read_more(self) -> None:
        async with asyncio.timeout(SOON):
            data = await asyncio.get_running_loop().sock_recv(self.socket, 65536)
        if not data:
            raise EOFError
        self._incoming.write(data)

    def flush(self) -> None:
        data = self._outgoing.read()
        while data:
            data = data[self.socket.send(data) :]

    async def handshake(self, *, to_the_end: bool = True) -> None:
        """Not to the end: the client's last message is not read, and no ticket is sent."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                first = self._outgoing.pending > 0
                self.flush()
                if first and not to_the_end:
                    return
                await self.read_more()
            else:
                self.flush()
                return

    def finish_handshake(self) -> None:
        """The rest, without a turn of the loop; tickets are sent."""
        select.select([self.socket], [], [], SOON)
        self._incoming.write(self.socket.recv(65536))
        self.tls.do_handshake()
        self.flush()

    async def received(self) -> bytes:
        """The next request head."""
        data = b""
        while not data.endswith(b"\r\n\r\n"):
            try:
                data += self.tls.read(65536)
            except ssl.SSLWantReadError:
                await self.read_more()
        return data

    async def read_piece(self, most: int) -> bytes:
        """What is in the next bytes of the socket, perhaps nothing."""
        data = await asyncio.get_running_loop().sock_recv(self.socket, most)
        self._incoming.write(data)
        pieces = []
        try:
            while piece := self.tls.read(65536):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        return b"".join(pieces)

    async def send(self, data: bytes) -> None:
        self.tls.write(data)
        await asyncio.get_running_loop().sock_sendall(self.socket, self._outgoing.read())

    async def end(self) -> None:
        """close_notify."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            await asyncio.get_running_loop().sock_sendall(self.socket, self._outgoing.read())


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
        async with asyncio.timeout(SOON):
            sock, _ = await asyncio.get_running_loop().sock_accept(self.listener)
        sock.setblocking(False)
        self.peers.append(TlsPeer(sock, self.context))
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
