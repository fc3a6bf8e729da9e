"""A pair: an old and a new real server of one kind behind the gateway, with recorders on both sides.

    client -> recorder `front` -> gateway -> recorder of each server -> real server

What it does: it serves every service whose versions are in the standard field `OpenStack-API-Version`, or in
a field of its own. A `ServiceApi` describes such a service. After every test, the records of all recorders
are checked against the gateway's promise (`violations`).

Rules: it uses only what a user of the gateway can see.
"""

from __future__ import annotations

import contextlib
import http.client
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.real.gateway_process import Gateway
from tests.real.launcher import Release, RunningServer
from tests.real.message_reader import Head
from tests.real.processes import LOOPBACK
from tests.real.recorder import STANDARD_HEADER, Exchange, Recorder
from tests.real.testbed import EXACT, Response


@dataclass(frozen=True, slots=True)
class ServiceApi:
    """How a service writes versions, and how the gateway is configured for it.

    `dialect`: lines of the configuration. `default_version`: the version of a request without one.
    `unversioned_allowed`: whether the gateway may forward such a request unchanged. `documents`: paths of
    version documents, which clients and probes request without a version. `token`: sent by clients.
    """

    service: str
    dialect: tuple[str, ...]
    service_type: str
    default_version: str
    documents: frozenset[str]
    own_header: str | None = None
    token: str = "admin"
    unversioned_allowed: bool = False

    def versions(self, head: Head | None) -> list[str]:
        """Every version for this service in a head, one for each field."""
        if head is None:
            return []
        items = (item.strip().partition(" ") for item in (head.get(STANDARD_HEADER) or "").split(","))
        found = [version.strip() for name, _, version in items if name == self.service_type]
        if self.own_header is not None:
            found += head.all(self.own_header)
        return found

    def headers(self, version: str | None) -> dict[str, str]:
        """The fields of a client's request at this version."""
        fields = {} if version is None else {STANDARD_HEADER: f"{self.service_type} {version}"}
        return {"X-Auth-Token": self.token, "Accept": "application/json", **fields}


class Pair:
    """One gateway in front of `servers`. `offer`: the release whose range it must always show."""

    def __init__(
        self, api: ServiceApi, policy: str, folder: Path, servers: Mapping[str, RunningServer], offer: Release
    ) -> None:
        self.name = f"{api.service}-{policy}"
        self.api = api
        self.offer = offer
        self.servers = servers
        self.recorders = {
            member: Recorder(f"{self.name}-{member}", server.port) for member, server in servers.items()
        }
        self.gateway = Gateway(
            self.name,
            folder / f"gateway-{self.name}",
            {member: recorder.url for member, recorder in self.recorders.items()},
            {"policy": policy},
            service=api.service,
            dialect=api.dialect,
        )
        self.front = Recorder(f"{self.name}-front", self.gateway.port)
        self._record_starts: dict[str, int] = {}

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.front.url

    @contextlib.contextmanager
    def running(self) -> Iterator[Pair]:
        """Start the pair, and end it as an operator does: SIGTERM must end the gateway with exit code 0."""
        recorders = [self.front, *self.recorders.values()]
        code: int | None = None
        with contextlib.ExitStack() as stack:
            for recorder in recorders:
                stack.enter_context(recorder)
            stack.callback(self.gateway.process.stop)
            self.gateway.start()
            yield self
            code = self.gateway.process.terminate()
        assert code == 0, f"the gateway {self.name} ended with {code}\n{self.gateway.process.log_tail()}"

    @contextlib.contextmanager
    def test(self) -> Iterator[Pair]:
        """The pair for one test. Its records are checked at the end."""
        self._record_starts = {
            recorder.name: recorder.count() for recorder in (self.front, *self.recorders.values())
        }
        yield self
        found = violations(self)
        assert not found, f"pair {self.name}:\n" + "\n".join(found)

    def seen(self) -> list[Exchange]:
        """The requests and responses of clients since the test began."""
        return self.front.exchanges(self._record_starts.get(self.front.name, 0))

    def arrived(self, member: str) -> list[Exchange]:
        """All exchanges at this server since the test began, including probes."""
        recorder = self.recorders[member]
        return recorder.exchanges(self._record_starts.get(recorder.name, 0))

    def forwarded(self, member: str) -> list[Exchange]:
        """The exchanges at this server since the test began, without probes and documents."""
        return [
            exchange
            for exchange in self.arrived(member)
            if exchange.was_forwarded and exchange.path not in self.api.documents
        ]

    def served(self) -> list[str]:
        """The versions in successful responses to clients, without documents."""
        found = [
            self.api.versions(exchange.response)
            for exchange in self.seen()
            if _succeeded(exchange) and exchange.path not in self.api.documents
        ]
        return [versions[0] for versions in found if versions]

    def send(self, target: str, version: str | None = None, **more: str) -> Response:
        """Send a GET of the test through the front, for details that client libraries hide."""
        return send(self.front.port, target, self.api.headers(version) | more)

    def records(self) -> str:
        """All exchanges since the test began, for the report of a failure."""
        lines = ["clients saw:", *(f"  {self._line(exchange)}" for exchange in self.seen())]
        for member in self.recorders:
            lines += [f"{member} got:", *(f"  {self._line(exchange)}" for exchange in self.arrived(member))]
        return "\n".join(lines)

    def figures(self) -> list[tuple[str, ...]]:
        """The rows of the final table: testbed, observer, requests, probes, 406, 503, served versions."""
        rows: list[tuple[str, ...]] = []
        for observer, recorder in {"clients": self.front, **self.recorders}.items():
            everything = recorder.exchanges()
            requests = [
                exchange for exchange in everything if recorder is self.front or exchange.was_forwarded
            ]
            statuses = Counter(exchange.status for exchange in requests)
            versions = Counter(
                version
                for exchange in requests
                if _succeeded(exchange)
                for version in set(self.api.versions(exchange.response))
            )
            text = " ".join(f"{version}:{versions[version]}" for version in sorted(versions, key=_in_order))
            counts = (len(requests), len(everything) - len(requests), statuses[406], statuses[503])
            rows.append((self.name, observer, *map(str, counts), text))
        return rows

    def _line(self, exchange: Exchange) -> str:
        requested = sorted(set(self.api.versions(exchange.request)))
        served = sorted(set(self.api.versions(exchange.response)))
        return f"{exchange.request.start} {requested} -> {exchange.status} {served}"


def send(port: int, target: str, headers: Mapping[str, str], method: str = "GET") -> Response:
    """Send one request to this port of loopback."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
    try:
        connection.request(method, target, headers=dict(headers))
        response = connection.getresponse()
        return Response(response.status, response.headers, response.read())
    finally:
        connection.close()


def violations(pair: Pair) -> list[str]:
    """Every exchange since the test began that breaks the promise, each with its reason.

    The promise: a request reaches only a server that serves its version. It has that version explicitly and
    is executed at it. The client sees the version that it requested.
    """
    api = pair.api
    at_clients = ((exchange, _wrong_response(api, exchange, pair.offer)) for exchange in pair.seen())
    found = [f"clients saw {exchange}: {reason}" for exchange, reason in at_clients if reason]
    for member, server in pair.servers.items():
        at_server = (
            (exchange, misdirected(api, exchange, server.release)) for exchange in pair.arrived(member)
        )
        found += [
            f"{member} ({server.release.number}) got {exchange}: {reason}"
            for exchange, reason in at_server
            if reason
        ]
    return found


def misdirected(api: ServiceApi, exchange: Exchange, release: Release) -> str | None:
    """Why this request must not reach a server of this release in this form; None: it may."""
    versions = set(api.versions(exchange.request))
    if len(versions) > 1:
        return f"two versions in one request: {sorted(versions)}"
    if any(not release.serves(version) for version in versions):
        return f"this release serves {release.bottom} to {release.top}, and got {versions}"
    if exchange.path in api.documents:
        return None
    if not exchange.was_forwarded:
        return "neither a probe of the gateway nor a client's request"
    if not versions and not api.unversioned_allowed:
        return "no explicit version"
    if exchange.status == 406:
        return "refused by the server because of its version"
    served = set(api.versions(exchange.response))
    if served and served != (versions or {api.default_version}):
        return f"executed at {sorted(served)}, not at the version in the request"
    return None


def _wrong_response(api: ServiceApi, exchange: Exchange, offer: Release) -> str | None:
    """What is wrong with the version in the response; None: nothing."""
    if exchange.path in api.documents or not _succeeded(exchange):
        return None
    # The standard field takes precedence over the service's own, and its last item counts.
    requested = (api.versions(exchange.request) or [api.default_version])[0]
    due = offer.top if requested == "latest" else requested
    served = api.versions(exchange.response)
    if exchange.status == 204 and not served:
        # Senlin's own responses without content have no version either.
        return None
    if EXACT.fullmatch(due) and set(served) != {due}:
        return f"requested {requested}, served {served}"
    return None


def _succeeded(exchange: Exchange) -> bool:
    return exchange.status is not None and exchange.status < 300


def _in_order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
