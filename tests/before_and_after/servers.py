"""API servers whose answers the requests themselves script: what a server does stands in the field `X-Do`.

    X-Do: kill@old        the server `old` closes the connection; any other one answers as usual

They know both checkouts no better than a client does, keep their ports for both, and never draw a number.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, final

from tests.kit.messages import Message, read_message
from tests.kit.networks import reset
from tests.kit.servers import StreamServer

LOOPBACK: Final = "127.0.0.1"
PATIENCE: Final = 60.0
"""Seconds for one condition, on a machine that is busy with other things."""
IRONIC: Final = "X-OpenStack-Ironic-API-"
PLAIN: Final = "Api-Version"
CHEF: Final = "X-Ops-Server-API-Version"
ECHOED: Final = ("openstack-api-version", "x-openstack-nova-api-version")
"""Fields by which others of OpenStack name the version that they have served, as it was asked for."""

_SWITCHING: Final = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n%b\r\n"


@final
class Server:
    """One server. `newest`: the minor version up to which it serves 1.x; `probed`: what it answers to a
    probe, for a server that cannot be probed; None: a document of Ironic."""

    def __init__(self, name: str, newest: int, probed: bytes | None = None) -> None:
        self.name = name
        self.first_newest = self.newest = newest
        self.probed = probed
        self.closes = False
        """Each connection after its response: how many are idle would depend on chance."""
        self.port = 0
        self.held = 0
        """Requests that wait for `release`."""
        self._released = asyncio.Event()
        self._changed = asyncio.Condition()
        self._server = StreamServer(self._serve, limit=1 << 20)

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        await self._server.start(tls=tls)
        self.port = self._server.port

    async def stop(self) -> None:
        self.release()
        await self._server.stop()

    def begin(self, *, closes: bool) -> None:
        """As new, for the next gateway."""
        self.newest, self.closes = self.first_newest, closes

    def release(self) -> None:
        """Answer what is held."""
        self._released.set()
        self._released = asyncio.Event()

    async def holds(self, number: int) -> None:
        """Wait until so many requests are held."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: self.held == number)

    async def _count(self, change: int) -> None:
        async with self._changed:
            self.held += change
            self._changed.notify_all()

    # --- answers --------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.name == NOT_TLS:
            writer.write(b"this is no TLS\r\n")
            return
        try:
            while await self._answer(await _next_request(reader), reader, writer):
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the gateway has closed it

    async def _answer(
        self, request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection stays open."""
        do = "".join(request.every("x-do"))
        do, _, whom = do.partition("@")
        if whom not in ("", self.name):
            do = ""
        if self.probed is not None and request.target in ("/", "/v1", "/v1/"):
            writer.write(self.probed)
            return False
        if do.startswith("tunnel"):
            return await self._tunnel(do, request, reader, writer)
        if do in ("kill", "reset", "hang", "hold"):
            if do == "reset":
                reset(writer)
            if do == "hang":
                await reader.read()
            if do != "hold":
                return False
            await self._count(1)
            try:
                await self._released.wait()
            finally:
                await self._count(-1)
        writer.write(self._response(do, request))
        return not (self.closes or do in ("garbage", "cut"))

    def _response(self, do: str, request: Message) -> bytes:
        if do == "garbage":
            return b"this is no HTTP\r\n\r\n"
        status = int(do.removeprefix("status=")) if do.startswith("status=") else 200
        status = 503 if request.target == "/unwell" else status
        versions = self._versions(do, request)
        if do == "refuse":
            status, body = 406, b'{"error_message": "{\\"faultstring\\": \\"Version is not supported\\"}"}'
        elif request.target == "/":
            body = self._document()
        else:
            body = json.dumps({"server": self.name, "target": request.target}).encode()
        if do == "large":
            body = body * 2000
        lines = [f"HTTP/1.1 {status} Whatever", "Content-Type: application/json", *versions]
        lines += ["Connection: close"] if self.closes else []
        if do == "chunked":
            lines.append("Transfer-Encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        else:
            lines.append(f"Content-Length: {len(body) + (100 if do == 'cut' else 0)}")
        head = "\r\n".join((*lines, "", "")).encode("latin-1")
        surplus = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" if do == "surplus" else b""
        return head + (b"" if request.method == "HEAD" else body) + surplus

    def _versions(self, do: str, request: Message) -> list[str]:
        """The fields about versions, in the two ways in which the services here read them."""
        asked = "".join(request.every(f"{IRONIC}Version"))
        plain = "".join(request.every(PLAIN))
        if do == "unversioned":
            return []
        if do.startswith("served="):
            asked = plain = do.removeprefix("served=")
        if plain:
            return [f"{PLAIN}: {plain}"]
        if chef := request.every(CHEF):
            said = {
                "min_version": "0",
                "max_version": "1",
                "request_version": chef[0],
                "response_version": chef[0],
            }
            return [f"{CHEF}: {json.dumps(said)}"]
        others = [(name, value) for name, value in request.fields if name.lower() in ECHOED]
        if others and not asked:
            return [f"{name}: {value}" for name, value in others]
        newest = 15 if do == "refuse" else self.newest
        served = () if do == "refuse" else (("", asked or "1.1"),)
        own = (*served, ("Minimum-", "1.1"), ("Maximum-", f"1.{newest}"))
        return [f"{IRONIC}{which}Version: {version}" for which, version in own]

    def _document(self) -> bytes:
        """The root of an Ironic, as `GET /` shows it to a probe."""
        version = {
            "id": "v1",
            "links": [{"href": f"http://{LOOPBACK}:{self.port}/v1/", "rel": "self"}],
            "status": "CURRENT",
            "min_version": "1.1",
            "version": f"1.{self.newest}",
        }
        return json.dumps({"name": "OpenStack Ironic API", "versions": [version]}).encode()

    async def _tunnel(
        self, do: str, request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Switch, send back what comes; end as `do` says, or with the client."""
        version = f"{PLAIN}: {''.join(request.every(PLAIN))}\r\n".encode()
        writer.write(_SWITCHING % version)
        if do == "tunnel-leave":
            await reader.readexactly(1)
            reset(writer)
            return False
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        return False


async def _next_request(reader: asyncio.StreamReader) -> Message:
    """The next request, however long it takes: a connection stays idle until the gateway closes it."""
    while True:
        try:
            return await read_message(reader)
        except TimeoutError:
            continue  # what has come of it is still there


def plain_answer(status: int, *lines: str, body: bytes = b"") -> bytes:
    """What a server that cannot be probed answers."""
    head = [
        f"HTTP/1.1 {status} Whatever",
        *lines,
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(head).encode() + body


JSON: Final = "Content-Type: application/json"

NOT_TLS: Final = "not-tls"
"""The server that answers a TLS handshake with plain text, without a look at it."""

SICK: Final = {
    "refuses": plain_answer(500, JSON),
    "forbids": plain_answer(401, JSON),
    "redirects": plain_answer(302, "Location: http://127.0.0.1:1/", JSON),
    "packs": plain_answer(200, "Content-Encoding: gzip", JSON, body=b"x"),
    "lies": plain_answer(200, JSON, body=b'{"versions": 1}'),
    "rambles": plain_answer(200, JSON, body=b"x" * (300 << 10)),
    "stammers": b"this is no HTTP\r\n\r\n",
    "hangs-up": b"",
    NOT_TLS: b"",
}
"""Servers that cannot be probed, each for another reason, with what they send."""

_OTHERS: Final = (
    *("weak", "strong", "spare", "only", "brief", "guarded", "closed", "tunnels", "late", "prompt"),
    *("gone", "leaves", "stays", "all"),
)
USUAL: Final = {"old": 58, "new": 90, "first": 58, "second": 90, "found": 58, **dict.fromkeys(_OTHERS, 5)}
"""All others, with the newest minor version of each."""


@asynccontextmanager
async def running(tls: ssl.SSLContext) -> AsyncIterator[dict[str, Server]]:
    """All servers, by name. `tls`: of the server `secret`."""
    servers = {name: Server(name, newest) for name, newest in USUAL.items()}
    servers |= {name: Server(name, 58, probed) for name, probed in SICK.items()}
    servers["secret"] = Server("secret", 58)
    async with AsyncExitStack() as stack:
        for server in servers.values():
            await server.start(tls if server.name == "secret" else None)
            stack.push_async_callback(server.stop)
        yield servers
