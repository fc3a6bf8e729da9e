"""A pair: an old and a new real server of one kind behind the gateway, with recorders all around.

    client -> hop `front` -> gateway -> hop of each server -> real server

What it does: the same for every service whose versions are in the standard header `OpenStack-API-Version`
(or beside it in one of its own), said as data in `Wire`; after every test it holds the records of all
recorders against the promise (`violations`).

Rules: nothing is known of the gateway but what a user can see from outside.
"""

from __future__ import annotations

import contextlib
import http.client
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.real.gateway_process import Gateway
from tests.real.hop import STANDARD_HEADER, Exchange, Hop
from tests.real.launching import Release, RunningServer
from tests.real.processes import LOOPBACK
from tests.real.stand import EXACT, Reply
from tests.real.wire import Head


@dataclass(frozen=True, slots=True)
class Wire:
    """How a service writes versions and how the gateway is told: `dialect` is configuration lines.

    `silence` is the version that no version means, and `silent` whether a request without one may go on
    as it is; `documents` are the paths where a server tells what it
    serves, which are asked for without a version, by probes as well; `token` is what clients send."""

    service: str
    dialect: tuple[str, ...]
    service_type: str
    silence: str
    documents: frozenset[str]
    own_header: str | None = None
    token: str = "admin"
    silent: bool = False

    def versions(self, head: Head | None) -> list[str]:
        """Every version that this head names for the service, each header's once."""
        if head is None:
            return []
        items = (item.strip().partition(" ") for item in (head.get(STANDARD_HEADER) or "").split(","))
        found = [version.strip() for name, _, version in items if name == self.service_type]
        if self.own_header is not None:
            found += head.all(self.own_header)
        return found

    def headers(self, version: str | None) -> dict[str, str]:
        """What a client sends that wants this version."""
        said = {} if version is None else {STANDARD_HEADER: f"{self.service_type} {version}"}
        return {"X-Auth-Token": self.token, "Accept": "application/json", **said}


class Pair:
    """One gateway before `servers`; `offer` is the range that clients are told for as long as it stands."""

    def __init__(
        self, wire: Wire, policy: str, folder: Path, servers: Mapping[str, RunningServer], offer: Release
    ) -> None:
        self.name = f"{wire.service}-{policy}"
        self.wire = wire
        self.offer = offer
        self.servers = servers
        self.hops = {member: Hop(f"{self.name}-{member}", server.port) for member, server in servers.items()}
        self.gateway = Gateway(
            self.name,
            folder / f"gateway-{self.name}",
            {member: hop.url for member, hop in self.hops.items()},
            {"policy": policy},
            service=wire.service,
            dialect=wire.dialect,
        )
        self.front = Hop(f"{self.name}-front", self.gateway.port)
        self._marks: dict[str, int] = {}

    @property
    def url(self) -> str:
        """Where clients go."""
        return self.front.url

    @contextlib.contextmanager
    def running(self) -> Iterator[Pair]:
        """Started, lent, and ended as an operator does: SIGTERM must end the gateway with exit code 0."""
        hops = [self.front, *self.hops.values()]
        code: int | None = None
        with contextlib.ExitStack() as stack:
            for hop in hops:
                stack.enter_context(hop)
            stack.callback(self.gateway.process.stop)
            self.gateway.start()
            yield self
            code = self.gateway.process.terminate()
        assert code == 0, f"the gateway {self.name} ended with {code}\n{self.gateway.process.last_words()}"

    @contextlib.contextmanager
    def test(self) -> Iterator[Pair]:
        """One test's time with the pair; its records are checked at its end."""
        self._marks = {hop.name: hop.count() for hop in (self.front, *self.hops.values())}
        yield self
        wrong = violations(self)
        assert not wrong, f"pair {self.name}:\n" + "\n".join(wrong)

    def seen(self) -> list[Exchange]:
        """What clients asked and were told since the test began."""
        return self.front.exchanges(self._marks.get(self.front.name, 0))

    def arrived(self, member: str) -> list[Exchange]:
        """All that arrived at this server since the test began, the gateway's probes too."""
        hop = self.hops[member]
        return hop.exchanges(self._marks.get(hop.name, 0))

    def reached(self, member: str) -> list[Exchange]:
        """What the gateway sent to this server for clients since the test began, documents apart."""
        return [
            one for one in self.arrived(member) if one.was_forwarded and one.path not in self.wire.documents
        ]

    def served(self) -> list[str]:
        """The versions that clients were told their requests ran at, documents apart."""
        good = [one for one in self.seen() if one.status is not None and one.status < 300]
        told = [self.wire.versions(one.reply) for one in good if one.path not in self.wire.documents]
        return [versions[0] for versions in told if versions]

    def ask(self, target: str, version: str | None = None, **more: str) -> Reply:
        """A GET of our own through the front, for what client libraries do not show."""
        return ask(self.front.port, target, self.wire.headers(version) | more)

    def records(self) -> str:
        """What passed since the test began, for a person who looks at a failure."""
        lines = ["clients saw:", *(f"  {self._line(one)}" for one in self.seen())]
        for member in self.hops:
            lines += [f"{member} got:", *(f"  {self._line(one)}" for one in self.arrived(member))]
        return "\n".join(lines)

    def figures(self) -> list[tuple[str, ...]]:
        """The rows of the table at the end: stand, where, requests, probes, 406, 503, served versions."""
        rows: list[tuple[str, ...]] = []
        for place, hop in {"clients": self.front, **self.hops}.items():
            everything = hop.exchanges()
            asked = [one for one in everything if hop is self.front or one.was_forwarded]
            statuses = Counter(one.status for one in asked)
            good = (one for one in asked if one.status is not None and one.status < 300)
            versions = Counter(version for one in good for version in set(self.wire.versions(one.reply)))
            text = " ".join(f"{version}:{versions[version]}" for version in sorted(versions, key=_in_order))
            counts = (len(asked), len(everything) - len(asked), statuses[406], statuses[503])
            rows.append((self.name, place, *map(str, counts), text))
        return rows

    def _line(self, one: Exchange) -> str:
        asked = sorted(set(self.wire.versions(one.request)))
        return f"{one.request.start} {asked} -> {one.status} {sorted(set(self.wire.versions(one.reply)))}"


def ask(port: int, target: str, headers: Mapping[str, str], method: str = "GET") -> Reply:
    """One request to this loopback port."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
    try:
        connection.request(method, target, headers=dict(headers))
        reply = connection.getresponse()
        return Reply(reply.status, reply.headers, reply.read())
    finally:
        connection.close()


def violations(pair: Pair) -> list[str]:
    """Everything since the test began that breaks the promise, each with its reason; empty is good.

    The promise: a request reaches only a server that serves its version; it carries that version
    explicitly, and is executed at it; the client is told the version that it asked for."""
    wire = pair.wire
    told = ((one, _lie(wire, one, pair.offer)) for one in pair.seen())
    wrong = [f"clients saw {one}: {reason}" for one, reason in told if reason]
    for member, server in pair.servers.items():
        place = f"{member} ({server.release.number}) got"
        errors = ((one, misdirected(wire, one, server.release)) for one in pair.arrived(member))
        wrong += [f"{place} {one}: {reason}" for one, reason in errors if reason]
    return wrong


def misdirected(wire: Wire, one: Exchange, release: Release) -> str | None:
    """Why this request should not have reached a server of this release as it did; None when it may."""
    versions = set(wire.versions(one.request))
    if len(versions) > 1:
        return f"two versions in one request: {sorted(versions)}"
    if any(not release.serves(version) for version in versions):
        return f"this release serves {release.bottom} to {release.top}, and was sent {versions}"
    if one.path in wire.documents:
        return None
    if not one.was_forwarded:
        return "neither a probe of the gateway nor a client's request"
    if not versions and not wire.silent:
        return "no explicit version"
    if one.status == 406:
        return "refused by the server for its version"
    served = set(wire.versions(one.reply))
    if served and served != (versions or {wire.silence}):
        return f"executed at {sorted(served)}, not at the version it was sent with"
    return None


def _lie(wire: Wire, one: Exchange, offer: Release) -> str | None:
    """What is untrue in what the client was told; None when nothing is."""
    if one.path in wire.documents or one.status is None or one.status >= 300:
        return None
    # Of several names the standard one counts, and of several items the last.
    asked = (wire.versions(one.request) or [wire.silence])[0]
    due = offer.top if asked == "latest" else asked
    served = wire.versions(one.reply)
    if one.status == 204 and not served:
        # Senlin's own replies without content name no version either.
        return None
    if EXACT.fullmatch(due) and set(served) != {due}:
        return f"asked for {asked}, told {served}"
    return None


def _in_order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
