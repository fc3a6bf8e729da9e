"""One end of a TLS connection, of which the test makes every step: asyncio's cannot close one side alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from tests.kit.waiting import PATIENCE

T = TypeVar("T")


class TlsEnd:
    """The client's end, or with `server_side` the server's."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_side: bool = False) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if server_side else "localhost"
        self.tls = context.wrap_bio(self.incoming, self._outgoing, server_side, name)

    async def do(self, action: Callable[[ssl.SSLObject], T]) -> T:
        """Do something, with as many reads as it needs. Raises `EOFError` if the other end closes first."""
        while True:
            try:
                result = action(self.tls)
            except ssl.SSLWantReadError:
                await self._flush()
                await self.read_more()
            else:
                await self._flush()
                return result

    async def read_more(self, most: int = 65536) -> None:
        """Take what is in the next bytes of the socket."""
        async with asyncio.timeout(PATIENCE):
            data = await asyncio.get_running_loop().sock_recv(self.socket, most)
        if not data:
            raise EOFError
        self.incoming.write(data)

    async def _flush(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, self._outgoing.read())

    def flush(self) -> None:
        """Without a turn of the loop."""
        data = self._outgoing.read()
        while data:
            data = data[self.socket.send(data) :]

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
            self.tls.unwrap()
        await self._flush()
