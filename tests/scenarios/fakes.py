"""API servers that answer as Ironic of some age does, and remember every byte that they were sent.

Written on bare sockets, so that what is asserted is what was on the wire. They know nothing of the gateway.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeAlias

LOOPBACK: Final = "127.0.0.1"
OWN: Final = "X-OpenStack-Ironic-API-Version"
LOWEST: Final = "X-OpenStack-Ironic-API-Minimum-Version"
HIGHEST: Final = "X-OpenStack-Ironic-API-Maximum-Version"
STANDARD: Final = "OpenStack-API-Version"
END: Final = b"\r\n\r\n"

Lines: TypeAlias = tuple[tuple[str, str], ...]


class Head(NamedTuple):
    """A start line and header lines as they were on the wire, and the body."""

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
        """The one value; a header that came twice is an error of whoever sent it."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    @property
    def versions(self) -> dict[str, str]:
        """Every header line that has to do with versions, names as they were written."""
        return {name: value for name, value in self.lines if re.search("api.*version", name.lower())}

    @property
    def target(self) -> str:
        return self.start.split(" ")[1]

    @property
    def status(self) -> int:
        return int(self.start.split(" ")[1])


async def read_head(reader: asyncio.StreamReader, *, bodiless: bool = False) -> Head | None:
    """One message with its body by length, if it has one; None at the end of the connection."""
    try:
        raw = await reader.readuntil(END)
    except asyncio.IncompleteReadError:
        return None
    head = Head.parse(raw[: -len(END)])
    length = 0 if bodiless else int(head.get("Content-Length") or 0)
    return head._replace(body=await reader.readexactly(length))


class ApiServer:
    """One API server: its socket, and what it was sent. What it answers is `_reply`."""

    def __init__(self) -> None:
        self.heard: list[Head] = []
        self.refused: list[Head] = []
        """Requests refused for their version."""
        self.port = 0
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    # -- life

    async def start(self) -> None:
        """On its own port, the same one after `stop`."""
        ours = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.bind((LOOPBACK, self.port))
        self.port = ours.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=ours)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            tasks = [task for task in self._serving.values() if task is not None]
            for writer in self._serving:
                writer.close()
            await asyncio.gather(*tasks)
            await self._server.wait_closed()
            self._server = None

    @property
    def asked(self) -> list[Head]:
        """What came through a proxy: everything but the probes."""
        return [head for head in self.heard if head.all("Via")]

    # -- answering

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving[writer] = asyncio.current_task()
        try:
            while (head := await read_head(reader)) is not None:
                self.heard.append(head)
                writer.write(self._reply(head))
                if head.get("Connection") == "close":
                    break
        except ConnectionError:
            pass  # whoever asked has gone
        finally:
            del self._serving[writer]
            writer.close()

    def _reply(self, head: Head) -> bytes:
        """The whole reply to one request."""
        raise NotImplementedError


class Ironic(ApiServer):
    """One API server. `highest` None: before Kilo, it knows no versions. Its range may change while it runs.

    `reads_standard`: from 25.0 on servers also read `OpenStack-API-Version`, those before ignore it.
    `reads_forwarded`: links are built from X-Forwarded headers, as with `enable_proxy_headers_parsing`.
    `document_range`: from 4.3 and 12.0 on the documents tell the range.
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

    # -- answering

    def _reply(self, head: Head) -> bytes:
        method, target, _ = head.start.split(" ")
        path, _, query = target.partition("?")
        if self.highest is None:
            return message(*self._silent(path, head))
        if path == "/":
            return message(200, self.root(self._base(head)))
        minor = self._minor(head)
        if minor is None:
            self.refused.append(head)
            return message(406, fault(406, "Not Acceptable", f"Invalid value for {OWN} header"))
        if not self.lowest <= minor <= self.highest:
            self.refused.append(head)
            return message(406, fault(406, "Not Acceptable", not_served(minor, self)), lines=self._range)
        status, body, marked = self._resource(method, path.rstrip("/"), query, minor, head)
        return message(status, body, lines=(*self._range, (OWN, f"1.{minor}")) if marked else ())

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
        """Status, body, and whether version headers stand on it."""
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

    def _silent(self, path: str, head: Head) -> tuple[int, bytes]:
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
        told: dict[str, object] = {"id": "v1", "links": links}
        if self.highest is not None and self.document_range:
            told |= {"status": "CURRENT", "min_version": "1.1", "version": highest or f"1.{self.highest}"}
        return told

    def root(self, base: str, highest: str | None = None) -> bytes:
        """`/` as this server tells it at `base`, or as it would with another maximum."""
        entry = self.entry(base, highest)
        return json.dumps(
            {"name": "OpenStack Ironic API", "default_version": entry, "versions": [entry]}
        ).encode()

    def v1(self, base: str, highest: str | None = None) -> bytes:
        """`/v1`, the same."""
        nodes = [{"href": f"{base}/v1/nodes/", "rel": "self"}]
        entry = self.entry(base, highest)
        told = {"version": entry} if self.highest is not None and self.document_range else {}
        return json.dumps({"id": "v1", "links": entry["links"], "nodes": nodes, **told}).encode()

    def _base(self, head: Head) -> str:
        """Where this server believes it is reached."""
        host, scheme, prefix = head.get("Host"), "http", ""
        if self.reads_forwarded:
            host = head.get("X-Forwarded-Host") or host
            scheme = head.get("X-Forwarded-Proto") or scheme
            prefix = head.get("X-Forwarded-Prefix") or prefix
        return f"{scheme}://{host}{prefix}"


def fault(status: int, title: str, description: str) -> bytes:
    """An error of Ironic's routing: JSON in a string in JSON."""
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
    """A reply as it is on the wire."""
    head = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, *(f"{name}: {value}" for name, value in lines)]).encode() + END + body


@asynccontextmanager
async def running(*servers: ApiServer) -> AsyncIterator[None]:
    try:
        for server in servers:
            await server.start()
        yield
    finally:
        for server in servers:
            await server.stop()
