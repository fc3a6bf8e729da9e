"""What serves the requests, as the rest of the gateway sees it: one worker in this process, or several in
processes of their own.

    DataPlane  =  OwnWorker         `workers: 1`
               |  WorkerProcesses   more

Both have the same methods; what each is for is said at `OwnWorker`. Whoever assembles a gateway chooses one
of them, and nobody else asks which it is. `WorkerProcesses` are in `supervisor`, which a gateway with one
worker never imports.
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
"""The data plane, which all requests go through. What it reports of workers is at most a beat old."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class OwnWorker:
    """The data plane in this process. The worker serves on the sockets, which are for one slot. Certificates
    are those of the addresses with TLS; their owner reads them again. The access log is the one that the
    worker writes."""

    _worker: Worker
    _listen: tuple[Listen, ...]
    _sockets: ListeningSockets
    _certificates: Mapping[Listen, ServerCertificates]
    _access_log: AccessLog

    # --- its life

    async def start(self) -> None:
        """Everything but accepting clients. Raises `StartupError`, and then nothing runs. Here: it is there
        already."""

    async def listen(self) -> None:
        """Accept clients from now on. Raises `StartupError` if nobody can."""
        found = [(self._listen[position], sock) for position, sock in self._sockets.of_slot(0)]
        await self._worker.listen(found, self._certificates)

    async def stop_accepting(self) -> None:
        """Whoever was accepted is served; who connects from now on waits in the listening sockets, as long as
        somebody holds them. When this returns, nobody is accepted any more."""
        await self._worker.stop_accepting()

    async def drain(self, seconds: float) -> None:
        """Accept no more, finish the requests under way within `seconds`, then end."""
        await self._worker.drain(seconds)

    async def abort(self) -> None:
        """End at once."""
        await self._worker.abort()

    def kill(self) -> None:
        """This process ends now: so do all others, whatever they do. Here: there is none."""

    def configured(self, settings: Settings) -> None:
        """These settings are being put in force, with the present snapshot. Here: it reads the snapshot of
        this process, and nothing else of a reload."""

    async def in_force(self) -> bool:
        """Wait until what is in force now is so in every worker. False: one of them takes too long."""
        return True

    def held(self, service: str) -> int | None:
        """The lowest seq of its record that a live worker process has acknowledged, 0 for none; None: no
        such process is live."""
        return None

    def deadlines(self, deadlines: Mapping[str, float]) -> None:
        """By service until when this replica is attached: seconds of `process.boot_time`. All of them;
        without an entry it refuses no version of a service on which replicas agree. Every worker is told."""
        self._worker.context.refusals.deadlines = deadlines

    def reopen_logs(self) -> None:
        """The access log was rotated."""
        self._access_log.reopen()

    def read_certificates(self) -> None:
        """Files of certificates have changed. Here: whoever has read them has changed what is in force."""

    async def collect(self, *, counters: bool) -> None:
        """Bring what is said below up to date, if that takes no longer than a second. `counters`: what is in
        `Metrics`, too. Here: it is always of this moment."""

    # --- what it says

    @property
    def not_serving(self) -> str:
        """Why no client is accepted at this moment, a sentence; empty: they are."""
        return self._worker.not_serving

    def report(self) -> WorkerReport:
        """Returns the gauges of all workers together. Costs some milliseconds for a thousand backends."""
        return self._worker.report()._replace(access_log_dropped=self._access_log.dropped)

    @property
    def in_flight_by_member(self) -> Mapping[str, int]:
        """Requests in flight by member key, as in `report`, for those who ask often."""
        return self._worker.context.in_flight_by_member

    @property
    def held_back(self) -> Mapping[str, int]:
        """As for `selection.select`, by member key."""
        return self._worker.context.held_back

    @property
    def cached_documents(self) -> Container[DocumentKey]:
        """Discovery documents that can be answered without a backend, as far as this process knows."""
        return self._worker.context.cached_documents

    def workers(self) -> Iterable[WorkerState]:
        """All of them."""
        state = "draining" if self._worker.context.draining else "serving"
        return (WorkerState(0, getpid(), self._worker.number_of_clients(), state, 0),)
