"""The demo's clients: one task for each kind that a fleet has, and a record of everything they were told.

A client knows the address of the gateway and what its own program would do next, nothing else: it judges
what came back as its real counterpart would, and a reply that breaks what it was promised is a `fault`,
which makes the demo fail. Each comes from an address of its own (by `X-Forwarded-For`, the demo's
configuration trusts loopback), so that the gateway's records can be told apart.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final, TypeAlias, final

import aiohttp

from gateway.cli.demo.fleet import HIGHEST, LOWEST, SERVED

GIVE_UP: Final = 10.0
"""Seconds that a client waits for a reply. Nothing here takes longer than a few milliseconds."""

OWN_HIGHEST: Final = "1.115"
"""The newest version that python-ironicclient 6.3.0 knows, and asks for first."""

SESSION: Final = 4
"""Requests that the negotiating client makes before its program ends and the next one starts."""


@final
@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of one client, and what it was told."""

    client: str
    address: str
    method: str
    path: str
    asked: str
    """The version header's text; empty: none was sent."""
    status: int
    """0: no reply."""
    served: str
    """The version that the reply says it was served at; empty: it says none."""
    lowest: str
    highest: str
    """The range that the reply tells."""
    text: str
    """The error's text in a sentence; empty for none."""
    fault: str = ""
    """How the reply breaks what this client was promised; empty: it does not."""
    note: str = ""
    """What the client makes of it."""


Tell: TypeAlias = Callable[[Exchange], None]
Pause: TypeAlias = Callable[[float], Awaitable[bool]]
"""Waits so many seconds; False when the demo is over."""


class Client(ABC):
    """One kind of client. `tell` is called with every exchange, as soon as it is over."""

    kind: ClassVar[str]
    every: ClassVar[float] = 0.9
    """Seconds between two actions, on average."""

    def __init__(self, url: str, address: str, chance: Random, tell: Tell) -> None:
        self._url = url
        self._address = address
        self._tell = tell
        self.chance = chance

    async def run(self, pause: Pause) -> None:
        """Act until the demo is over."""
        timeout = aiohttp.ClientTimeout(total=GIVE_UP)
        headers = {"X-Forwarded-For": self._address, "Accept": "application/json"}
        async with aiohttp.ClientSession(self._url, timeout=timeout, headers=headers) as session:
            while await pause(self.every * self.chance.uniform(0.6, 1.4)):
                await self.act(session)

    @abstractmethod
    async def act(self, session: aiohttp.ClientSession) -> None:
        """One thing that this kind of client does."""

    async def ask(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        version: str,
        judge: Callable[[Exchange], tuple[str, str]],
        body: Mapping[str, object] | None = None,
    ) -> Exchange:
        """One request. `judge` says (fault, note) of what came back; no reply at all is always a fault."""
        headers = {SERVED: version} if version else {}
        said = (self.kind, self._address, method, path, version)
        try:
            async with session.request(method, path, headers=headers, json=body) as reply:
                text = _sentence(await reply.read()) if reply.status >= 400 else ""
                served, lowest, highest = (reply.headers.get(name, "") for name in (SERVED, LOWEST, HIGHEST))
                bare = Exchange(*said, reply.status, served, lowest, highest, text)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as problem:
            exchange = Exchange(
                *said, 0, "", "", "", "", f"no reply: {str(problem) or type(problem).__name__}"
            )
        else:
            fault, note = judge(bare)
            exchange = Exchange(
                *said, reply.status, bare.served, bare.lowest, bare.highest, text, fault, note
            )
        self._tell(exchange)
        return exchange


def _sentence(body: bytes) -> str:
    """The description inside an Ironic error, or nothing."""
    try:
        inner = json.loads(json.loads(body)["error_message"])
        return str(inner.get("description") or inner.get("faultstring") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def served_as_asked(exchange: Exchange) -> tuple[str, str]:
    """A version that was on offer was asked for: it must be served, and at exactly that version."""
    if exchange.status not in (200, 201):
        return f"{exchange.status} for a version that was on offer {exchange.text}".rstrip(), ""
    if exchange.served != exchange.asked:
        return f"asked for {exchange.asked}, served at {exchange.served or 'no version'}", ""
    return "", ""


class Silent(Client):
    """A script from before versions: sends none, and must always get what the oldest version does."""

    kind = "silent"

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.ask(session, "GET", "/v1/nodes", "", self._judge)

    @staticmethod
    def _judge(exchange: Exchange) -> tuple[str, str]:
        if exchange.status != 200 or exchange.served != exchange.lowest:
            return (
                f"{exchange.status} at {exchange.served or 'no version'} for a request without a version",
                "",
            )
        return "", ""


class Pinned(Client):
    """An inventory program written for 1.31: lists nodes, and enrolls one now and then."""

    kind = "pinned 1.31"

    async def act(self, session: aiohttp.ClientSession) -> None:
        if self.chance.random() < 0.4:
            name = {"name": f"node-{self.chance.getrandbits(24):06x}", "driver": "fake-hardware"}
            await self.ask(session, "POST", "/v1/nodes", "1.31", served_as_asked, name)
        else:
            await self.ask(session, "GET", "/v1/nodes", "1.31", served_as_asked)


class Latest(Client):
    """A dashboard that takes whatever is newest."""

    kind = "latest"

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.ask(session, "GET", "/v1/nodes", "latest", self._judge)

    @staticmethod
    def _judge(exchange: Exchange) -> tuple[str, str]:
        if exchange.status != 200 or exchange.served != exchange.highest:
            return (
                f"{exchange.status} at {exchange.served or 'no version'}, told {exchange.highest} is newest",
                "",
            )
        return "", ""


class Negotiating(Client):
    """python-ironicclient 6.3.0: asks for its own newest, reads the range from /v1 when refused, and keeps
    to it.

    It negotiates once in the life of a program; a later 406 would end that program (the failure that a
    plain load balancer in front of a mixed fleet causes). Programs end and start, so it also finds what is
    new.
    """

    kind = "negotiating"
    every = 1.4

    def __init__(self, url: str, address: str, chance: Random, tell: Tell) -> None:
        super().__init__(url, address, chance, tell)
        self._settled = ""
        self._left = 0

    async def act(self, session: aiohttp.ClientSession) -> None:
        if self._left == 0:
            await self._negotiate(session)
        else:
            await self.ask(session, "GET", "/v1/nodes", self._settled, served_as_asked)
            self._left -= 1

    async def _negotiate(self, session: aiohttp.ClientSession) -> None:
        first = await self.ask(session, "GET", "/v1/nodes", OWN_HIGHEST, self._judge_first)
        self._left = SESSION
        self._settled = OWN_HIGHEST
        if first.status != 406:
            return
        told = await self.ask(session, "GET", "/v1", "", self._judge_range)
        if told.fault:
            self._left = 0
            return
        self._settled = min(OWN_HIGHEST, told.highest, key=_number)
        await self.ask(session, "GET", "/v1/nodes", self._settled, served_as_asked)

    @staticmethod
    def _judge_first(exchange: Exchange) -> tuple[str, str]:
        if exchange.status == 406:  # its headers are not looked at: the client reads the range from /v1
            return "", "its own newest first"
        return served_as_asked(exchange)

    @staticmethod
    def _judge_range(exchange: Exchange) -> tuple[str, str]:
        if exchange.status != 200 or not exchange.highest:
            return f"{exchange.status} without a range on /v1", ""
        return "", f"reads the range {exchange.lowest}-{exchange.highest}: the offer, whoever answers"


class OverEager(Client):
    """Insists on a version that nobody serves: must be refused, with the range in text and headers."""

    kind = "over-eager"
    every = 2.2

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.ask(session, "GET", "/v1/nodes", "1.999", self._judge)

    @staticmethod
    def _judge(exchange: Exchange) -> tuple[str, str]:
        if exchange.status != 406 or exchange.served:
            return f"{exchange.status} for a version that nobody serves", ""
        if f"[{exchange.lowest}, {exchange.highest}]" not in exchange.text:
            return "refused without being told the range", ""
        return "", ""


KINDS: Final[tuple[type[Client], ...]] = (Silent, Pinned, Latest, Negotiating, OverEager)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
