"""A gateway as a process whose usage is compared with what its clients know: the bed of `test_usage.py`.

    clients, pipelined  ->  gateway, two workers  ->  a quick Ironic in the loop of the test

What it does: it sends many requests of many clients, keeps a ledger of them, reads what the gateway lists by
`skewgate usage`, and says where the list and the ledger differ although no day is called incomplete.

Rules: of the gateway it knows the command line only.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import aiohttp

from tests.kit.gateways import GatewayProcess
from tests.kit.messages import MAX_FIELD, MIN_FIELD, VERSION_FIELD, request, response, version_line
from tests.kit.networks import LOOPBACK
from tests.kit.processes import call, ready

LATEST_MINOR: Final = 90
NOTHING: Final = "/v1/nothing"
"""A path that the server does not know: 404."""
WINDOW: Final = 50
"""Requests that a connection sends before it reads the first response."""
CONNECTIONS: Final = 12
OTHER: Final = "other"

EXECUTED: Final = {"": "1.1", "latest": f"1.{LATEST_MINOR}"}
"""Version at which a request with this text in place of one is executed."""

_VERSION: Final = re.compile(rb"(?i)\r\nx-openstack-ironic-api-version: *1\.(\d+)")


class Ask(NamedTuple):
    client: str
    """Client as usage has to list it."""
    version: str
    user_agent: str
    path: str = "/v1/nodes"

    @property
    def key(self) -> tuple[str, str]:
        """Client, and the version at which the request is executed."""
        return self.client, EXECUTED.get(self.version, self.version)

    def message(self) -> bytes:
        version = [version_line(self.version)] if self.version else []
        return request("GET", self.path, *version, f"User-Agent: {self.user_agent}")


def asks(client: str, version: str, number: int, user_agent: str = "", path: str = "/v1/nodes") -> list[Ask]:
    """Returns the same request `number` times. `user_agent`: that of the client's name by default."""
    return [Ask(client, version, user_agent or f"{client}/1.0", path)] * number


Counts = Counter[tuple[str, str]]


@final
@dataclass
class Ledger:
    """Number of requests by client and version, as the clients know it."""

    sent: Counts = field(default_factory=Counter)
    answered: Counts = field(default_factory=Counter)


class Listed(NamedTuple):
    """Answer of `skewgate usage`: requests by client and version, and whether a day is called incomplete."""

    requests: Mapping[tuple[str, str], int]
    incomplete: bool


def breaches(listed: Listed, ledger: Ledger) -> list[str]:
    """Returns what the list lacks without saying so, and what it has though nobody sent it."""
    found = []
    for (client, version), number in ledger.answered.items():
        counted = listed.requests.get((client, version), 0)
        if counted < number and not listed.incomplete:
            found.append(f"{client} at {version}: {number} answered, {counted} counted, no day is incomplete")
    for key, counted in listed.requests.items():
        # What is folded has lost its client: the sum below has it.
        if key[0] != OTHER and counted > ledger.sent[key]:
            found.append(f"{key[0]} at {key[1]}: {ledger.sent[key]} sent, {counted} counted")
    total = sum(listed.requests.values())
    if total > ledger.sent.total():
        found.append(f"{ledger.sent.total()} sent, {total} counted")
    return found


@final
class QuickIronic(asyncio.Protocol):
    """One connection of a server of 1.1 to 1.`LATEST_MINOR` that does nothing but answer."""

    def __init__(self, connections: set[asyncio.Transport]) -> None:
        self._connections = connections
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        assert self._transport is not None
        self._connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        *heads, self._buffer = (self._buffer + data).split(b"\r\n\r\n")
        self._transport.write(b"".join(_answer(head) for head in heads))


def _answer(head: bytes) -> bytes:
    found = _VERSION.search(head)
    minor = int(found[1]) if found else 1
    path = head.split(b" ", 2)[1]
    status = 404 if path.startswith(NOTHING.encode()) else 200
    body = b'{"id": "v1"}' if path == b"/v1" else b'{"nodes": []}'
    return response(
        status,
        f"{VERSION_FIELD}: 1.{minor}",
        f"{MIN_FIELD}: 1.1",
        f"{MAX_FIELD}: 1.{LATEST_MINOR}",
        "Content-Type: application/json",
        body=body,
    )


@asynccontextmanager
async def quick_ironic() -> AsyncIterator[int]:
    """Serves on a port, which it gives."""
    connections = set[asyncio.Transport]()
    server = await asyncio.get_running_loop().create_server(lambda: QuickIronic(connections), LOOPBACK, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for transport in tuple(connections):
            transport.abort()


async def send(port: int, requests: Sequence[Ask], ledger: Ledger, connections: int = CONNECTIONS) -> None:
    """Sends each of these once, over some connections at the same time. A connection that breaks is made
    anew, for the requests that were not sent yet."""
    await asyncio.gather(
        *(_send_all(port, requests[part::connections], ledger) for part in range(connections))
    )


async def _send_all(port: int, requests: Sequence[Ask], ledger: Ledger) -> None:
    left = list(reversed(requests))
    while left:
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            await asyncio.sleep(0.05)  # nobody listens at the moment
            continue
        try:
            while left:
                window = [left.pop() for _ in range(min(WINDOW, len(left)))]
                ledger.sent.update(each.key for each in window)
                writer.write(b"".join(each.message() for each in window))
                for each in window:
                    await _read_response(reader)
                    ledger.answered[each.key] += 1
        except (OSError, asyncio.IncompleteReadError):
            continue
        finally:
            writer.transport.abort()


async def _read_response(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)\r\n", head)
    assert length is not None, head
    await reader.readexactly(int(length[1]))


CONFIGURATION: Final = """\
workers: {workers}
timeouts: {{drain: 5s}}
clients:
  - {{name: nightly, user_agent: nightly-report}}
services:
  baremetal:
    dialect: ironic
    probe: {{interval: 1s}}
    backends: [{{name: api, url: "http://127.0.0.1:{backend}"}}]
"""


@final
class UsageGateway(GatewayProcess):
    """A gateway with a state file, and so with a database beside it, whoever runs it by then."""

    def __init__(self, folder: Path, backend: int, workers: int) -> None:
        super().__init__(folder)
        self.database = Path(f"{self.state}.usage")
        self.configure(CONFIGURATION.format(workers=workers, backend=backend))

    async def ready(self, *arguments: str, within: Sequence[str] = ()) -> None:
        """Starts a process, and returns when it is ready."""
        await self.start(*arguments, within=within)
        async with aiohttp.ClientSession() as session:
            await ready(session, self.admin)

    async def status(self) -> Any:
        async with aiohttp.ClientSession() as session, session.get(f"{self.admin}/status") as answer:
            return await answer.json()

    async def listed(self) -> Listed:
        return await listed("--admin", self.admin)


async def listed(*arguments: str) -> Listed:
    ended = await call("usage", "baremetal", "-o", "json", *arguments)
    assert ended.code == 0, ended.err
    return read(json.loads(ended.out))


def read(document: Any) -> Listed:
    requests: Counts = Counter()
    for row in document["rows"]:
        for version, number in row["versions"].items():
            requests[row["client"], version] += number
    return Listed(requests, bool(document["incomplete"]))


def shuffled(groups: Iterable[Sequence[Ask]]) -> list[Ask]:
    """Returns the requests of all groups, each spread evenly over the whole."""
    placed = [((at + 0.5) / len(group), each) for group in groups for at, each in enumerate(group)]
    return [each for _, each in sorted(placed, key=lambda pair: pair[0])]
