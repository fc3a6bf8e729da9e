"""The clients of the load, and the load as a process: every kind at its rate, until SIGTERM.

    python -m tests.load.clients PORT RECORDS [SLOWNESS [CA]]

What it does: `KINDS` lists every kind with its rate. A `Client` records a `Request` for each of its requests,
whatever the response is, in the file RECORDS. At the end it prints how many requests were begun, so that a
missing record is noticed. SLOWNESS 2 makes half as many. With the file of a CA the clients speak TLS.

Rules: no client retries, so that a request that the gateway loses stays lost. Whether an error was allowed is
not judged here: that depends on the whole scenario, see `ledger`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final, Literal, TypeAlias, final

from tests.kit.messages import VERSION_FIELD, request
from tests.kit.status import number
from tests.load.connection import (
    HOST,
    Connection,
    Response,
    client_context,
    fault_of,
    framed,
    record_of,
)
from tests.load.records import LATEST, RecordFile, Request
from tests.load.workload import DIGEST, IMAGE, NODES, SLOW, V1, digest, pieces, target

PINNED: Final = "1.58"
OWN_NEWEST: Final = "1.115"
"""The newest version that python-ironicclient 6.3.0 knows."""
RECONNECT: Final = 0.05
"""Seconds that a client without a connection waits before it makes one."""
SESSION: Final = 12
"""Requests of a negotiating client before its program ends and the next one negotiates."""

Image: TypeAlias = Literal["", "length", "chunked"]
"""Whether a request has an image as its body, and how it is framed."""


@final
@dataclass(frozen=True, slots=True)
class Kind:
    """What a client of one kind does again and again."""

    name: str
    method: str
    path: str
    requested: str = ""
    """The text of the version; empty: none."""
    image: Image = ""
    every: float = 0.075
    """Seconds from one of its requests to the next, or to the response if that takes longer."""
    count: int = 4
    """The number of such clients."""
    negotiates: bool = False
    """As python-ironicclient: it reads the range from `/v1` and keeps the newest version that both know until
    its program ends. It gives up when that version is refused later."""


KINDS: Final = (
    Kind("negotiating", "GET", NODES, count=6, negotiates=True),
    # A program written for 1.58, which every backend serves at all times.
    Kind("pinned", "GET", NODES, PINNED, count=6),
    Kind("latest", "GET", NODES, LATEST),
    # A program from before versions.
    Kind("unversioned", "GET", NODES),
    # A program written for a release that no backend has yet. Every request is refused.
    Kind("ahead", "GET", NODES, OWN_NEWEST, every=0.25, count=2),
    # No node may be created twice.
    Kind("creating", "POST", NODES, PINNED),
    # Slow safe requests, so that a backend always has one in progress.
    Kind("waiting", "GET", SLOW, PINNED, every=0.0),
    # Unsafe requests that take effect at once, with a late response: one that a gateway sends again is
    # executed twice.
    Kind("commanding", "POST", SLOW, PINNED, every=0.0, count=2),
    Kind("uploading", "PUT", IMAGE, PINNED, image="length", every=0.25, count=2),
    Kind("chunking", "POST", IMAGE, PINNED, image="chunked", every=0.25, count=2),
    # Images, some with `Content-Length` and some chunked.
    Kind("downloading", "GET", IMAGE, PINNED, every=0.25, count=3),
)


@final
class Client:
    def __init__(
        self,
        kind: Kind,
        port: int,
        number: int,
        records: RecordFile,
        slowness: float = 1.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`slowness`: the factor by which it requests less often than its kind."""
        self._kind = kind
        self._connection = Connection(port, tls)
        self._every = kind.every * slowness
        self._host = f"{HOST}:{port}"
        self._name = f"{kind.name}-{number}"
        self._negotiated = kind.requested
        self._left = 0
        """Requests at the negotiated version."""
        self._records = records
        self.begun = 0

    async def run(self, stop: asyncio.Event, offset: float) -> None:
        """Act at its rate until `stop` is set, and complete the action in progress.

        `offset`: the part of its interval by which it starts later, so that the clients do not act in step.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + offset * self._every
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await stop.wait()
            if stop.is_set():
                break
            await self._act()
            due = max(due + self._every, loop.time())
            if not self._connection.is_open:
                due = max(due, loop.time() + RECONNECT)
        self._connection.close()

    async def _act(self) -> None:
        method, path = self._kind.method, self._kind.path
        if not self._kind.negotiates:
            await self.send(method, path, self._kind.requested, image=self._kind.image)
            return
        if not self._left:
            response = await self.send("GET", V1)
            if response.status != 200 or not response.highest:
                return
            self._negotiated = min(OWN_NEWEST, response.highest, key=number)
            self._left = SESSION
        response = await self.send(method, path, self._negotiated)
        self._left = 0 if response.status == 406 else self._left - 1

    async def send(self, method: str, path: str, requested: str = "", *, image: Image = "") -> Request:
        self.begun += 1
        ident = f"{self._name}-{self.begun}"
        lines = [f"{VERSION_FIELD}: {requested}"] if requested else []
        body: list[bytes] = []
        if image:
            image_pieces = pieces(ident)
            framing, body = framed(image_pieces, by_length=image == "length")
            lines += [f"{DIGEST}: {digest(b''.join(image_pieces))}", framing]
        elif method == "POST":
            framing, body = framed([json.dumps({"name": ident}).encode()], by_length=True)
            lines.append(framing)
        head = request(method, target(path, ident), *lines, host=self._host)
        began = monotonic()
        message, fault = await self._connection.exchange(method, head, body)
        if message is not None:
            download = b"".join(pieces(ident)) if (method, path) == ("GET", IMAGE) else b""
            reply = {"received": digest(b"".join(pieces(ident)))} if image else None
            created = {"name": ident} if (method, path) == ("POST", NODES) else None
            fault = fault_of(message, download, reply or created)
        record = record_of(
            *(ident, self._kind.name, method, requested, began, Response(message, fault)),
            streamed=bool(image),
            established=self._connection.established,
            evicted=self._connection.evicted,
        )
        self._records.append(record)
        return record


async def run(port: int, path: Path, slowness: float = 1.0, ca: str = "") -> int:
    """Run until SIGTERM. Return the number of requests that were begun."""
    records = RecordFile(path)
    tls = client_context(ca)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    clients = [
        Client(kind, port, number, records, slowness, tls)
        for kind in KINDS
        for number in range(1, kind.count + 1)
    ]
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(client.run(stop, number / len(clients)))
    return sum(client.begun for client in clients)


if __name__ == "__main__":
    port, path, slowness, ca = [*sys.argv[1:], *("1", "")[len(sys.argv) - 3 :]]
    print(asyncio.run(run(int(port), Path(path), float(slowness), ca)))
