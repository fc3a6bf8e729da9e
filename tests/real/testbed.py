"""A testbed: real servers of one kind behind the gateway, with recorders on both sides.

    client -> recorder `front` -> gateway -> recorder of each server -> real server

What it does: it assembles these parts, makes servers unreachable and reachable again, and checks the records
of all recorders against the gateway's promise after every test (`violations`).

Rules: it uses only what a user of the gateway can see. A recorder makes a server unreachable, by refusing
connections, so that the server itself stays as it is for the next test. One test stops a real process.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.kit.waiting import wait_until
from tests.real.apis import IRONIC, ServiceApi
from tests.real.gateway_process import Gateway
from tests.real.launcher import Release, RunningServer
from tests.real.processes import Response, send
from tests.real.recorder import Exchange, Recorder


class Testbed:
    """One gateway in front of `servers`. `offer`: the release whose range it must always show."""

    __test__ = False

    def __init__(
        self,
        name: str,
        folder: Path,
        servers: Mapping[str, RunningServer],
        policy: Mapping[str, str],
        offer: Release,
        *,
        api: ServiceApi = IRONIC,
        direct: frozenset[str] = frozenset(),
        state: bool = False,
    ) -> None:
        """`policy`: the keys of `offer` in the configuration. `direct`: servers without a recorder, to which
        the gateway connects itself. `state`: the gateway has a state file."""
        self.name = name
        self.api = api
        self.offer = offer
        self.servers = servers
        self.recorders = {
            member: Recorder(f"{name}-{member}", server.port)
            for member, server in servers.items()
            if member not in direct
        }
        urls = {member: (self.recorders.get(member) or server).url for member, server in servers.items()}
        home = folder / f"gateway-{name}"
        self.gateway = Gateway(
            name, home, urls, policy, service=api.service, dialect=api.dialect, state=state
        )
        self.front = Recorder(f"{name}-front", self.gateway.port)
        self._record_starts: dict[str, int] = {}

    @property
    def url(self) -> str:
        return self.front.url

    @contextlib.contextmanager
    def running(self) -> Iterator[Testbed]:
        """Start it, and end it as an operator does: SIGTERM must end the gateway with exit code 0."""
        code: int | None = None
        with contextlib.ExitStack() as stack:
            for recorder in self._all_recorders():
                stack.enter_context(recorder)
            stack.callback(self.gateway.process.stop)
            self.gateway.start()
            yield self
            code = self.gateway.process.terminate()
        assert code == 0, f"the gateway {self.name} ended with {code}\n{self.gateway.process.log_tail()}"

    @contextlib.contextmanager
    def test(self) -> Iterator[Testbed]:
        """The testbed for one test: complete at its start, its records checked at its end."""
        self.restore()
        self.start_records()
        try:
            yield self
        finally:
            found = violations(self)
            for recorder in self.recorders.values():
                recorder.start()
        assert not found, f"testbed {self.name}:\n" + "\n".join(found)

    def start_records(self) -> None:
        """Start the records of `seen`, `arrived` and `forwarded` anew."""
        self._record_starts = {recorder.name: recorder.count() for recorder in self._all_recorders()}

    def disconnect(self, member: str) -> None:
        self.recorders[member].stop()

    def restore(self) -> None:
        """Make all servers reachable. Return when the gateway knows it."""
        for recorder in self.recorders.values():
            recorder.start()
        wait_until(self.gateway.knows_all, f"the gateway {self.name} knows that all its backends are back")

    def wait_until_not_fresh(self, member: str) -> None:
        wait_until(
            lambda: self.gateway.service()["backends"][member]["freshness"] != "fresh",
            f"the gateway {self.name} finds {member} unreachable",
        )

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
            if exchange.succeeded and exchange.path not in self.api.documents
        ]
        return [versions[0] for versions in found if versions]

    def conversation(self) -> list[tuple[str, str, str | None, int | None]]:
        """The exchanges of clients, in short: method, path, requested version, status."""
        return [
            (exchange.method, exchange.path, exchange.requested, exchange.status) for exchange in self.seen()
        ]

    def send(self, target: str, version: str | None = None, *, method: str = "GET", **more: str) -> Response:
        """Send a request of the test through the front, for details that client libraries hide. `more`:
        further fields."""
        return send(self.front.port, target, self.api.headers(version) | more, method)

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
                if exchange.succeeded
                for version in set(self.api.versions(exchange.response))
            )
            text = " ".join(f"{version}:{versions[version]}" for version in sorted(versions, key=_in_order))
            counts = (len(requests), len(everything) - len(requests), statuses[406], statuses[503])
            rows.append((self.name, observer, *map(str, counts), text))
        return rows

    def _line(self, exchange: Exchange) -> str:
        requested = sorted(set(self.api.versions(exchange.request)))
        served = sorted(set(self.api.versions(exchange.response)))
        return f"{exchange.request.start_line} {requested} -> {exchange.status} {served}"

    def _all_recorders(self) -> list[Recorder]:
        return [self.front, *self.recorders.values()]


def violations(testbed: Testbed) -> list[str]:
    """Every exchange since the test began that breaks the promise of `apis`, each with its reason."""
    api, offer = testbed.api, testbed.offer.range
    at_clients = ((exchange, api.wrong_response(exchange, offer)) for exchange in testbed.seen())
    found = [f"clients saw {exchange}: {reason}" for exchange, reason in at_clients if reason]
    for member in testbed.recorders:
        release = testbed.servers[member].release
        at_server = ((exchange, api.misdirected(exchange, release)) for exchange in testbed.arrived(member))
        server = f"{member} ({release.number})"
        found += [f"{server} got {exchange}: {reason}" for exchange, reason in at_server if reason]
    return found


def _in_order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
