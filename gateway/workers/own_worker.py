"""The data plane in this process: one worker in the loop of the parent. Adds nothing to it; says what it says
in the words of `DataPlane`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
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
@dataclass(frozen=True, slots=True, eq=False)
class OwnWorker:
    """`worker` serves on `sockets`, which are for one slot. `certificates`: by address, of those with TLS;
    their owner reads them again. `access_log`: the one that it writes."""

    _worker: Worker
    _listen: tuple[Listen, ...]
    _sockets: ListeningSockets
    _certificates: Mapping[Listen, ServerCertificates]
    _access_log: AccessLog

    # --- its life

    async def start(self) -> None:
        """It is there already."""

    async def listen(self) -> None:
        found = [(self._listen[position], sock) for position, sock in self._sockets.of_slot(0)]
        await self._worker.listen(found, self._certificates)

    async def stop_accepting(self) -> None:
        await self._worker.stop_accepting()

    async def drain(self, seconds: float) -> None:
        await self._worker.drain(seconds)

    async def abort(self) -> None:
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
        self._worker.deadlines(deadlines)

    def reopen_logs(self) -> None:
        self._access_log.reopen()

    def read_certificates(self) -> None:
        """Whoever has read them has changed what is in force here."""

    async def look(self, *, counters: bool) -> None:
        """What it says is always of this moment."""

    # --- what it says

    @property
    def not_serving(self) -> str:
        return self._worker.not_serving

    def report(self) -> WorkerReport:
        return self._worker.report()._replace(access_log_dropped=self._access_log.dropped)

    @property
    def in_flight_by_member(self) -> Mapping[str, int]:
        return self._worker.context.in_flight_by_member

    @property
    def held_back(self) -> Mapping[str, int]:
        return self._worker.context.held_back

    @property
    def known_documents(self) -> Container[DocumentKey]:
        return self._worker.context.known_documents

    def workers(self) -> Iterable[WorkerState]:
        state = "draining" if self._worker.context.draining else "serving"
        return (WorkerState(0, getpid(), self._worker.number_of_clients(), state, 0),)
