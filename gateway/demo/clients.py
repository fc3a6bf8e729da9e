"""The clients of the demonstration: one task for each kind of client, and a record of everything they saw.

A client knows the address of the gateway and the behaviour of its own program, nothing else. It judges a
response as the real program would. A response that breaks a promise to the client is a `fault`, and a fault
makes the demonstration fail. Each client has its own address (in `X-Forwarded-For`; the demonstration's
configuration trusts loopback), so that the gateway's records can be assigned to clients.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Final, TypeAlias, final

import aiohttp

from gateway.demo.fleet import HIGHEST, LOWEST, SERVED

TIMEOUT: Final = 10.0
"""Seconds that a client waits for a response. Nothing here takes longer than a few milliseconds."""

CLIENT_MAXIMUM: Final = "1.115"
"""The newest version that python-ironicclient 6.3.0 knows, and requests first."""

SESSION_REQUESTS: Final = 4
"""Requests of the negotiating client before its program ends and the next one starts."""


@final
@dataclass(frozen=True, slots=True)
class ClientRecord:
    """One request of one client, and what the client saw."""

    client: str
    address: str
    method: str
    path: str
    requested: str
    """The text of the version header; empty: it was not sent."""
    status: int
    """0: no response."""
    served: str
    """The served version in the response; empty: none."""
    lowest: str
    highest: str
    """The ends of the range in the response."""
    text: str
    """The message of an error; empty: none."""
    fault: str = ""
    """How the response breaks a promise to this client; empty: it does not."""
    note: str = ""
    """What the client concludes from the response."""


Report: TypeAlias = Callable[[ClientRecord], None]
Pause: TypeAlias = Callable[[float], Awaitable[bool]]
"""Waits so many seconds; False when the demonstration is over."""


class Client(ABC):
    """One kind of client. `report` is called with the record of every request, as soon as it is finished."""

    kind: ClassVar[str]
    interval: ClassVar[float] = 0.9
    """Seconds between two actions, on average."""

    def __init__(self, url: str, address: str, random: Random, report: Report) -> None:
        self._url = url
        self._address = address
        self._report = report
        self.random = random

    async def run(self, pause: Pause) -> None:
        """Act until the demonstration is over."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        headers = {"X-Forwarded-For": self._address, "Accept": "application/json"}
        async with aiohttp.ClientSession(self._url, timeout=timeout, headers=headers) as session:
            while await pause(self.interval * self.random.uniform(0.6, 1.4)):
                await self.act(session)

    @abstractmethod
    async def act(self, session: aiohttp.ClientSession) -> None:
        """One action of this kind of client."""

    async def request(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        version: str,
        judge: Callable[[ClientRecord], tuple[str, str]],
        body: Mapping[str, object] | None = None,
    ) -> ClientRecord:
        """Send one request. `judge` returns (fault, note) for a response. No response is always a fault."""
        headers = {SERVED: version} if version else {}
        sent = (self.kind, self._address, method, path, version)
        try:
            async with session.request(method, path, headers=headers, json=body) as response:
                text = _error_message(await response.read()) if response.status >= 400 else ""
                served, lowest, highest = (
                    response.headers.get(name, "") for name in (SERVED, LOWEST, HIGHEST)
                )
                received = (response.status, served, lowest, highest, text)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as problem:
            fault = f"no response: {str(problem) or type(problem).__name__}"
            record = ClientRecord(*sent, 0, "", "", "", "", fault)
        else:
            record = ClientRecord(*sent, *received, *judge(ClientRecord(*sent, *received)))
        self._report(record)
        return record


def _error_message(body: bytes) -> str:
    """The description in an Ironic error; empty when there is none."""
    try:
        inner = json.loads(json.loads(body)["error_message"])
        return str(inner.get("description") or inner.get("faultstring") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def served_as_requested(record: ClientRecord) -> tuple[str, str]:
    """For a version on offer: the request must succeed, at exactly that version."""
    if record.status not in (200, 201):
        return f"{record.status} for a version that was on offer {record.text}".rstrip(), ""
    if record.served != record.requested:
        return f"requested {record.requested}, served at {record.served or 'no version'}", ""
    return "", ""


class Unversioned(Client):
    """A script from before versions. It sends none and must always get the oldest version."""

    kind = "unversioned"

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.request(session, "GET", "/v1/nodes", "", self._judge)

    @staticmethod
    def _judge(record: ClientRecord) -> tuple[str, str]:
        if record.status != 200 or record.served != record.lowest:
            return f"{record.status} at {record.served or 'no version'} for a request without a version", ""
        return "", ""


class Pinned(Client):
    """An inventory program written for 1.31. It lists nodes, and enrolls one now and then."""

    kind = "pinned 1.31"

    async def act(self, session: aiohttp.ClientSession) -> None:
        if self.random.random() < 0.4:
            node = {"name": f"node-{self.random.getrandbits(24):06x}", "driver": "fake-hardware"}
            await self.request(session, "POST", "/v1/nodes", "1.31", served_as_requested, node)
        else:
            await self.request(session, "GET", "/v1/nodes", "1.31", served_as_requested)


class Latest(Client):
    """A dashboard that always uses the newest version."""

    kind = "latest"

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.request(session, "GET", "/v1/nodes", "latest", self._judge)

    @staticmethod
    def _judge(record: ClientRecord) -> tuple[str, str]:
        if record.status != 200 or record.served != record.highest:
            version = record.served or "no version"
            return f"{record.status} at {version}, but {record.highest} was shown as the newest", ""
        return "", ""


class Negotiating(Client):
    """python-ironicclient 6.3.0: requests its own newest version, reads the range from /v1 when that is
    refused, and keeps the version that it found.

    It negotiates once in the life of a program. A later 406 would end that program; a plain load balancer in
    front of a mixed fleet causes that failure. Programs end and start again, so this client also finds new
    versions.
    """

    kind = "negotiating"
    interval = 1.4

    def __init__(self, url: str, address: str, random: Random, report: Report) -> None:
        super().__init__(url, address, random, report)
        self._negotiated = ""
        self._requests_left = 0

    async def act(self, session: aiohttp.ClientSession) -> None:
        if self._requests_left == 0:
            await self._negotiate(session)
        else:
            await self.request(session, "GET", "/v1/nodes", self._negotiated, served_as_requested)
            self._requests_left -= 1

    async def _negotiate(self, session: aiohttp.ClientSession) -> None:
        first = await self.request(session, "GET", "/v1/nodes", CLIENT_MAXIMUM, self._judge_first)
        self._requests_left = SESSION_REQUESTS
        self._negotiated = CLIENT_MAXIMUM
        if first.status != 406:
            return
        document = await self.request(session, "GET", "/v1", "", self._judge_range)
        if document.fault:
            self._requests_left = 0
            return
        self._negotiated = min(CLIENT_MAXIMUM, document.highest, key=_number)
        await self.request(session, "GET", "/v1/nodes", self._negotiated, served_as_requested)

    @staticmethod
    def _judge_first(record: ClientRecord) -> tuple[str, str]:
        if record.status == 406:  # the client ignores its headers and reads the range from /v1
            return "", "the client's own newest first"
        return served_as_requested(record)

    @staticmethod
    def _judge_range(record: ClientRecord) -> tuple[str, str]:
        if record.status != 200 or not record.highest:
            return f"{record.status} without a range on /v1", ""
        return "", f"reads the range {record.lowest}-{record.highest}: the offer, from any backend"


class OverEager(Client):
    """Requests a version that no server serves. It must be refused, with the range in text and headers."""

    kind = "over-eager"
    interval = 2.2

    async def act(self, session: aiohttp.ClientSession) -> None:
        await self.request(session, "GET", "/v1/nodes", "1.999", self._judge)

    @staticmethod
    def _judge(record: ClientRecord) -> tuple[str, str]:
        if record.status != 406 or record.served:
            return f"{record.status} for a version that no server serves", ""
        if f"[{record.lowest}, {record.highest}]" not in record.text:
            return "refused without the range in the text", ""
        return "", ""


KINDS: Final[tuple[type[Client], ...]] = (Unversioned, Pinned, Latest, Negotiating, OverEager)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
