"""A testbed: a recorder in front, the gateway, and a recorder in front of each real server.

    client -> recorder `front` -> gateway -> recorder of each backend -> real server

What it does: it assembles these parts, makes backends unreachable and reachable again, and checks the records
of all recorders against the gateway's promise after every test (`violations`).

Rules: the recorder makes a server unreachable, by refusing connections. So the server itself stays as it is
for the next test. One test stops a real process instead.
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
from tests.real.launcher import Release, RunningServer
from tests.real.processes import wait_for
from tests.real.recorder import LOOPBACK, OWN_HEADER, Exchange, Recorder

EXACT = re.compile(r"[0-9]+\.[0-9]+")
DEFAULT_VERSION = "1.1"
# The targets of the gateway's probes.
PROBED_PATHS = ("/v1", "/v1/")


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request of the test itself."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass(frozen=True, slots=True)
class Backend:
    """One member of the fleet: the release of its server, and the recorder in front of it."""

    release: Release
    recorder: Recorder


class Testbed:
    """One gateway with its servers and recorders. `offer`: the range that it must always show."""

    __test__ = False

    def __init__(
        self,
        name: str,
        folder: Path,
        servers: Mapping[str, RunningServer],
        policy: Mapping[str, str],
        offer: tuple[str, str],
        *,
        direct: frozenset[str] = frozenset(),
    ) -> None:
        """`direct`: backends without a recorder. The gateway connects to the server itself."""
        self.name = name
        self.offer = offer
        self.servers = servers
        self.backends = {
            member: Backend(server.release, Recorder(f"{name}-{member}", server.port))
            for member, server in servers.items()
            if member not in direct
        }
        urls = {
            member: server.url if member in direct else self.backends[member].recorder.url
            for member, server in servers.items()
        }
        self.gateway = Gateway(name, folder / f"gateway-{name}", urls, policy)
        self.front = Recorder(f"{name}-front", self.gateway.port)
        self._record_starts: dict[str, int] = {}

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.front.url

    def start(self) -> None:
        for recorder in self._recorders():
            recorder.start()
        self.gateway.start()

    def stop(self) -> int:
        """End the gateway as an operator does, then the recorders. Return the exit code of the gateway."""
        try:
            return self.gateway.process.terminate()
        finally:
            self.gateway.process.stop()
            for recorder in self._recorders():
                recorder.stop()

    @contextlib.contextmanager
    def test(self) -> Iterator[Testbed]:
        """The testbed for one test: complete at its start, its records checked at its end."""
        self.restore()
        self.start_records()
        try:
            yield self
        finally:
            found = violations(self)
            for backend in self.backends.values():
                backend.recorder.start()
        assert not found, f"testbed {self.name}:\n" + "\n".join(found)

    def start_records(self) -> None:
        """Start the records of `seen`, `arrived` and `forwarded` anew."""
        self._record_starts = {recorder.name: recorder.count() for recorder in self._recorders()}

    def disconnect(self, member: str) -> None:
        """Make this backend refuse connections."""
        self.backends[member].recorder.stop()

    def restore(self) -> None:
        """Make all backends reachable. Return when the gateway knows it."""
        for backend in self.backends.values():
            backend.recorder.start()
        wait_for(self.gateway.knows_all, f"the gateway {self.name} knows that all its backends are back")

    def wait_until_not_fresh(self, member: str) -> None:
        """Wait until a probe of this backend has failed."""
        wait_for(
            lambda: self.gateway.service()["backends"][member]["freshness"] != "fresh",
            f"the gateway {self.name} finds {member} unreachable",
        )

    def seen(self) -> list[Exchange]:
        """The requests and responses of clients since the test began."""
        return self.front.exchanges(self._record_starts.get(self.front.name, 0))

    def arrived(self, member: str) -> list[Exchange]:
        """All exchanges at this server since the test began, including probes."""
        recorder = self.backends[member].recorder
        return recorder.exchanges(self._record_starts.get(recorder.name, 0))

    def forwarded(self, member: str) -> list[Exchange]:
        """The exchanges at this server since the test began, without probes."""
        return [exchange for exchange in self.arrived(member) if exchange.was_forwarded]

    def conversation(self) -> list[tuple[str, str, str | None, int | None]]:
        """The exchanges of clients, in short: method, path, requested version, status."""
        return [
            (exchange.method, exchange.path, exchange.requested, exchange.status) for exchange in self.seen()
        ]

    def send(self, target: str, version: str | None = None, *, method: str = "GET") -> Response:
        """Send a request of the test through the front, for details that client libraries hide."""
        connection = http.client.HTTPConnection(LOOPBACK, self.front.port, timeout=30)
        try:
            connection.request(method, target, headers={} if version is None else {OWN_HEADER: version})
            response = connection.getresponse()
            return Response(response.status, response.headers, response.read())
        finally:
            connection.close()

    def records(self) -> str:
        """All exchanges since the test began, for the report of a failure."""
        lines = ["clients saw:", *(f"  {exchange}" for exchange in self.seen())]
        for member in self.backends:
            lines += [f"{member} got:", *(f"  {exchange}" for exchange in self.forwarded(member))]
        return "\n".join(lines)

    def figures(self) -> list[tuple[str, ...]]:
        """The rows of the final table: testbed, observer, requests, probes, 406, 503, served versions."""
        rows: list[tuple[str, ...]] = []
        observers = [
            ("clients", self.front),
            *((name, backend.recorder) for name, backend in self.backends.items()),
        ]
        for observer, recorder in observers:
            everything = recorder.exchanges()
            requests = (
                everything
                if recorder is self.front
                else [exchange for exchange in everything if exchange.was_forwarded]
            )
            versions = Counter(exchange.served for exchange in requests if exchange.served is not None)
            versions_text = " ".join(
                f"{version}:{versions[version]}" for version in sorted(versions, key=_in_order)
            )
            statuses = Counter(exchange.status for exchange in requests if exchange.status in (406, 503))
            rows.append(
                (
                    self.name,
                    observer,
                    str(len(requests)),
                    str(len(everything) - len(requests)),
                    str(statuses[406]),
                    str(statuses[503]),
                    versions_text,
                )
            )
        return rows

    def _recorders(self) -> list[Recorder]:
        return [self.front, *(backend.recorder for backend in self.backends.values())]


def violations(testbed: Testbed) -> list[str]:
    """Every exchange since the test began that breaks the promise, each with its reason.

    The promise: a request reaches only a server that serves its version. It has that version explicitly
    (except probes and the documents on `/`) and is executed at it. The client sees that version and one
    range.
    """
    at_clients = ((exchange, wrong_response(exchange, testbed.offer)) for exchange in testbed.seen())
    found = [f"{testbed.name}: clients saw {exchange}: {reason}" for exchange, reason in at_clients if reason]
    for member, backend in testbed.backends.items():
        server = f"{testbed.name}: {member} ({backend.release.number}) got"
        at_server = (
            (exchange, misdirected(exchange, backend.release)) for exchange in testbed.arrived(member)
        )
        found += [f"{server} {exchange}: {reason}" for exchange, reason in at_server if reason]
    return found


def misdirected(exchange: Exchange, release: Release) -> str | None:
    """Why this request must not reach a server of this release in this form; None: it may."""
    versions = {
        version for version in (exchange.requested, exchange.requested_standard) if version is not None
    }
    if not exchange.was_forwarded:
        is_probe = exchange.method == "GET" and exchange.path in PROBED_PATHS and not versions
        return None if is_probe else "neither a probe of the gateway nor a client's request"
    if exchange.path == "/":
        return (
            f"the documents on / must be requested without a version, not with {versions}"
            if versions
            else None
        )
    if exchange.requested is None:
        return "no explicit version"
    if len(versions) > 1:
        return f"two versions in one request: {sorted(versions)}"
    if not release.serves(exchange.requested):
        return f"this release serves {DEFAULT_VERSION} to {release.top}"
    if exchange.served is not None and exchange.served != exchange.requested:
        return "executed at another version than the one in the request"
    if exchange.status == 406 and exchange.served is None:
        return "refused by the server because of its version"
    return None


def wrong_response(exchange: Exchange, offer: tuple[str, str]) -> str | None:
    """What is wrong with the range or the version in the response; None: nothing."""
    offered = exchange.offered
    if offered not in ((None, None), offer):
        return f"the offer is {offer}, the response has {offered}"
    if exchange.served is None or exchange.path == "/":
        return None
    requested = exchange.requested_standard or exchange.requested or DEFAULT_VERSION
    due = offer[1] if requested.lower() == "latest" else requested
    if EXACT.fullmatch(due) and exchange.served != due:
        return f"requested {requested}, served {exchange.served}"
    return None


def _in_order(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in (version or "0").split("."))
