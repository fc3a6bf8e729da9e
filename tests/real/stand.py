"""A stand: a recorder in front, the gateway, a recorder before each real server.

    client -> hop `front` -> gateway -> hop of each backend -> real server

What it does: puts the pieces together, makes members of the fleet unreachable and reachable again, and
after every test holds the records of all recorders against the promise (`violations`).

Rules: a server is made unreachable by its recorder (connections are refused), so that the server itself
stays as it is for the next test; one test stops a real process instead.
"""

from __future__ import annotations

import contextlib
import http.client
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.real.gateway_process import Gateway
from tests.real.hop import LOOPBACK, OWN_HEADER, Exchange, Hop
from tests.real.launching import Release, RunningServer
from tests.real.processes import wait_for

EXACT = re.compile(r"[0-9]+\.[0-9]+")
SILENCE_MEANS = "1.1"
# Where a gateway may ask a server something of its own accord.
PROBED_PATHS = ("/v1", "/v1/")


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply to a request made by the test itself."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass(frozen=True, slots=True)
class Backend:
    """One member of the fleet: its server's release and the recorder before it."""

    release: Release
    hop: Hop


class Stand:
    """One gateway and all around it. `offer` is the range that it must show for as long as it stands."""

    def __init__(
        self,
        name: str,
        folder: Path,
        servers: Mapping[str, RunningServer],
        policy: Mapping[str, str],
        offer: tuple[str, str],
        *,
        bare: frozenset[str] = frozenset(),
    ) -> None:
        """`bare` names backends without a recorder: the gateway speaks with the server itself."""
        self.name = name
        self.offer = offer
        self.servers = servers
        self.backends = {
            member: Backend(server.release, Hop(f"{name}-{member}", server.port))
            for member, server in servers.items()
            if member not in bare
        }
        urls = {
            member: server.url if member in bare else self.backends[member].hop.url
            for member, server in servers.items()
        }
        self.gateway = Gateway(name, folder / f"gateway-{name}", urls, policy)
        self.front = Hop(f"{name}-front", self.gateway.port)
        self._marks: dict[str, int] = {}

    @property
    def url(self) -> str:
        """Where clients go."""
        return self.front.url

    def start(self) -> None:
        for hop in self._hops():
            hop.start()
        self.gateway.start()

    def stop(self) -> int:
        """End the gateway as an operator does, then the recorders; the gateway's exit code."""
        try:
            return self.gateway.process.terminate()
        finally:
            self.gateway.process.stop()
            for hop in self._hops():
                hop.stop()

    @contextlib.contextmanager
    def test(self) -> Iterator[Stand]:
        """One test's time with the stand: whole at its start, and its records checked at its end."""
        self.restore()
        self.mark()
        try:
            yield self
        finally:
            wrong = violations(self)
            for backend in self.backends.values():
                backend.hop.start()
        assert not wrong, f"stand {self.name}:\n" + "\n".join(wrong)

    def mark(self) -> None:
        """From here on `seen` and `reached` begin anew."""
        self._marks = {hop.name: hop.count() for hop in self._hops()}

    def cut(self, member: str) -> None:
        """Make this backend refuse connections."""
        self.backends[member].hop.stop()

    def restore(self) -> None:
        """All backends reachable, and the gateway aware of it."""
        for backend in self.backends.values():
            backend.hop.start()
        wait_for(self.gateway.knows_all, f"the gateway {self.name} knows that all its backends are back")

    def notice(self, member: str) -> None:
        """Wait until the gateway's own probes have found out that this backend does not answer."""
        wait_for(
            lambda: self.gateway.service()["backends"][member]["standing"] != "fresh",
            f"the gateway {self.name} finds {member} out of reach",
        )

    def seen(self) -> list[Exchange]:
        """What clients asked and were told since the test began."""
        return self.front.exchanges(self._marks.get(self.front.name, 0))

    def arrived(self, member: str) -> list[Exchange]:
        """All that arrived at this server since the test began, the gateway's probes too."""
        hop = self.backends[member].hop
        return hop.exchanges(self._marks.get(hop.name, 0))

    def reached(self, member: str) -> list[Exchange]:
        """What the gateway sent to this server for clients since the test began."""
        return [exchange for exchange in self.arrived(member) if exchange.was_forwarded]

    def conversation(self) -> list[tuple[str, str, str | None, int | None]]:
        """What clients saw, short: method, path, version asked for, status."""
        return [(one.method, one.path, one.asked, one.status) for one in self.seen()]

    def ask(self, target: str, version: str | None = None, *, method: str = "GET") -> Reply:
        """A request of our own through the front, for what client libraries do not show."""
        connection = http.client.HTTPConnection(LOOPBACK, self.front.port, timeout=30)
        try:
            connection.request(method, target, headers={} if version is None else {OWN_HEADER: version})
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())
        finally:
            connection.close()

    def records(self) -> str:
        """What passed since the test began, for a person who looks at a failure."""
        lines = ["clients saw:", *(f"  {one}" for one in self.seen())]
        for member in self.backends:
            lines += [f"{member} got:", *(f"  {one}" for one in self.reached(member))]
        return "\n".join(lines)

    def figures(self) -> list[tuple[str, ...]]:
        """The rows of the table at the end: stand, where, requests, probes, served versions, refusals."""
        rows: list[tuple[str, ...]] = []
        places = [("clients", self.front), *((name, one.hop) for name, one in self.backends.items())]
        for place, hop in places:
            everything = hop.exchanges()
            asked = everything if hop is self.front else [one for one in everything if one.was_forwarded]
            versions = Counter(one.served for one in asked if one.served is not None)
            versions_text = " ".join(
                f"{version}:{versions[version]}" for version in sorted(versions, key=_in_order)
            )
            statuses = Counter(one.status for one in asked if one.status in (406, 503))
            rows.append(
                (
                    self.name,
                    place,
                    str(len(asked)),
                    str(len(everything) - len(asked)),
                    str(statuses[406]),
                    str(statuses[503]),
                    versions_text,
                )
            )
        return rows

    def _hops(self) -> list[Hop]:
        return [self.front, *(backend.hop for backend in self.backends.values())]


def violations(stand: Stand) -> list[str]:
    """Everything since the test began that breaks the promise, each with its reason; empty is good.

    The promise: a request reaches only a server that serves its version; it carries that version
    explicitly (but for the gateway's own probes and the documents on `/`); it is executed at it; the
    client is told that version and one range."""
    untruths = ((one, lie(one, stand.offer)) for one in stand.seen())
    wrong = [f"{stand.name}: clients saw {one}: {reason}" for one, reason in untruths if reason]
    for member, backend in stand.backends.items():
        place = f"{stand.name}: {member} ({backend.release.number}) got"
        errors = ((one, misdirected(one, backend.release)) for one in stand.arrived(member))
        wrong += [f"{place} {one}: {reason}" for one, reason in errors if reason]
    return wrong


def misdirected(one: Exchange, release: Release) -> str | None:
    """Why this request should not have reached a server of this release as it did; None when it may."""
    versions = {version for version in (one.asked, one.asked_standard) if version is not None}
    if not one.was_forwarded:
        is_probe = one.method == "GET" and one.path in PROBED_PATHS and not versions
        return None if is_probe else "neither a probe of the gateway nor a client's request"
    if one.path == "/":
        return (
            f"the documents on / are asked for without a version, not with {versions}" if versions else None
        )
    if one.asked is None:
        return "no explicit version"
    if len(versions) > 1:
        return f"two versions in one request: {sorted(versions)}"
    if not release.serves(one.asked):
        return f"this release serves {SILENCE_MEANS} to {release.top}"
    if one.served is not None and one.served != one.asked:
        return "executed at another version than the one it was sent with"
    if one.status == 406 and one.served is None:
        return "refused by the server for its version"
    return None


def lie(one: Exchange, offer: tuple[str, str]) -> str | None:
    """What is untrue in what the client was told; None when nothing is."""
    told = one.offered
    if told not in ((None, None), offer):
        return f"the offer is {offer}, the reply says {told}"
    if one.served is None or one.path == "/":
        return None
    asked = one.asked_standard or one.asked or SILENCE_MEANS
    due = offer[1] if asked.lower() == "latest" else asked
    if EXACT.fullmatch(due) and one.served != due:
        return f"asked for {asked}, served {one.served}"
    return None


def _in_order(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in (version or "0").split("."))
