"""A name server on loopback, over UDP and TCP, that responds as a test wants or not at all.

It is written from RFC 1035 and shares no code with the library by which the gateway resolves names.
"""

from __future__ import annotations

import asyncio
import errno
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address
from typing import Final

from tests.kit.networks import LOOPBACK
from tests.kit.servers import serving
from tests.kit.waiting import Changes

A: Final = 1
CNAME: Final = 5
AAAA: Final = 28
SRV: Final = 33

NO_ERROR: Final = 0
SERVFAIL: Final = 2
NXDOMAIN: Final = 3
SILENT: Final = -1
"""In the place of a response code: no response."""

_RESPONSE: Final = 0x8180
_TRUNCATED: Final = 0x0200
MAX_DATAGRAM: Final = 1200
"""Bytes of records that fit into a response over UDP."""


class NameServer:
    """Answers from its tables. `code` holds for every query, `codes` for a name, `kinds` for a type."""

    def __init__(self) -> None:
        self.addresses: dict[str, tuple[str, ...]] = {}
        self.aliases: dict[str, str] = {}
        self.services: dict[str, tuple[tuple[int, int, int, str], ...]] = {}
        """SRV records by name: priority, weight, port, target."""
        self.codes: dict[str, int] = {}
        self.kinds: dict[int, int] = {}
        self.code = NO_ERROR
        self.ttl = 1
        self.truncates = False
        """Whether a response over UDP holds nothing and points to TCP."""
        self.queries: list[tuple[str, int]] = []
        """Names and types, in the order in which they came."""
        self.over_tcp = 0
        self.port = 0
        self._came = Changes()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for queries until `holds` is true."""
        await self._came.until(holds)

    async def queried(self, name: str, times: int = 1) -> None:
        """Wait until the IPv4 addresses of `name` were wanted `times` more times."""
        wanted = self.queries.count((name, A)) + times
        await self.until(lambda: self.queries.count((name, A)) >= wanted)

    def respond(self, query: bytes, *, tcp: bool) -> bytes | None:
        """The response to one query; None: silence."""
        name, end = _read_name(query, 12)
        (kind,) = struct.unpack_from("!H", query, end)
        self.queries.append((name, kind))
        self.over_tcp += tcp
        self._came.notify()
        code = self.codes.get(name, self.kinds.get(kind, self.code))
        if code == SILENT:
            return None
        names = self.addresses.keys() | self.aliases.keys() | self.services.keys()
        if code == NO_ERROR and name not in names:
            code = NXDOMAIN
        records = b"" if code else self._records(name, kind)
        count, flags = int.from_bytes(records[:2]), _RESPONSE | code
        if not tcp and (self.truncates or len(records) > MAX_DATAGRAM):
            count, records, flags = 0, b"", flags | _TRUNCATED
        head = query[:2] + struct.pack("!HHHHH", flags, 1, count, 0, 0)
        return head + query[12 : end + 4] + records[2:]

    def _records(self, name: str, kind: int) -> bytes:
        """Their number in two bytes, and the records: aliases first, then those of the wanted type."""
        found = []
        while name in self.aliases:
            found.append(self._record(name, CNAME, _write_name(self.aliases[name])))
            name = self.aliases[name]
        for text in self.addresses.get(name, ()):
            address = ip_address(text)
            if kind == (A if address.version == 4 else AAAA):
                found.append(self._record(name, kind, address.packed))
        for priority, weight, port, target in self.services.get(name, ()) if kind == SRV else ():
            data = struct.pack("!HHH", priority, weight, port) + _write_name(target)
            found.append(self._record(name, kind, data))
        return struct.pack("!H", len(found)) + b"".join(found)

    def _record(self, name: str, kind: int, data: bytes) -> bytes:
        return _write_name(name) + struct.pack("!HHIH", kind, 1, self.ttl, len(data)) + data

    async def serve_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection over TCP."""
        try:
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            response = self.respond(await reader.readexactly(length), tcp=True)
            if response is not None:
                writer.write(struct.pack("!H", len(response)) + response)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: NameServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        response = self._server.respond(data, tcp=False)
        if response is not None:
            self._transport.sendto(response, addr)


@asynccontextmanager
async def name_servers(*hosts: str, port: int = 0) -> AsyncIterator[Sequence[NameServer]]:
    """Running name servers at one port. Port 0: any that is free for both transports at all addresses."""
    async with AsyncExitStack() as stack:
        while True:
            async with AsyncExitStack() as attempt:
                found = port
                servers = []
                try:
                    for host in hosts:
                        servers.append(await attempt.enter_async_context(_serving(host, found)))
                        found = servers[0].port
                except OSError as error:
                    if port or error.errno != errno.EADDRINUSE:
                        raise
                    continue
                stack.push_async_exit(attempt.pop_all())
                break
        yield servers


@asynccontextmanager
async def name_server(host: str = LOOPBACK, port: int = 0) -> AsyncIterator[NameServer]:
    """A running name server. Port 0: as in `name_servers`."""
    async with name_servers(host, port=port) as (server,):
        yield server


@asynccontextmanager
async def _serving(host: str, port: int) -> AsyncIterator[NameServer]:
    server = NameServer()
    async with serving(server.serve_stream, host, port) as streams:
        server.port = streams.port
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Datagrams(server), local_addr=(host, server.port)
        )
        try:
            yield server
        finally:
            transport.close()


def _read_name(message: bytes, position: int) -> tuple[str, int]:
    """A name without compression, in lower case, and where it ends."""
    labels = []
    while length := message[position]:
        labels.append(message[position + 1 : position + 1 + length].decode().lower())
        position += 1 + length
    return ".".join(labels), position + 1


def _write_name(name: str) -> bytes:
    labels = [label.encode("latin-1") for label in name.split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
