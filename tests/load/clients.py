"""The load's clients: what each kind asks for, and what it finds wrong with what it gets.

What it does: `KINDS` names every kind with its pace. A `Client` writes a `Request` down for all that it
asked, whatever came.

Rules: nothing is asked again because it failed, so nothing that the gateway loses is mended here. Whether an
error was allowed is not judged here: that takes the whole story, see `ledger`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from time import monotonic
from typing import ClassVar, Final, Literal, TypeAlias, final

from tests.dataplane.wire import HIGHEST, LOWEST, SERVED, Message, request
from tests.load.connection import HOST, Connection, framed
from tests.load.records import LATEST, Journal, Request, number
from tests.load.wares import DIGEST, IMAGE, NODES, SLOW, V1, digest, pieces, target

PINNED: Final = "1.58"
OWN_NEWEST: Final = "1.115"
"""The newest version that python-ironicclient 6.3.0 knows."""
SESSION: Final = 12
"""Requests of a negotiating client between two negotiations: its program ends and the next one starts."""

Image: TypeAlias = Literal["", "length", "chunked"]
"""Whether an image goes along with a request, and how it is framed."""


class Client(ABC):
    """One client of one kind."""

    kind: ClassVar[str]
    every: ClassVar[float] = 0.075
    """Seconds from one of its requests to the next, if the reply is there by then."""
    count: ClassVar[int] = 4
    """How many there are of it."""

    def __init__(self, port: int, name: str, book: Journal) -> None:
        self._connection = Connection(port)
        self._host = f"{HOST}:{port}"
        self._name = name
        self._book = book
        self.begun = 0

    async def run(self, stop: asyncio.Event, offset: float) -> None:
        """Act at its pace until told to stop; what is under way then is finished. `offset`: the part of its
        pace by which it begins later than others, so that they do not act in step."""
        loop = asyncio.get_running_loop()
        due = loop.time() + offset * self.every
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await stop.wait()
            if stop.is_set():
                break
            await self.act()
            due = max(due + self.every, loop.time())
        self._connection.close()

    @abstractmethod
    async def act(self) -> None:
        """One thing that this kind of client does."""

    async def ask(self, method: str, path: str, asked: str = "", *, image: Image = "") -> Request:
        """One request at the version `asked`, or without one."""
        self.begun += 1
        ident = f"{self._name}-{self.begun}"
        lines = [f"{SERVED}: {asked}"] if asked else []
        body: list[bytes] = []
        if image:
            whole = pieces(ident)
            framing, body = framed(whole, by_length=image == "length")
            lines += [f"{DIGEST}: {digest(b''.join(whole))}", framing]
        elif method == "POST":
            framing, body = framed([json.dumps({"name": ident}).encode()], by_length=True)
            lines.append(framing)
        head = request(method, target(path, ident), *lines, host=self._host)
        began = monotonic()
        message, fault = await self._connection.exchange(method, head, body)
        ended = monotonic()
        if message is not None:
            fault = _flaw(message, method, path, ident)
        record = Request(
            ident,
            self.kind,
            method,
            asked,
            began,
            ended,
            status=message.status if message else 0,
            served=_told(message, SERVED),
            lowest=_told(message, LOWEST),
            highest=_told(message, HIGHEST),
            fault=fault,
            streamed=bool(image),
        )
        self._book.note(record)
        return record


def _told(reply: Message | None, name: str) -> str:
    """A header's value; every one of them when it stands there more than once, which is no version then."""
    return "|".join(reply.every(name)) if reply else ""


def _flaw(reply: Message, method: str, path: str, ident: str) -> str:
    """What is wrong with the body of a successful reply; empty: nothing."""
    if reply.status not in (200, 201):
        return ""
    image = b"".join(pieces(ident)) if path == IMAGE else b""
    if path == IMAGE and method == "GET":
        if reply.body == image and reply.every(DIGEST) == [digest(image)]:
            return ""
        return f"{len(reply.body)} bytes came, and they are not the {len(image)} of this image"
    try:
        found = json.loads(reply.body)
    except ValueError:
        return "the body is cut or broken"
    if path == NODES and method == "POST" and found != {"name": ident}:
        return f"the node that was created is not the one asked for: {found}"
    if path == IMAGE and found != {"got": digest(image)}:
        return f"the backend got another body: {found}"
    return ""


@final
class Negotiating(Client):
    """As python-ironicclient: reads the range from `/v1`, then keeps the newest version that both know for as
    long as its program runs. Refused later, it gives up."""

    kind, count = "negotiating", 6
    _settled = ""
    _left = 0

    async def act(self) -> None:
        if not self._left:
            told = await self.ask("GET", V1)
            if told.status != 200 or not told.highest:
                return
            self._settled = min(OWN_NEWEST, told.highest, key=number)
            self._left = SESSION
        told = await self.ask("GET", NODES, self._settled)
        self._left = 0 if told.status == 406 else self._left - 1


@final
class Pinned(Client):
    """A program written for 1.58, which every backend serves at all times."""

    kind, count = "pinned", 6

    async def act(self) -> None:
        await self.ask("GET", NODES, PINNED)


@final
class Latest(Client):
    """Takes whatever is newest."""

    kind = "latest"

    async def act(self) -> None:
        await self.ask("GET", NODES, LATEST)


@final
class Silent(Client):
    """From before versions."""

    kind = "silent"

    async def act(self) -> None:
        await self.ask("GET", NODES)


@final
class Creating(Client):
    """Creates nodes, which must not happen twice."""

    kind = "creating"

    async def act(self) -> None:
        await self.ask("POST", NODES, PINNED)


@final
class Waiting(Client):
    """Asks for what takes a while, so that a backend always has something in hand that is safe."""

    kind, every = "waiting", 0.0

    async def act(self) -> None:
        await self.ask("GET", SLOW, PINNED)


@final
class Commanding(Client):
    """Commands what takes effect at once and is answered later: a gateway that sends it again does it
    twice."""

    kind, every, count = "commanding", 0.0, 2

    async def act(self) -> None:
        await self.ask("POST", SLOW, PINNED)


@final
class Uploading(Client):
    """Sends images that say how long they are."""

    kind, every, count = "uploading", 0.25, 2

    async def act(self) -> None:
        await self.ask("PUT", IMAGE, PINNED, image="length")


@final
class Chunking(Client):
    """Sends images in chunks."""

    kind, every, count = "chunking", 0.25, 2

    async def act(self) -> None:
        await self.ask("POST", IMAGE, PINNED, image="chunked")


@final
class Downloading(Client):
    """Reads images, of which some say how long they are and some are chunked."""

    kind, every, count = "downloading", 0.25, 3

    async def act(self) -> None:
        await self.ask("GET", IMAGE, PINNED)


KINDS: Final[tuple[type[Client], ...]] = (
    Negotiating, Pinned, Latest, Silent, Creating, Waiting, Commanding, Uploading, Chunking, Downloading,
)  # fmt: skip
