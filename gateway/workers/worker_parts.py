"""The parts of a worker process, put together from what the main process sends.

    Start, Update  ->  SnapshotHolder  ->  Worker  ->  RequestRecord  ->  Metrics, AccessLog
    Resolver, WorkerTls  ->  Worker  ->  PassiveObserver  ->  SnapshotHolder, OwnFacts  ->  the main process

The composition root of a worker, as `assembly` is that of the gateway. Nothing is probed or saved here, and
no operator is answered. `worker_main` decides when each part acts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from time import monotonic
from typing import final

from gateway.controlplane.passive_observation import PassiveObserver
from gateway.controlplane.resolver import Resolver
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.agreement.attachment import NOTHING_AGREED
from gateway.core.fleet.fleet import ObservedFact
from gateway.core.fleet.limits import share_of
from gateway.core.fleet.publication import published
from gateway.core.fleet.snapshot import Snapshot
from gateway.dataplane.context import Context
from gateway.dataplane.edge.balance import Balance
from gateway.dataplane.limits.sharing import SharedLimits
from gateway.dataplane.worker import Worker
from gateway.errors import CertificateError, StartupError
from gateway.runtime.process import end_tasks
from gateway.settings.sections.listen import Listen
from gateway.settings.values import Settings
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.otel import start_tracing
from gateway.telemetry.process_log import ProcessLog
from gateway.telemetry.process_stats import read_stats
from gateway.telemetry.worker_report import WorkerStats
from gateway.tls.client import ClientContexts, backends_tls, read_contexts
from gateway.tls.server import ServerCertificates
from gateway.tls.values import ServerTls
from gateway.workers import messages
from gateway.workers.request_recorder import open_access_log, reads_ids, recorder, usage_counter
from gateway.workers.shares import BrokerClient

_tls_log = logging.getLogger("skewgate.tls")


@final
class WorkerParts:
    """The parts of a worker process. `send`: to the main process. Call `start` first, `close` in any case."""

    def __init__(self, start: messages.Start, send: Callable[[object], None]) -> None:
        self.settings = start.settings
        self.slot = start.slot
        self.workers = start.workers
        self.sockets = [(position, socket.socket(fileno=number)) for position, number in start.listeners]
        """Listening sockets of this worker's slot: (position in `settings.listen`, socket)."""
        self._descriptors = start.balance
        self._balance: Balance | None = None
        self.own_facts = OwnFacts(send)
        self._send = send
        self.serves = False
        """Whether this worker has begun to accept clients."""
        self.tls = WorkerTls()
        self._published = published(None, start.publication)
        """The snapshot that the main process has published last, without newer facts of this worker."""
        self.snapshot_holder = SnapshotHolder(self._published, monotonic, learned=self.own_facts.learned)
        self.metrics = Metrics(per_backend=start.settings.metrics.per_backend)
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start all parts of the worker, not yet accepting clients. Raises `StartupError`."""
        settings, stack, snapshot_holder = self.settings, self._stack, self.snapshot_holder
        for _, sock in self.sockets:
            stack.callback(sock.close)
            sock.set_inheritable(False)
        self._access_log = open_access_log(settings.access_log)
        stack.callback(self._access_log.close)
        resolver = self._resolver = Resolver()
        stack.push_async_callback(resolver.close)
        started = start_tracing(os.environ)
        if started is not None:
            stack.push_async_callback(started.close)
        tracing = None if started is None else started.tracing
        await self.tls.read(settings)
        passive_observer = PassiveObserver(snapshot_holder, self.metrics)
        shared = SharedLimits(self.workers)
        context = Context(
            limits=share_of(settings.limits, self.workers),
            timeouts=settings.timeouts,
            trusted=settings.trusted_proxies,
            snapshots=snapshot_holder,
            observe=passive_observer.observe,
            metrics=self.metrics,
            record=recorder(self.metrics, tracing, self._access_log, settings.access_log),
            client_contexts=self.tls.contexts,
            tracing=tracing,
            reads_ids=reads_ids(tracing, settings.access_log),
            shared=shared,
            usage=usage_counter(settings.usage),
        )
        self.worker = Worker(context, resolver.resolve, str(self.slot))
        self.shares = BrokerClient(shared, self.worker, self._send)
        stack.callback(self.shares.close)
        stack.callback(passive_observer.close)
        stack.push_async_callback(self.worker.abort)
        self._retarget()
        self.metrics.watch(snapshot_holder)
        stack.callback(snapshot_holder.subscribe(self._on_change))
        stack.callback(snapshot_holder.subscribe(self.metrics.update_series))

    async def close(self) -> None:
        await end_tasks(*self._tasks)
        await self._stack.aclose()

    async def listen(self) -> None:
        """Accept clients from now on; also again after a pause. Raises `StartupError`."""
        listen = self.settings.listen
        if self._balance is None:
            self._balance = Balance(self.slot, self._descriptors, self.worker.number_of_clients)
        found = [(listen[at], sock) for at, sock in self.sockets]
        await self.worker.listen(found, self.tls.of(listen), self._balance)
        self.serves = True

    async def stop_accepting(self) -> None:
        """Stop accepting clients, and close the listening sockets, which other processes have as well."""
        await self.worker.stop_accepting()
        for _, sock in self.sockets:
            sock.close()

    def main_process_is_gone(self) -> None:
        """Send the main process, which is gone, nothing any more, and refuse no version: other gateways may
        offer by now what this worker would refuse, so it answers 503 there."""
        self.own_facts.main_process_is_gone()
        self.shares.close()
        self.snapshot_holder.agree(
            {
                name: replace(view.agreed or NOTHING_AGREED, attached=False)
                for name, view in self.snapshot_holder.current.views.items()
            }
        )

    def update(self, update: messages.Update) -> None:
        self._follow(published(self._published, update.publication), update.facts_seen)

    async def configure(self, update: messages.Update, settings: Settings) -> None:
        """Put an update with another configuration in force. Slow work is done in threads."""
        await self.tls.configure(settings)
        snapshot = await asyncio.to_thread(published, self._published, update.publication)
        self._follow(snapshot, update.facts_seen)
        self.settings = settings

    def _follow(self, snapshot: Snapshot, facts_seen: int) -> None:
        self.snapshot_holder.apply_batch()  # what this turn has brought is told to the main process, too
        self.own_facts.seen(facts_seen)
        self._published = snapshot
        self.snapshot_holder.follow(snapshot, self.own_facts.unseen())

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        if len(before.views) != len(after.views) or any(
            old is None or old.service is not view.service for old, view in after.news_since(before)
        ):
            self._retarget()

    def _retarget(self) -> None:
        self._resolver.retarget([view.service for view in self.snapshot_holder.current.views.values()])

    def received(self, message: messages.AtOnce) -> None:
        if isinstance(message, messages.Deadlines):
            self.worker.context.refusals.deadlines = message.deadlines
        else:
            self.shares.received(message)

    def do(self, what: str) -> None:
        if what == "reopen_logs":
            self._access_log.reopen()
        elif what == "read_certificates":
            # Owned by `_tasks` until it is done.
            task = asyncio.get_running_loop().create_task(self.tls.check_for_changes(), name="certificates")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def report(self, beat: messages.ReportRequest, process_log: ProcessLog) -> messages.Report:
        counter = self.worker.context.usage
        usage = None if counter is None else await counter.report()
        stats = read_stats()
        process = WorkerStats(
            cpu_seconds=stats.cpu_seconds, resident_bytes=stats.resident_bytes, open_fds=stats.open_fds
        )
        worker = self.worker.report()._replace(
            processes={self.worker.name: process},
            access_log_dropped=self._access_log.dropped,
            process_log_dropped=process_log.dropped,
        )
        counted = self.metrics.take() if beat.counters else None
        return messages.Report(beat.number, worker, counted, usage)


@final
class OwnFacts:
    """Facts from requests of this worker that the main process has not taken in yet. They are put on top of
    each published snapshot, so that the worker never forgets what it has just learned."""

    def __init__(self, send: Callable[[messages.LearnedFacts], None]) -> None:
        self._send = send
        self._number = 0
        self._unseen: deque[messages.LearnedFacts] = deque()
        """Messages with facts that no Update has contained so far, in the order in which they were sent."""
        self._main_process_is_gone = False

    def learned(self, facts: Sequence[ObservedFact]) -> None:
        if self._main_process_is_gone:
            return
        self._number += 1
        message = messages.LearnedFacts(self._number, tuple(facts))
        self._unseen.append(message)
        self._send(message)

    def seen(self, number: int) -> None:
        """Drop the facts up to message `number`, which the main process has published."""
        while self._unseen and self._unseen[0].number <= number:
            self._unseen.popleft()

    def unseen(self) -> list[ObservedFact]:
        """Facts that the main process has not taken in yet, in the order in which they were learned."""
        return [fact for message in self._unseen for fact in message.facts]

    def main_process_is_gone(self) -> None:
        """Drop all facts, and send none any more, as there is no main process."""
        self._main_process_is_gone = True
        self._unseen.clear()


@final
class WorkerTls:
    """The certificates of the listeners, and `contexts` for connections to backends. The main process watches
    the files, counts and warns; a worker reads again when it is told to. A pair that cannot be read changes
    nothing."""

    def __init__(self) -> None:
        self.contexts = ClientContexts()
        self._certificates: dict[int, ServerCertificates] = {}
        """Certificates of the listeners, by position in `settings.listen`, which a reload cannot change."""
        self._lock = asyncio.Lock()

    async def read(self, settings: Settings) -> None:
        """Read all certificates for the first time. Raises `StartupError` if files have changed meanwhile."""
        try:
            for position, listen in enumerate(settings.listen):
                if listen.tls is not None:
                    self._certificates[position] = await asyncio.to_thread(ServerCertificates, listen.tls)
        except CertificateError as error:
            raise StartupError(f"{error.path or error.part}: {error}") from error
        await self._read_contexts(settings)

    def of(self, listen: tuple[Listen, ...]) -> Mapping[Listen, ServerCertificates]:
        """The certificates by listening address, for the addresses with TLS."""
        return {listen[position]: certificates for position, certificates in self._certificates.items()}

    async def configure(self, settings: Settings) -> None:
        """Read all certificates for a new configuration. New connections use them when this returns."""
        for position, certificates in self._certificates.items():
            await self._reload(certificates, settings.listen[position].tls)
        await self._read_contexts(settings)

    async def check_for_changes(self) -> None:
        """Read the certificates whose files have changed."""
        for certificates in self._certificates.values():
            if await asyncio.to_thread(certificates.changed):
                await self._reload(certificates, None)

    async def _reload(self, certificates: ServerCertificates, settings: ServerTls | None) -> None:
        async with self._lock:
            try:
                await asyncio.to_thread(certificates.reload, settings)
            except CertificateError as error:
                _tls_log.error("the certificates stay as they were: %s (%s)", error, error.path or error.part)

    async def _read_contexts(self, settings: Settings) -> None:
        """Read the TLS contexts for backends. One that cannot be read is tried again by a connection."""
        try:
            contexts = await asyncio.to_thread(read_contexts, backends_tls(settings.services))
        except CertificateError as error:
            _tls_log.error("TLS to a backend cannot be prepared: %s (%s)", error, error.path or error.part)
            return
        self.contexts.put_in_force(contexts)
