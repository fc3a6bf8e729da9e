"""Fake API servers that respond as an old or new Ironic does, and keep every request that they received.

They use plain sockets, so that tests assert what was on the wire. They know nothing of the gateway.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeAlias

from tests.kit.networks import LOOPBACK
from tests.kit.servers import StreamServer

OWN: Final = "X-OpenStack-Ironic-API-Version"
LOWEST: Final = "X-OpenStack-Ironic-API-Minimum-Version"
HIGHEST: Final = "X-OpenStack-Ironic-API-Maximum-Version"
STANDARD: Final = "OpenStack-API-Version"
END: Final = b"\r\n\r\n"

Lines: TypeAlias = tuple[tuple[str, str], ...]


class Head(NamedTuple):
    """Start line and field lines of a message as they were on the wire, and its body."""

    start: str
    lines: Lines
    body: bytes = b""

    @classmethod
    def parse(cls, raw: bytes, body: bytes = b"") -> Head:
        start, *lines = raw.decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        return cls(start, tuple((name, value) for name, _, value in pairs), body)

    def all(self, name: str) -> list[str]:
        return [value for known, value in self.lines if known.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """The value of a field that may occur once; None: the field is missing."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} occurs {len(values)} times"
        return values[0] if values else None

    @property
    def versions(self) -> dict[str, str]:
        """Every field whose name is about API versions, with the name as it was written."""
        return {name: value for name, value in self.lines if re.search("api.*version", name.lower())}

    @property
    def target(self) -> str:
        return self.start.split(" ")[1]

    @property
    def status(self) -> int:
        return int(self.start.split(" ")[1])


async def read_head(reader: asyncio.StreamReader, *, bodiless: bool = False) -> Head | None:
    """Read one message with a body of `Content-Length` bytes; None: the connection has ended."""
    try:
        raw = await reader.readuntil(END)
    except asyncio.IncompleteReadError:
        return None
    head = Head.parse(raw[: -len(END)])
    length = 0 if bodiless else int(head.get("Content-Length") or 0)
    return head._replace(body=await reader.readexactly(length))


def bound_socket(port: int, host: str = LOOPBACK) -> socket.socket:
    """A socket bound to this port of loopback; 0: a free port. Several sockets can be bound to one port.

    One that never listens reserves the port: connections are refused, and no other program gets the port.
    """
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((host, port))
    return bound


class ApiServer:
    """One API server: its socket and the requests that it received. A subclass writes the responses."""

    tls: ssl.SSLContext | None = None
    """Set before the start: it speaks TLS."""
    host = LOOPBACK
    """Another address of loopback may be set before the start."""

    def __init__(self) -> None:
        self.received: list[Head] = []
        self.refused: list[Head] = []
        """Requests that it refused because of their version."""
        self.port = 0
        self._reservation: socket.socket | None = None
        self._server = StreamServer(self._serve)

    # -- start and stop

    async def start(self) -> None:
        """Listen on its own port. The port stays reserved after `stop`, until `close`."""
        if self._reservation is None:
            self._reservation = bound_socket(self.port, self.host)
            self.port = self._reservation.getsockname()[1]
        await self._server.start(sock=bound_socket(self.port, self.host), tls=self.tls)

    async def stop(self) -> None:
        """Close all connections and refuse new ones."""
        await self._server.stop(cancel=False)

    async def close(self) -> None:
        """Stop, and release the port."""
        await self.stop()
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None

    @property
    def forwarded(self) -> list[Head]:
        """The requests that came through a proxy: all except the probes."""
        return [head for head in self.received if head.all("Via")]

    # -- responses

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (head := await read_head(reader)) is not None:
                self.received.append(head)
                if await self._take_over(head, reader, writer):
                    break
                writer.write(self._response(head))
                if head.get("Connection") == "close":
                    break
        except ConnectionError:
            pass  # the client has closed the connection

    async def _take_over(
        self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer a request that takes the connection over, to its end; False: it is an ordinary one."""
        return False

    def _response(self, head: Head) -> bytes:
        """The whole response to one request."""
        raise NotImplementedError


class Ironic(ApiServer):
    """One Ironic API server. Its range may change while it runs.

    `highest` None: a release before Kilo, without versions.
    `reads_standard`: releases from 25.0 on also read `OpenStack-API-Version`, older ones ignore it.
    `reads_forwarded`: links are built from X-Forwarded fields, as with `enable_proxy_headers_parsing`.
    `document_range`: the documents contain the range, `/` from 4.3 on and `/v1` from 12.0 on.
    """

    def __init__(
        self,
        highest: int | None,
        lowest: int = 1,
        *,
        reads_standard: bool = False,
        reads_forwarded: bool = False,
        document_range: bool = True,
    ) -> None:
        super().__init__()
        self.lowest, self.highest = lowest, highest
        self.reads_standard = reads_standard
        self.reads_forwarded = reads_forwarded
        self.document_range = document_range

    # -- responses

    def _response(self, head: Head) -> bytes:
        method, target, _ = head.start.split(" ")
        path, _, query = target.partition("?")
        if self.highest is None:
            return message(*self._legacy_resource(path, head))
        if path == "/":
            return message(200, self.root(self._base(head)))
        minor = self._minor(head)
        if minor is None:
            self.refused.append(head)
            return message(406, fault(406, "Not Acceptable", f"Invalid value for {OWN} header"))
        if not self.lowest <= minor <= self.highest:
            self.refused.append(head)
            return message(406, fault(406, "Not Acceptable", not_served(minor, self)), lines=self._range)
        status, body, versioned = self._resource(method, path.rstrip("/"), query, minor, head)
        return message(status, body, lines=(*self._range, (OWN, f"1.{minor}")) if versioned else ())

    def _minor(self, head: Head) -> int | None:
        text = head.get(OWN) or ""
        standard = re.fullmatch(r"baremetal (.*)", head.get(STANDARD) or "") if self.reads_standard else None
        text = standard[1] if standard else text
        match = re.fullmatch(r"1\.(\d+)", text or f"1.{self.lowest}")
        return int(match[1]) if match else None

    @property
    def _range(self) -> Lines:
        return ((LOWEST, f"1.{self.lowest}"), (HIGHEST, f"1.{self.highest}"))

    def _resource(
        self, method: str, path: str, query: str, minor: int, head: Head
    ) -> tuple[int, bytes, bool]:
        """Status, body, and whether the response has version fields."""
        if path == "/v1":
            return 200, self.v1(self._base(head)), True
        if path == "/v1/bogus":
            return 404, fault(404, "Not Found", ""), False
        if path == "/v1/portgroups" and minor < 23:
            return 404, client_fault("Resource could not be found."), True
        if path == "/v1/nodes" and "conductor_group" in query and minor < 46:
            return (
                406,
                client_fault("Request not acceptable. The minimal required API version should be 1.46"),
                True,
            )
        if path == "/v1/nodes" and method == "POST":
            return 201, head.body, True
        if path in ("/v1/nodes", "/v1/portgroups"):
            return 200, b'{"nodes": []}', True
        return 404, client_fault(f"Node {path.rpartition('/')[2]} could not be found."), True

    def _legacy_resource(self, path: str, head: Head) -> tuple[int, bytes]:
        if path.rstrip("/") == "/v1":
            return 200, self.v1(self._base(head))
        if path == "/":
            return 200, self.root(self._base(head))
        if path == "/v1/nodes":
            return 200, b'{"nodes": []}'
        return 404, client_fault(f"Node {path.rpartition('/')[2]} could not be found.")

    # -- documents

    def entry(self, base: str, highest: str | None = None) -> dict[str, object]:
        links = [{"href": f"{base}/v1/", "rel": "self"}]
        entry: dict[str, object] = {"id": "v1", "links": links}
        if self.highest is not None and self.document_range:
            entry |= {"status": "CURRENT", "min_version": "1.1", "version": highest or f"1.{self.highest}"}
        return entry

    def root(self, base: str, highest: str | None = None) -> bytes:
        """The document `/` of this server at `base`. `highest`: a maximum other than its own."""
        entry = self.entry(base, highest)
        return json.dumps(
            {"name": "OpenStack Ironic API", "default_version": entry, "versions": [entry]}
        ).encode()

    def v1(self, base: str, highest: str | None = None) -> bytes:
        """The document `/v1`, likewise."""
        nodes = [{"href": f"{base}/v1/nodes/", "rel": "self"}]
        entry = self.entry(base, highest)
        version = {"version": entry} if self.highest is not None and self.document_range else {}
        return json.dumps({"id": "v1", "links": entry["links"], "nodes": nodes, **version}).encode()

    def _base(self, head: Head) -> str:
        """The address that this server writes into its links."""
        host, scheme, prefix = head.get("Host"), "http", ""
        if self.reads_forwarded:
            host = head.get("X-Forwarded-Host") or host
            scheme = head.get("X-Forwarded-Proto") or scheme
            prefix = head.get("X-Forwarded-Prefix") or prefix
        return f"{scheme}://{host}{prefix}"


def fault(status: int, title: str, description: str) -> bytes:
    """An error of Ironic's routing: a JSON document as a string inside a JSON document."""
    inner = json.dumps({"code": status, "title": title, "description": description})
    return json.dumps({"error_message": inner}).encode()


def client_fault(text: str) -> bytes:
    """An error of Ironic's methods."""
    inner = json.dumps({"faultcode": "Client", "faultstring": text, "debuginfo": None})
    return json.dumps({"error_message": inner}).encode()


def not_served(minor: int, server: Ironic) -> str:
    return (
        f"Version 1.{minor} was requested but the minor version is not supported by this service. "
        f"The supported version range is: [1.{server.lowest}, 1.{server.highest}]."
    )


def message(status: int, body: bytes, kind: str = "application/json", lines: Lines = ()) -> bytes:
    """A response as it is on the wire."""
    head = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, *(f"{name}: {value}" for name, value in lines)]).encode() + END + body


@asynccontextmanager
async def running(*servers: ApiServer) -> AsyncIterator[None]:
    """Start all servers and close them at the end."""
    try:
        for server in servers:
            await server.start()
        yield
    finally:
        for server in servers:
            await server.close()
