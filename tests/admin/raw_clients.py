"""A whole gateway, and raw clients of its admin listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gateway.assembly import Gateway
from tests.kit.gateways import gateway_of
from tests.kit.metrics import Scrape
from tests.kit.waiting import PATIENCE, until

TOKEN = "open-sesame-0123456789"
FILE = f"""
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0", token: "{TOKEN}"}}
access_log: {{format: off}}
services:
  baremetal:
    dialect: ironic
    backends:
      - {{name: old, url: "http://127.0.0.1:9", versions: 1.1-1.58}}
"""


class Peer:
    """A raw client of the admin listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def abort(self) -> None:
        self.writer.transport.abort()

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """Status, header fields with names in lower case, and body."""
        async with asyncio.timeout(PATIENCE):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            body = await self.reader.readexactly(int(fields.get("content-length", "0")))
        return int(lines[0].split()[1]), fields, body

    async def everything(self) -> bytes:
        """What comes until the gateway closes the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def closed(self) -> bool:
        """Whether the gateway closes the connection in time."""
        try:
            await self.everything()
        except TimeoutError:
            return False
        return True


class Admin:
    """The admin listener of a running gateway, and the raw clients that a test opens."""

    def __init__(self, gateway: Gateway, stack: AsyncExitStack) -> None:
        self.gateway = gateway
        self.host, _, port = gateway.admin_url.partition("://")[2].rpartition(":")
        self.port = int(port)
        self._stack = stack

    async def peer(self) -> Peer:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        peer = Peer(reader, writer)
        self._stack.callback(peer.abort)
        return peer

    def request(self, path: str, token: str | None = TOKEN, method: str = "GET", more: str = "") -> bytes:
        authorization = f"Authorization: Bearer {token}\r\n" if token is not None else ""
        host = f"Host: {self.host}:{self.port}\r\n"
        return f"{method} {path} HTTP/1.1\r\n{host}{authorization}{more}\r\n".encode("latin-1")

    async def counts(self) -> dict[str, float]:
        """What `skewgate_admin_errors_total` says, by reason."""
        peer = await self.peer()
        peer.send(self.request("/metrics"))
        _, _, body = await peer.response()
        peer.writer.close()
        return Scrape(body.decode()).by("reason", "skewgate_admin_errors_total")


@asynccontextmanager
async def running(text: str = FILE) -> AsyncIterator[Admin]:
    async with gateway_of(text) as gateway, AsyncExitStack() as stack:
        yield Admin(gateway, stack)


OPEN = {"01", "08"}
"""Established, or closed by the client alone."""


def connections_to(port: int, *, accepted: bool = True) -> int:
    """Connections to `port` for which the gateway has a descriptor, or not yet, by the kernel's own list."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        row[1].endswith(f":{port:04X}") and row[3] in OPEN and (row[9] != "0") == accepted for row in rows
    )


async def at_most(number: int, port: int) -> None:
    """Wait until no more than `number` connections to `port` have a descriptor. The kernel closes one some
    time after its client has been told."""

    await until(lambda: connections_to(port) <= number)
