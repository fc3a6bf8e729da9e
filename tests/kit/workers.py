"""One worker of the data plane on loopback between clients and scripted backends, in the loop of the test.

At the end of each test nothing may remain: no request in flight, no retry and no active connection, and no
callback may have raised. So every test with a `Testbed` checks that too.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from time import monotonic, time
from typing import Any, Final, final

from gateway.controlplane.resolver import Resolve, addresses_only
from gateway.core.decision.selection import RANDOM_BITS
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend, BackendTls
from gateway.core.fleet.failures import Retry
from gateway.core.fleet.fleet import Fact
from gateway.core.fleet.limits import DEFAULT_LIMITS, Limits
from gateway.core.fleet.service import Match, Service
from gateway.core.fleet.timeouts import NO_TIMEOUT, Timeouts
from gateway.dataplane.context import Context, draw_bits
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.dataplane.exchange.stages import Stage
from gateway.dataplane.limits.retry_budget import RetryBudget
from gateway.dataplane.limits.sharing import SharedLimits
from gateway.dataplane.sockets.progress import MIN_RATE_GRACE
from gateway.dataplane.worker import Worker
from gateway.settings.sections.listen import Listen
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_record import RequestRecord
from gateway.telemetry.series.now import Now
from gateway.tls.server import ServerCertificates
from tests.kit import ironic
from tests.kit.backends import Script, ScriptedBackend, serve
from tests.kit.clients import Client
from tests.kit.clocks import Clock
from tests.kit.ironic import NEW, holder_of, learn, reconfigure, versions
from tests.kit.messages import Message
from tests.kit.metrics import Scrape
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import Changes, until

_STREAM: Final = 1 << 20
QUIET: Final = Limits(shed_lag=NO_TIMEOUT)
"""A busy machine is no reason to refuse requests."""


@final
@dataclass(frozen=True)
class Listener:
    """How clients reach a gateway. `client_tls`: of the clients that `Gateway.client` makes. `relay`: instead
    they have no TLS, and are connected by this (`tls_relay`)."""

    listen: Listen = field(default_factory=lambda: Listen(LOOPBACK, 0))
    certificates: ServerCertificates | None = None
    client_tls: ssl.SSLContext | None = None
    relay: Callable[[tuple[str, int], int], socket.socket] | None = None


@final
class Gateway:
    """One worker with its metrics, records, facts and clients."""

    def __init__(
        self,
        service: Service,
        *others: Service,
        trusted: Sequence[str] = (),
        resolve: Resolve = addresses_only,
        shared: SharedLimits | None = None,
        learns: bool = True,
    ) -> None:
        """`service`: its limits and timeouts are those of the worker, too. `learns`: facts from responses
        change the snapshot."""
        self.snapshot_holder = holder_of(service, *others)
        self.learns = learns
        self.metrics = Metrics()
        self.records: list[RequestRecord] = []
        self.facts: list[tuple[str, str, Fact]] = []
        self.clients: list[Client] = []
        self.listener = Listener()
        self.sockets = ListeningSockets(slots=1)
        self._recorded = Changes()
        self.clock = Clock()
        self.ahead = 0.0
        """Seconds by which the test has turned on the time of day."""
        context = Context(
            limits=QUIET if service.limits is DEFAULT_LIMITS else service.limits,
            timeouts=service.timeouts,
            trusted=[ip_network(network) for network in trusted],
            snapshots=self.snapshot_holder,
            observe=self._observe,
            metrics=self.metrics,
            record=self._record,
            clock=self.clock,
            random_bits=self._draw,
            shared=shared,
        )
        self.worker = Worker(context, resolve)
        self.worker.context.wall_clock = lambda: time() + self.ahead
        self._drawn: int | None = None
        self._drawn_once: list[int] = []

    def prefer(self, index: int, of: int) -> None:
        """From now on draw backend `index` of `of`, which are equal, in the order of the configuration.

        The one drawn gets the request unless it has more in flight than the next one.
        """
        self._drawn = -(-(index << (RANDOM_BITS // 2)) // of)

    def draw(self, always: int, *once: int) -> None:
        """From now on draw these bits; before them, one after the other, those of `once`."""
        self._drawn, self._drawn_once = always, list(once)

    def turn(self, seconds: float) -> None:
        """Let so many seconds pass at once: everything whose deadline they bring is ended."""
        self.clock.turn(seconds)
        self.worker.check_deadlines()

    @property
    def read_so_far(self) -> int:
        """Bytes that have come from clients, of heads and bodies that are not complete."""
        return sum(one._receive_rate._received for one in self.worker._clients)

    async def has_read(self, size: int) -> None:
        """Wait until `read_so_far` is `size` at least."""
        await until(lambda: self.read_so_far >= size)

    def _draw(self) -> int:
        if self._drawn_once:
            return self._drawn_once.pop(0)
        return draw_bits() if self._drawn is None else self._drawn

    def _observe(self, service: str, backend: str, fact: Fact) -> None:
        self.facts.append((service, backend, fact))
        if self.learns:
            self.snapshot_holder.observe(service, backend, fact)

    def _record(self, record: RequestRecord) -> None:
        self.metrics.record(record)
        if self.worker.context.tracing is not None:
            self.worker.context.tracing.finish(record)
        self.records.append(record)
        self._recorded.notify()

    async def start(self) -> None:
        listen, certificates = self.listener.listen, self.listener.certificates
        self.sockets = await ListeningSockets.bind([listen])
        await self.worker.listen(
            [(listen, sock) for _, sock in self.sockets.of_slot(0)],
            None if certificates is None else {listen: certificates},
        )
        self.metrics.watch(self.snapshot_holder, lambda: Now(self.worker.report()))

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect."""
        return self.sockets.addresses[0]

    async def drain(self, seconds: float) -> None:
        """Whoever connects from now on is refused; the requests under way have so many seconds."""
        await self.worker.stop_accepting()
        self.sockets.close()
        await self.worker.drain(seconds)

    async def client(self, small_buffer: int = 0) -> Client:
        """A new connection. `small_buffer`: the bytes that its socket takes unread."""
        address, tls, limit = self.address, self.listener.client_tls, small_buffer or _STREAM
        if self.listener.relay is not None:
            sock, tls = self.listener.relay(address, small_buffer), None
        else:
            sock = socket.socket()
            if small_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, small_buffer)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, address)
        name = None if tls is None else "localhost"
        client = Client(*await asyncio.open_connection(sock=sock, limit=limit, ssl=tls, server_hostname=name))
        self.clients.append(client)
        return client

    async def request(self, *parts: bytes) -> Message:
        """Send one request on a new connection; gives the response."""
        client = await self.client()
        answer = await client.request(*parts)
        client.writer.close()
        return answer

    async def recorded(self, number: int = 1) -> RequestRecord:
        """Wait for record number `number`, counted from 1."""
        await self._recorded.until(lambda: len(self.records) >= number)
        return self.records[number - 1]

    def metric(self, name: str, **labels: str) -> float:
        """The sum over all series of this name with these labels."""
        return Scrape(b"".join(self.metrics.exposition("")[0]).decode()).total(name, **labels)

    @property
    def stages(self) -> list[Stage]:
        """The stages of the exchanges that have not ended."""
        running = (client.exchange for client in self.worker._clients)
        return [exchange.stage for exchange in running if exchange is not None]

    def nothing_left(self) -> bool:
        """Whether no request, no retry and no backend connection is active."""
        report = self.worker.report()
        return (
            not any(report.in_flight_by_member.values())
            and not any(report.in_flight_by_service.values())
            and is_idle(self.worker.context.retry_budget)
            and not any(active for _, active in report.connections.values())
        )

    async def close(self) -> None:
        """Reset all clients, as when they crash; then nothing may remain."""
        for client in self.clients:
            client.reset()
        try:
            await until(self.nothing_left)
        except AssertionError:
            retries = not is_idle(self.worker.context.retry_budget)
            raise AssertionError(f"left: retries {retries}, {self.worker.report()}") from None
        finally:
            await self.worker.abort()
            self.sockets.close()
        await until(lambda: not any(any(counts) for counts in self.worker.report().connections.values()))


@asynccontextmanager
async def worker_of(*services: Service, **options: Any) -> AsyncIterator[Gateway]:
    """One that listens; nothing of it may be left at the end. `options`: those of `Gateway`."""
    gateway = Gateway(*services, **options)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.close()


@final
class Testbed:
    """The backends and gateways of one test; the fixture closes and checks them."""

    __test__ = False  # pytest: not a class of tests

    def __init__(self) -> None:
        self.backends: list[ScriptedBackend] = []
        self.gateways: list[Gateway] = []
        self.callback_errors: list[dict[str, Any]] = []
        self.min_rate_grace = MIN_RATE_GRACE
        """Of gateways that are started from now on."""
        self.backend_tls: tuple[ssl.SSLContext, BackendTls] | None = None
        """Of backends that are started from now on: their context, and how the gateway speaks to them."""
        self.listener = Listener()
        """Of gateways that are started from now on."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.callback_errors.append(context))

    async def backend(
        self, script: Script = serve, *, name: str = "", declared: str | None = NEW
    ) -> ScriptedBackend:
        tls = self.backend_tls or (None, None)
        backend = ScriptedBackend(script, name or f"api-{len(self.backends) + 1}", declared, *tls)
        await backend.start()
        self.backends.append(backend)
        return backend

    async def gateway(
        self,
        *backends: ScriptedBackend | Backend,
        trusted: Sequence[str] = (),
        limits: dict[str, int] | None = None,
        resolve: Resolve = addresses_only,
        shared: SharedLimits | None = None,
        match: Match | None = None,
        retry: Retry | None = None,
        upgrade: Collection[str] = (),
        **timeouts: float,
    ) -> Gateway:
        """A worker in front of one Ironic service; `timeouts` in seconds by their names in the settings."""
        service = service_of(
            *backends,
            match=match or Match(),
            retry=retry or Retry(),
            upgrade=frozenset(upgrade),
            timeouts=replace(Timeouts(), **timeouts),
            limits=replace(QUIET, **limits or {}),
        )
        return await self.started(Gateway(service, trusted=trusted, resolve=resolve, shared=shared))

    async def started(self, gateway: Gateway) -> Gateway:
        """The same, once it listens; it is closed and checked at the end."""
        gateway.worker.context.min_rate_grace = self.min_rate_grace
        gateway.listener = self.listener
        await gateway.start()
        self.gateways.append(gateway)
        return gateway

    async def gateway_and_backend(self, script: Script, **more: Any) -> tuple[Gateway, ScriptedBackend]:
        """One backend and a gateway in front of it, as most tests need."""
        backend = await self.backend(script)
        return await self.gateway(backend, **more), backend

    async def close(self) -> None:
        try:
            for gateway in self.gateways:
                await gateway.close()
        finally:
            for backend in self.backends:
                await backend.close()
        assert not self.callback_errors, f"a callback raised: {self.callback_errors}"


def service_of(*backends: ScriptedBackend | Backend, **options: Any) -> Service:
    """One Ironic service named `baremetal`."""
    values = tuple(each.backend if isinstance(each, ScriptedBackend) else each for each in backends)
    return ironic.service(*values, **options)


def probe_succeeded(gateway: Gateway, backend: ScriptedBackend | Backend, text: str) -> None:
    """Observe a successful probe of `backend` that found these versions."""
    learn(gateway.snapshot_holder, backend.name, Advertisement(versions(text)), monotonic())


def is_idle(budget: RetryBudget) -> bool:
    """Whether no retry is in flight and none is queued."""
    return not any(budget._active.values()) and not any(budget._queues.values())


async def settle() -> None:
    """Let everything happen that can happen while no time passes: all sides are in this event loop."""
    for _ in range(30):
        await asyncio.sleep(0)


async def wait_ticks(gateway: Gateway, ticks: int = 3) -> None:
    """Wait until the coarse clock of the gateway has moved on so often: it checks all deadlines."""
    for _ in range(ticks):
        before = gateway.worker.context.now
        await until(lambda before=before: gateway.worker.context.now != before)  # type: ignore[misc]


def service_in_force(gateway: Gateway) -> Service:
    return gateway.snapshot_holder.current.views["baremetal"].service


def reload(gateway: Gateway, **changes: Any) -> None:
    """What a reload does with a file in which this is changed."""
    reconfigure(gateway.snapshot_holder, [replace(service_in_force(gateway), **changes)])
