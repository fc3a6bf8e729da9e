"""The data plane in this process: one worker in the loop of the parent. Adds nothing to it; says what it says
in the words of `DataPlane`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from os import getpid
from typing import final

from gateway.core.decision.decision import DocumentKey
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.dataplane.worker import Worker
from gateway.settings import Settings
from gateway.settings.sections.listen import Listen
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.status import WorkerState
from gateway.telemetry.worker_report import WorkerReport
from gateway.tls.server import ServerCertificates


@final
class OwnWorker:
    """`worker` serves on `sockets`, which are for one slot. `certificates`: by address, of those with TLS;
    their owner reads them again. `access_log`: the one that it writes."""

    def __init__(
        self,
        worker: Worker,
        listen: tuple[Listen, ...],
        sockets: ListeningSockets,
        certificates: Mapping[Listen, ServerCertificates],
        access_log: AccessLog,
    ) -> None:
        self._worker = worker
        self._listen = listen
        self._sockets = sockets
        self._certificates = certificates
        self._access_log = access_log

    # --- its life

    async def start(self) -> None:
        """It is there already."""

    async def listen(self) -> None:
        """Accept clients from now on. Raises `StartupError`."""
        found = [(self._listen[position], sock) for position, sock in self._sockets.of_slot(0)]
        await self._worker.listen(found, self._certificates)

    async def stop_accepting(self) -> None:
        """Whoever was accepted is served."""
        await self._worker.stop_accepting()

    async def drain(self, seconds: float) -> None:
        """Accept no more, finish the requests under way within `seconds`, then end."""
        await self._worker.drain(seconds)

    async def abort(self) -> None:
        """End at once."""
        await self._worker.abort()

    def kill(self) -> None:
        """There is no other process."""

    def configured(self, settings: Settings) -> None:
        """It reads the snapshot of the parent, and nothing else of a reload."""

    async def in_force(self) -> bool:
        """Always: it reads the snapshot of the parent."""
        return True

    def held(self, service: str) -> int | None:
        """Nothing that has to be acknowledged: it reads the snapshot of the parent."""
        return None

    def deadlines(self, deadlines: Mapping[str, float]) -> None:
        """Until when this replica is attached, by service."""
        self._worker.deadlines(deadlines)

    def reopen_logs(self) -> None:
        """The access log was rotated."""
        self._access_log.reopen()

    def read_certificates(self) -> None:
        """Whoever has read them has changed what is in force here."""

    async def look(self, *, counters: bool) -> None:
        """What it says is always of this moment."""

    # --- what it says

    @property
    def not_serving(self) -> str:
        """Why no client is accepted at this moment, a sentence; empty: they are."""
        return self._worker.not_serving

    def report(self) -> WorkerReport:
        """Returns the gauges of this worker, and of its access log."""
        return self._worker.report()._replace(access_log_dropped=self._access_log.dropped)

    @property
    def in_flight_by_member(self) -> Mapping[str, int]:
        """Requests in flight by member key."""
        return self._worker.context.in_flight_by_member

    @property
    def held_back(self) -> Mapping[str, int]:
        """As for `selection.select`, by member key."""
        return self._worker.context.held_back

    @property
    def known_documents(self) -> Container[DocumentKey]:
        """Discovery documents that can be answered without a backend."""
        return self._worker.context.known_documents

    def workers(self) -> Iterable[WorkerState]:
        """The only one."""
        state = "draining" if self._worker.context.draining else "serving"
        return (WorkerState(0, getpid(), self._worker.number_of_clients(), state, 0),)
