"""The clients of the demonstration: some programs of each kind, one task each.

A client knows an address and the behaviour of its own program, nothing else. It sees responses as the real
program would, and each request gets a judgement. *Lost* is a promise that was broken although a server could
have kept it (`EmbeddedFleet.could_serve`):

- no answer, or a status from 500 on, while a server ran all the time that serves the version;
- a version refused that the client had been told, and that a server served all the time since;
- a response of another version than the one that was asked for, or none where one must stand;
- `latest` that goes back to an older version, while a server served the newer one all the time since.

*Refused* is an honest no: what was asked for is not on offer, or no server can serve it at the moment. It
costs the client an answer and tells it the truth. The measure is the same for whatever stands in front of the
fleet.

All requests are safe ones, so a server that dies or hangs under them costs nobody an answer. Others, whose
answer never came, could be sent again by nobody but the client; the gateway answers them 502 or 504.
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
"""Seconds for which a server must have run before a request, to count as one that could have served it: what
stands in front needs a moment to see that it is back."""

CLIENT_MAXIMUM: Final = "1.115"
"""The newest version that python-ironicclient 6.3.0 knows, and requests first."""

PROGRAMS: Final = 2
"""How many programs of each kind run at the same time. In all they send some 40 requests a second."""

SESSION_REQUESTS: Final = 6
"""Requests of a client that negotiates before its program ends and the next one starts."""

EVERYBODY: Final = 1
"""The last number of the oldest version, which every server serves."""

HEADERS: Final = {
    BAREMETAL: (SERVED, LOWEST, HIGHEST),
    CATALOG: (catalog.VERSION, catalog.OLDEST, catalog.NEWEST),
}
"""By service, the names of the header fields with a version and with the ends of a range."""


class Result(Enum):
    """What became of a request."""

    ANSWERED = auto()
    REFUSED = auto()
    LOST = auto()


class Judgement(NamedTuple):
    """What became of a request, and why."""

    result: Result
    reason: str = ""
    """Why it was lost, in a few words that are the same for all losses of its sort."""


ANSWERED: Final = Judgement(Result.ANSWERED)
REFUSED: Final = Judgement(Result.REFUSED)


class ApiResponse(NamedTuple):
    """What came back for a request."""

    status: int
    """0: nothing came."""
    served: str = ""
    """The version that was served, as the response tells it; empty: it tells none."""
    lowest: str = ""
    highest: str = ""
    """The ends of the range that the response tells; empty: it tells none."""

    @property
    def success(self) -> bool:
        return 200 <= self.status < 300


CouldServe: TypeAlias = Callable[[int, float], bool]
"""Whether some server served the version with this last number from so many seconds (a clock's) until now."""
Judge: TypeAlias = Callable[[ApiResponse, float], Judgement]
"""Judges an answer below 500. The number: seconds from which on a server must have run to count."""
Pause: TypeAlias = Callable[[float], Awaitable[bool]]
"""Waits so many seconds; False when the demonstration is over."""


class ClientContext(NamedTuple):
    """What a client is given."""

    url: str
    """Where it reaches its service; a path is added."""
    random: Random
    could_serve: CouldServe
    report: Callable[[type[Client], str, ApiResponse, Judgement], None]
    """Called with kind of client, version that it asked for (empty: none), answer and judgement."""


class Client(ABC):
    """One kind of client."""

    kind: ClassVar[str]
    """At most 14 characters."""
    program: ClassVar[str]
    """What such a client is in real life, a few words."""
    service: ClassVar[str] = BAREMETAL
    path: ClassVar[str] = "/v1/nodes"
    interval: ClassVar[float] = 0.3
    """Seconds between two actions, on average."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context

    async def run(self, pause: Pause) -> None:
        """Act until the demonstration is over."""
        timeout, headers = aiohttp.ClientTimeout(total=TIMEOUT), {"Accept": "application/json"}
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
            while await pause(self.interval * self._context.random.uniform(0.6, 1.4)):
                await self.act(session)

    @abstractmethod
    async def act(self, session: aiohttp.ClientSession) -> None:
        """One action of this kind of client."""

    async def send(
        self,
        session: aiohttp.ClientSession,
        path: str,
        version: str,
        judge: Judge,
        needs: int = EVERYBODY,
    ) -> tuple[ApiResponse, Judgement]:
        """Send a GET, with a version unless it is empty. `needs`: the last number of the version that a
        server must serve to answer."""
        begun = monotonic() - SEEN_AFTER
        answer = await self._fetch(session, path, version)
        if not answer.status:
            judgement = Judgement(Result.LOST, "no answer")
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
    """A script from before versions. It sends none and must always get the oldest one."""

    kind = "none"
    program = "curl, without a version"

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.send(session, self.path, "", self._judge)

    def _judge(self, answer: ApiResponse, begun: float) -> Judgement:
        if not answer.success:
            return _unexpected(answer)
        if not answer.served or answer.served != answer.lowest:
            return Judgement(Result.LOST, "not the oldest")
        return ANSWERED


class ExactClient(Client):
    """A program that was written for one version, which every server serves."""

    version: ClassVar[str]

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.send(session, self.path, self.version, self._judge, number(self.version))

    def _judge(self, answer: ApiResponse, begun: float) -> Judgement:
        return judged(answer, self.version, promised=self._context.could_serve(number(self.version), begun))


@final
class OldClient(ExactClient):
    """An inventory program that was written for 1.31."""

    kind = "old 1.31"
    program = "an inventory script of 2017"
    version = "1.31"


class NegotiatingClient(Client):
    """A program that reads once in its life which versions there are, and keeps the newest that it knows.

    A later refusal of that version ends the program. Programs end and start again, so new versions are found.
    """

    first: ClassVar[str] = ""
    """What it asks for before it has read anything; empty: nothing."""
    document: ClassVar[str]
    """Where it reads which versions there are."""

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
        """Find a version. False: there is none at the moment."""
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
        return ANSWERED if number(answer.highest) else Judgement(Result.LOST, "no range told")

    def _judge(self, answer: ApiResponse, begun: float) -> Judgement:
        since = min(self._shown_at, begun)
        return judged(answer, self._version, promised=self._context.could_serve(number(self._version), since))


@final
class NewClient(NegotiatingClient):
    """python-ironicclient 6.3.0: it requests its own newest version, reads the range from /v1 when that is
    refused, and keeps the version that it has found."""

    kind = "new"
    program = "python-ironicclient 6.3"
    first = CLIENT_MAXIMUM
    document = "/v1"


@final
class LatestClient(Client):
    """A dashboard that always uses the newest version. That must never go back to an older one while a
    server serves the newer."""

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
            return Judgement(Result.LOST, "not the newest")
        if number(answer.served) < number(before) and self._context.could_serve(number(before), since):
            return Judgement(Result.LOST, "'latest' got an older version")
        return ANSWERED


@final
class OldShopClient(ExactClient):
    """A program that was written for version 3 of the other API."""

    kind = "catalog 3"
    program = "a shop of last year"
    service = CATALOG
    path = "/items"
    version = "3"


@final
class NewShopClient(NegotiatingClient):
    """A program that takes the newest version of the other API that it finds."""

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
    """What became of a request for exactly `version`. `promised`: whether the client had been told of it, and
    a server could have kept that."""
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
    """The last number of a version; 0: it is none."""
    last = version.rpartition(".")[2]
    return int(last) if last.isascii() and last.isdigit() else 0


def _unexpected(answer: ApiResponse) -> Judgement:
    return Judgement(Result.LOST, f"status {answer.status}")


def _range_in(body: bytes) -> tuple[str, str]:
    """The ends of the range in a document of the other API; empty texts: it is none."""
    try:
        document = json.loads(body)
        return str(document["minimum"]), str(document["maximum"])
    except (ValueError, KeyError, TypeError):
        return "", ""
