"""The data plane as the rest of the gateway sees it: one worker in this process, or several worker processes.

    DataPlane  =  OwnWorker         `workers: 1`
               |  WorkerProcesses   more

Both have the same methods, which `OwnWorker` documents. `assembly` chooses one of them, and no other code
depends on which it is. `WorkerProcesses` is in `supervisor`, which a gateway with one worker never imports.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from os import getpid
from typing import TYPE_CHECKING, TypeAlias, final

from gateway.core.decision.decision import DocumentKey
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.dataplane.worker import Worker
from gateway.settings import Settings
from gateway.settings.sections.listen import Listen
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.status import WorkerState
from gateway.telemetry.worker_report import WorkerReport
from gateway.tls.server import ServerCertificates

if TYPE_CHECKING:
    from gateway.workers.supervisor import WorkerProcesses

DataPlane: TypeAlias = "OwnWorker | WorkerProcesses"
"""The data plane, which all requests go through. Its reports of workers are at most a second old."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class OwnWorker:
    """The data plane as one worker in this process, without worker processes."""

    _worker: Worker
    _listen: tuple[Listen, ...]
    _sockets: ListeningSockets
    """Listening sockets of the only worker (slot 0)."""
    _certificates: Mapping[Listen, ServerCertificates]
    """Certificates of the listening addresses with TLS. `CertificateWatch` reads them again."""
    _access_log: AccessLog
    """The access log that the worker writes."""

    async def start(self) -> None:
        """Start the data plane, not yet accepting clients. Raises `StartupError`, and then nothing runs."""

    async def listen(self) -> None:
        """Accept clients from now on. Raises `StartupError` if no worker can."""
        found = [(self._listen[position], sock) for position, sock in self._sockets.of_slot(0)]
        await self._worker.listen(found, self._certificates)

    async def stop_accepting(self) -> None:
        """Stop accepting clients. New ones wait in the listening sockets, as long as a process holds them."""
        await self._worker.stop_accepting()

    async def drain(self, seconds: float) -> None:
        """Accept no more clients, finish the requests under way within `seconds`, then end the data plane."""
        await self._worker.drain(seconds)

    async def abort(self) -> None:
        """End the data plane at once, and cut the requests under way."""
        await self._worker.abort()

    def kill(self) -> None:
        """Kill all worker processes, because this process ends now."""

    def configured(self, settings: Settings) -> None:
        """Put settings in force in all workers, with the present snapshot, which `OwnWorker` reads anyway."""

    async def in_force(self) -> bool:
        """Wait until the present snapshot is in force in every worker. False: a worker takes too long."""
        return True

    def held(self, service: str) -> int | None:
        """The lowest seq (number) that worker processes hold of the service's agreed record, 0 if one holds
        none; None: there are no worker processes."""
        return None

    def deadlines(self, deadlines: Mapping[str, float]) -> None:
        """Set the times until which this replica of the gateway may refuse versions, for all services, in
        seconds of `process.boot_time`. A service without an entry: no version of it is refused."""
        self._worker.context.refusals.deadlines = deadlines

    def reopen_logs(self) -> None:
        """Reopen the access log, which was rotated."""
        self._access_log.reopen()

    def read_certificates(self) -> None:
        """Read certificate files that have changed, in worker processes. Here they are in force already."""

    async def collect(self, *, counters: bool) -> None:
        """Wait for new reports of all workers, a second at most. `counters`: with the counts of `Metrics`."""

    @property
    def not_serving(self) -> str:
        """The reason why no client is accepted at this moment, a sentence; empty: clients are accepted."""
        return self._worker.not_serving

    def report(self) -> WorkerReport:
        """The gauges of all workers together. Takes some milliseconds for a thousand backends."""
        return self._worker.report()._replace(access_log_dropped=self._access_log.dropped)

    @property
    def in_flight_by_member(self) -> Mapping[str, int]:
        """Number of requests in flight by member key, as in `report`, but cheap enough for frequent calls."""
        return self._worker.context.in_flight_by_member

    @property
    def held_back(self) -> Mapping[str, int]:
        """Share of their requests that failing members get, by member key, as for `selection.select`."""
        return self._worker.context.held_back

    @property
    def cached_documents(self) -> Container[DocumentKey]:
        """Discovery documents that clients can get without a backend, as far as this process knows."""
        return self._worker.context.cached_documents

    def workers(self) -> Iterable[WorkerState]:
        state = "draining" if self._worker.context.draining else "serving"
        return (WorkerState(0, getpid(), self._worker.number_of_clients(), state, 0),)
