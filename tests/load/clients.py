"""The clients of the load: what each kind requests, and the faults that it finds in responses.

What it does: `KINDS` lists every kind with its rate. A `Client` records a `Request` for each of its requests,
whatever the response is.

Rules: no client retries, so that a request that the gateway loses stays lost. Whether an error was allowed is
not judged here: that depends on the whole scenario, see `ledger`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from abc import ABC, abstractmethod
from time import monotonic
from typing import ClassVar, Final, Literal, TypeAlias, final

from tests.kit.messages import MAX_FIELD, MIN_FIELD, VERSION_FIELD, Message, request
from tests.load.connection import HOST, Connection, framed
from tests.load.records import LATEST, RecordFile, Request, number
from tests.load.workload import ANSWERED, DIGEST, IMAGE, NODES, SLOW, V1, digest, pieces, target

PINNED: Final = "1.58"
OWN_NEWEST: Final = "1.115"
"""The newest version that python-ironicclient 6.3.0 knows."""
RECONNECT: Final = 0.05
"""Seconds that a client without a connection waits before it makes one."""
SESSION: Final = 12
"""Requests of a negotiating client before its program ends and the next one negotiates."""

Image: TypeAlias = Literal["", "length", "chunked"]
"""Whether a request has an image as its body, and how it is framed."""


class Client(ABC):
    """One client of one kind."""

    kind: ClassVar[str]
    every: ClassVar[float] = 0.075
    """Seconds from one of its requests to the next, or to the response if that takes longer."""
    count: ClassVar[int] = 4
    """The number of such clients."""

    def __init__(
        self,
        port: int,
        name: str,
        records: RecordFile,
        slowness: float = 1.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`slowness`: the factor by which it requests less often than its kind."""
        self._connection = Connection(port, tls)
        self._every = self.every * slowness
        self._host = f"{HOST}:{port}"
        self._name = name
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
            await self.act()
            due = max(due + self._every, loop.time())
            if not self._connection.is_open:
                due = max(due, loop.time() + RECONNECT)
        self._connection.close()

    @abstractmethod
    async def act(self) -> None:
        """Do one action of this kind of client."""

    async def send(self, method: str, path: str, requested: str = "", *, image: Image = "") -> Request:
        """Send one request with the version `requested`, or without one."""
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
        ended = monotonic()
        if message is not None:
            fault = _fault_of(message, method, path, ident)
        record = Request(
            ident,
            self.kind,
            method,
            requested,
            began,
            ended,
            status=message.status if message else 0,
            served=_fields_text(message, VERSION_FIELD),
            lowest=_fields_text(message, MIN_FIELD),
            highest=_fields_text(message, MAX_FIELD),
            fault=fault,
            streamed=bool(image),
            answered=_fields_text(message, ANSWERED),
            established=self._connection.established,
            evicted=self._connection.evicted,
        )
        self._records.append(record)
        return record


def _fields_text(response: Message | None, name: str) -> str:
    """The value of a field. Several values are joined, so that the result is not a version."""
    return "|".join(response.every(name)) if response else ""


def _fault_of(response: Message, method: str, path: str, ident: str) -> str:
    """What is wrong with the body of a successful response; empty: nothing."""
    if response.status not in (200, 201):
        return ""
    image = b"".join(pieces(ident)) if path == IMAGE else b""
    if path == IMAGE and method == "GET":
        if response.body == image and response.every(DIGEST) == [digest(image)]:
            return ""
        return f"{len(response.body)} bytes came, which are not the {len(image)} bytes of this image"
    try:
        found = json.loads(response.body)
    except ValueError:
        return "the body is incomplete or malformed"
    if path == NODES and method == "POST" and found != {"name": ident}:
        return f"the created node is not the requested one: {found}"
    if path == IMAGE and found != {"received": digest(image)}:
        return f"the backend received another body: {found}"
    return ""


@final
class Negotiating(Client):
    """As python-ironicclient: it reads the range from `/v1` and keeps the newest version that both know until
    its program ends. It gives up when that version is refused later."""

    kind, count = "negotiating", 6
    _negotiated = ""
    _left = 0

    async def act(self) -> None:
        if not self._left:
            response = await self.send("GET", V1)
            if response.status != 200 or not response.highest:
                return
            self._negotiated = min(OWN_NEWEST, response.highest, key=number)
            self._left = SESSION
        response = await self.send("GET", NODES, self._negotiated)
        self._left = 0 if response.status == 406 else self._left - 1


@final
class Pinned(Client):
    """A program written for 1.58, which every backend serves at all times."""

    kind, count = "pinned", 6

    async def act(self) -> None:
        await self.send("GET", NODES, PINNED)


@final
class Latest(Client):
    """Requests `latest`."""

    kind = "latest"

    async def act(self) -> None:
        await self.send("GET", NODES, LATEST)


@final
class Unversioned(Client):
    """A program from before versions, which sends none."""

    kind = "unversioned"

    async def act(self) -> None:
        await self.send("GET", NODES)


@final
class Ahead(Client):
    """A program written for a release that no backend has yet. Every request is refused."""

    kind, every, count = "ahead", 0.25, 2

    async def act(self) -> None:
        await self.send("GET", NODES, OWN_NEWEST)


@final
class Creating(Client):
    """Creates nodes. None may be created twice."""

    kind = "creating"

    async def act(self) -> None:
        await self.send("POST", NODES, PINNED)


@final
class Waiting(Client):
    """Sends slow safe requests, so that a backend always has one in progress."""

    kind, every = "waiting", 0.0

    async def act(self) -> None:
        await self.send("GET", SLOW, PINNED)


@final
class Commanding(Client):
    """Sends unsafe requests that take effect at once, with a late response: one that a gateway sends again is
    executed twice."""

    kind, every, count = "commanding", 0.0, 2

    async def act(self) -> None:
        await self.send("POST", SLOW, PINNED)


@final
class Uploading(Client):
    """Sends images with `Content-Length`."""

    kind, every, count = "uploading", 0.25, 2

    async def act(self) -> None:
        await self.send("PUT", IMAGE, PINNED, image="length")


@final
class Chunking(Client):
    """Sends images as chunked bodies."""

    kind, every, count = "chunking", 0.25, 2

    async def act(self) -> None:
        await self.send("POST", IMAGE, PINNED, image="chunked")


@final
class Downloading(Client):
    """Reads images, some with `Content-Length` and some chunked."""

    kind, every, count = "downloading", 0.25, 3

    async def act(self) -> None:
        await self.send("GET", IMAGE, PINNED)


KINDS: Final[tuple[type[Client], ...]] = (
    Negotiating, Pinned, Latest, Unversioned, Ahead, Creating, Waiting, Commanding, Uploading, Chunking,
    Downloading,
)  # fmt: skip
