"""Clients of the demonstration: some programs of each kind, one task each.

A client knows an address and the behaviour of its own program, nothing else. Each of its requests gets a
judgement. A request is *lost* if a server could have answered it (`EmbeddedFleet.could_serve`), but

- the client got no response, or a status of 500 or above;
- a version was refused that the client had been shown;
- the response has another version than the request, or none at all;
- `latest` went back to an older version.

A request is *refused* if its version is not on offer, or if no server can serve it at the moment. All
requests are safe, so a proxy can send them again when a server dies or hangs.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from random import Random
from time import monotonic
from typing import ClassVar, Final, NamedTuple, TypeAlias, final

import aiohttp

from gateway.demo import catalog
from gateway.demo.fleet import BAREMETAL, CATALOG
from gateway.demo.ironic import HIGHEST, LOWEST, SERVED

TIMEOUT: Final = 10.0
"""Seconds that a client waits for a response."""

SEEN_AFTER: Final = 2.0
"""Seconds for which a server must have run before a request to count as one that could have answered it: a
proxy needs a moment to see that a server is back."""

CLIENT_MAXIMUM: Final = "1.115"
"""Newest version that python-ironicclient 6.3.0 knows, and requests first."""

PROGRAMS: Final = 2
"""Number of client programs of each kind. Together they send some 40 requests a second."""

SESSION_REQUESTS: Final = 6
"""Number of requests of a negotiating program before it ends and a new one starts."""

EVERYBODY: Final = 1
"""Minor number of the oldest version, which every server serves."""

HEADERS: Final = {
    BAREMETAL: (SERVED, LOWEST, HIGHEST),
    CATALOG: (catalog.VERSION, catalog.OLDEST, catalog.NEWEST),
}
"""Header names of each service: the version, and the oldest and the newest one on offer."""


class Result(Enum):
    """Outcome of a client's request."""

    ANSWERED = auto()
    REFUSED = auto()
    LOST = auto()


class Judgement(NamedTuple):
    """Outcome of a client's request, and why it was lost."""

    result: Result
    reason: str = ""
    """Cause of a lost request, in a few words that are the same for all losses of this kind."""


ANSWERED: Final = Judgement(Result.ANSWERED)
REFUSED: Final = Judgement(Result.REFUSED)


class ApiResponse(NamedTuple):
    """The parts of a response that matter to the clients."""

    status: int
    """Status code of the response; 0 if none came."""
    served: str = ""
    """Served version in the response's header; empty if there is none."""
    lowest: str = ""
    highest: str = ""
    """Oldest and newest version that the response names; empty if it names none."""

    @property
    def success(self) -> bool:
        return 200 <= self.status < 300


CouldServe: TypeAlias = Callable[[int, float], bool]
"""Function (minor number, time) -> whether a server has served that version from that time until now."""
Judge: TypeAlias = Callable[[ApiResponse, float], Judgement]
"""Function (response below 500, time) -> judgement. A server must have run since that time to count."""
Pause: TypeAlias = Callable[[float], Awaitable[bool]]
"""Function that waits some seconds and returns False when the demonstration is over."""


class ClientContext(NamedTuple):
    """Dependencies of a client: its service's address, chance, and callbacks."""

    url: str
    random: Random
    could_serve: CouldServe
    report: Callable[[type[Client], str, ApiResponse, Judgement], None]
    """Callback with the kind of client, the requested version (or empty), the response and the judgement."""


class Client(ABC):
    """Base class of all kinds of clients."""

    kind: ClassVar[str]
    """Name of the kind of client, as it is displayed, at most 14 characters."""
    program: ClassVar[str]
    service: ClassVar[str] = BAREMETAL
    path: ClassVar[str] = "/v1/nodes"
    interval: ClassVar[float] = 0.3
    """Mean seconds between two actions of a client."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    async def run(self, pause: Pause) -> None:
        """Repeat the client's action (`act`) until the demonstration is over."""
        timeout, headers = aiohttp.ClientTimeout(total=TIMEOUT), {"Accept": "application/json"}
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
            while await pause(self.interval * self._context.random.uniform(0.6, 1.4)):
                await self.act(session)

    @abstractmethod
    async def act(self, session: aiohttp.ClientSession) -> None:
        """Send the requests of one action of the client's program."""

    async def send(
        self,
        session: aiohttp.ClientSession,
        path: str,
        version: str,
        judge: Judge,
        needs: int = EVERYBODY,
    ) -> tuple[ApiResponse, Judgement]:
        """Send a GET, with `version` unless it is empty, and judge the response. `needs`: minor number of the
        version that a server must serve to answer."""
        begun = monotonic() - SEEN_AFTER
        answer = await self._fetch(session, path, version)
        if not answer.status:
            judgement = Judgement(Result.LOST, "no response")
        elif answer.status < 500:
            judgement = judge(answer, begun)
        elif self._context.could_serve(needs, begun):
            judgement = Judgement(Result.LOST, f"status {answer.status}")
        else:
            judgement = REFUSED  # no server could serve it
        self._context.report(type(self), version, answer, judgement)
        return answer, judgement

    async def _fetch(self, session: aiohttp.ClientSession, path: str, version: str) -> ApiResponse:
        names = HEADERS[self.service]
        headers = {names[0]: version} if version else {}
        try:
            async with session.get(f"{self._context.url}{path}", headers=headers) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            return ApiResponse(0)
        served, lowest, highest = (response.headers.get(name, "") for name in names)
        if response.status == 200 and not (lowest and highest):
            lowest, highest = _range_in(body)
        return ApiResponse(response.status, served, lowest, highest)


@final
class UnversionedClient(Client):
    """A script without versions, which must always get the oldest one."""

    kind = "none"
    program = "curl, without a version"

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.send(session, self.path, "", self._judge)

    def _judge(self, answer: ApiResponse, begun: float) -> Judgement:
        if not answer.success:
            return _unexpected(answer)
        if not answer.served or answer.served != answer.lowest:
            return Judgement(Result.LOST, "not the oldest version")
        return ANSWERED


class ExactClient(Client):
    """A program written for one version, which every server serves."""

    version: ClassVar[str]

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.send(session, self.path, self.version, self._judge, number(self.version))

    def _judge(self, answer: ApiResponse, begun: float) -> Judgement:
        return judged(answer, self.version, promised=self._context.could_serve(number(self.version), begun))


@final
class OldClient(ExactClient):
    """An inventory program written for 1.31."""

    kind = "old 1.31"
    program = "an inventory script of 2017"
    version = "1.31"


class NegotiatingClient(Client):
    """A program that discovers the versions once, at its start, and keeps the newest one that it knows.

    A refusal of that version ends the program. Programs end and start again, so new versions are found.
    """

    first: ClassVar[str] = ""
    """Version that the program requests before any discovery; empty for none."""
    document: ClassVar[str]
    """Path of the discovery document."""

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context)
        self._version = ""
        self._shown_at = 0.0
        self._left = 0

    async def act(self, session: aiohttp.ClientSession) -> None:
        if self._left == 0 and not await self._negotiate(session):
            return
        self._left -= 1
        _, judgement = await self.send(session, self.path, self._version, self._judge, number(self._version))
        if judgement.result is not Result.ANSWERED:
            self._left = 0

    async def _negotiate(self, session: aiohttp.ClientSession) -> bool:
        """Choose the version that the program requests; False if none is found at the moment."""
        versions = []
        if self.first:
            answer, _ = await self.send(session, self.path, self.first, self._judge_first)
            if answer.success:
                return self._keep(self.first)
            versions.append(self.first)
        answer, judgement = await self.send(session, self.document, "", self._judge_document)
        if judgement.result is not Result.ANSWERED:
            return False
        return self._keep(min([*versions, answer.highest], key=number))

    def _keep(self, version: str) -> bool:
        self._version, self._shown_at, self._left = version, monotonic(), SESSION_REQUESTS
        return True

    def _judge_first(self, answer: ApiResponse, begun: float) -> Judgement:
        return judged(answer, self.first, promised=False)

    def _judge_document(self, answer: ApiResponse, begun: float) -> Judgement:
        if not answer.success:
            return _unexpected(answer)
        return ANSWERED if number(answer.highest) else Judgement(Result.LOST, "no range in the document")

    def _judge(self, answer: ApiResponse, begun: float) -> Judgement:
        since = min(self._shown_at, begun)
        return judged(answer, self._version, promised=self._context.could_serve(number(self._version), since))


@final
class NewClient(NegotiatingClient):
    """A program with python-ironicclient 6.3.0, which requests its newest version before any discovery."""

    kind = "new"
    program = "python-ironicclient 6.3"
    first = CLIENT_MAXIMUM
    document = "/v1"


@final
class LatestClient(Client):
    """A dashboard that always requests `latest`, which must never go back to an older version."""

    kind = "latest"
    program = "a dashboard"

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context)
        self._shown = ""
        self._shown_at = 0.0

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.send(session, self.path, "latest", self._judge, number(self._shown) or EVERYBODY)

    def _judge(self, answer: ApiResponse, begun: float) -> Judgement:
        if not answer.success:
            return _unexpected(answer)
        before, since = self._shown, self._shown_at
        if answer.served != before:
            self._shown, self._shown_at = answer.served, monotonic()
        if not answer.served or answer.served != answer.highest:
            return Judgement(Result.LOST, "not the newest version")
        if number(answer.served) < number(before) and self._context.could_serve(number(before), since):
            return Judgement(Result.LOST, "'latest' went backwards")
        return ANSWERED


@final
class OldShopClient(ExactClient):
    """A program written for version 3 of the catalog API."""

    kind = "catalog 3"
    program = "a shop of last year"
    service = CATALOG
    path = "/items"
    version = "3"


@final
class NewShopClient(NegotiatingClient):
    """A program that takes the newest version of the catalog API that it finds."""

    kind = "catalog newest"
    program = "a shop of today"
    service = CATALOG
    path = "/items"
    document = "/"


KINDS: Final[tuple[type[Client], ...]] = (
    UnversionedClient,
    OldClient,
    NewClient,
    LatestClient,
    OldShopClient,
    NewShopClient,
)


def judged(answer: ApiResponse, version: str, *, promised: bool) -> Judgement:
    """Judge a request for exactly `version`. `promised`: it was shown before, and could be served."""
    if answer.success and answer.served != version:
        return Judgement(Result.LOST, "served another version")
    if answer.success:
        return ANSWERED
    if answer.status != 406:
        return _unexpected(answer)
    if promised:
        return Judgement(Result.LOST, "a version shown before was refused")
    if not (answer.lowest and answer.highest):
        return Judgement(Result.LOST, "refused without a range")
    return REFUSED


def number(version: str) -> int:
    """Return the minor number of a version; 0 if it is not a version."""
    last = version.rpartition(".")[2]
    return int(last) if last.isascii() and last.isdigit() else 0


def _unexpected(answer: ApiResponse) -> Judgement:
    return Judgement(Result.LOST, f"status {answer.status}")


def _range_in(body: bytes) -> tuple[str, str]:
    """Return the oldest and the newest version in a document of the catalog API; empty without."""
    try:
        document = json.loads(body)
        return str(document["minimum"]), str(document["maximum"])
    except (ValueError, KeyError, TypeError):
        return "", ""
