"""Keeps a running HAProxy up to date with the snapshot of the gateway beside it.

    snapshot  ->  table  ->  map file  ->  prepare, add, commit  ->  same process there?  ->  acknowledged

The file is written first, so that a process that starts meanwhile reads the newer one. The agreement counts
HAProxy as a worker: it holds what the process at the socket has in force and, for `hard-stop-after`, what
earlier processes had. A process that does not answer may still serve, so it holds what it held. Decides
nothing about versions (`table`), and makes no text (`configuration`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Member
from gateway.core.fleet.snapshot import Snapshot
from gateway.engines.haproxy.configuration import (
    HaproxyOptions,
    configuration_text,
    map_lines,
    map_text,
    server_name,
)
from gateway.engines.haproxy.runtime import Conversation, Info, NobodyListens, RuntimeProblem, conversation
from gateway.engines.table import ROUTE_SET_PREFIX, EngineServer, Table, TableCompiler
from gateway.runtime.process import end_tasks
from gateway.telemetry.neighbours import EngineReport

NAME: Final = "haproxy"
POLL_INTERVAL: Final = 1.0
"""Seconds until a restart of HAProxy is noticed."""

_log = logging.getLogger("skewgate.engine")


@final
@dataclass(frozen=True, slots=True)
class Places:
    """Places of HAProxy's runtime socket, its map file and its configuration."""

    socket: str
    map_file: Path
    """Path at which the gateway writes HAProxy's map. HAProxy reads it at `options.map_path`."""
    configuration: Path
    options: HaproxyOptions
    hard_stop_after: float
    """Value of `options.hard_stop_after` in seconds."""


@final
@dataclass(slots=True)
class _Process:
    """Running HAProxy process, and what it has in force."""

    info: Info
    """Last answer of the process to `show info`."""
    lines: tuple[str, ...] | None = None
    """Lines of the HAProxy process's map; None: those that it read when it started."""
    seqs: Mapping[str, int] = field(default_factory=dict)

    def is_same(self, info: Info) -> bool:
        """Whether `info` describes this process: the same pid, which in a container each start has, and an
        uptime that did not fall (it stands still while the process is halted). A missed restart does no harm:
        the new process has read the file, which is always written first."""
        return info.pid == self.info.pid and info.uptime >= self.info.uptime


@final
class HaproxyDriver:
    """Task that keeps HAProxy up to date, from `start` to `close`, on the running loop. `acknowledged` is
    called when `held` may have changed. `ejected` returns the keys of ejected members."""

    def __init__(
        self,
        snapshot_holder: SnapshotHolder,
        acknowledged: Callable[[], None],
        ejected: Callable[[], Collection[str]],
        places: Places,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._snapshot_holder = snapshot_holder
        self._acknowledged = acknowledged
        self._ejected = ejected
        self._places = places
        self._clock = clock
        self._process: _Process | None = None
        self._absent: Mapping[str, int] | None = None
        """Numbers of agreed records, by service, in the map for a starting HAProxy; None: one may listen."""
        self._earlier: list[tuple[float, Mapping[str, int]]] = []
        """Earlier HAProxy processes that may still serve: their deadlines and agreed records."""
        self._known: frozenset[str] | None = None
        """Names of the route sets of the running process; None: it has not answered yet."""
        self._compiler = TableCompiler()
        self._table = self._in_files = Table(())
        """Table of routes: the current one, and the one in HAProxy's map file and configuration."""
        self._lines: tuple[str, ...] = ()
        """Lines of HAProxy's map, as last written to the map file."""
        self._written: dict[Path, str] = {}
        self._open_requests = OpenRequests()
        self._problem = "it has not answered yet"
        self._missing: frozenset[str] = frozenset()
        self._updates = 0
        self._failures = 0
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Begin to update HAProxy. Call it when the gateway accepts clients: HAProxy sends it all requests
        without a row. Returns at once; failures are in `report` and in the log."""
        self._unsubscribe = self._snapshot_holder.subscribe(self._on_snapshot)
        self._changed.set()
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Stop updating HAProxy, which keeps its last map."""
        self._unsubscribe()
        await end_tasks(self._following)

    def held(self, service: str) -> int | None:
        """Return the lowest sequence number of the service's agreed record by which any process may serve; 0:
        unknown. The agreement waits for an engine as for a worker."""
        if self._absent is not None:
            present = self._absent
        else:
            present = {} if self._process is None else self._process.seqs
        earlier = [seqs[service] for _, seqs in self._draining() if service in seqs]
        return min(present.get(service, 0), *earlier) if earlier else present.get(service, 0)

    def report(self) -> EngineReport:
        """State of HAProxy, for `/status` and metrics."""
        info = None if self._process is None else self._process.info
        services = self._table.services
        return EngineReport(
            NAME,
            release="" if info is None else info.release,
            pid=None if info is None else info.pid,
            problem=self._problem,
            rows={each.service.name: len(each.rows) for each in services},
            held={each.service.name: self.held(each.service.name) or 0 for each in services},
            draining=len(self._draining()),
            missing=tuple(sorted(self._missing)),
            inexpressible={
                one.service.name: one.inexpressible.reason for one in services if one.inexpressible
            },
            updates=self._updates,
            failures=self._failures,
            in_flight=self._open_requests.may_be(
                self._snapshot_holder.current, elsewhere=bool(self._draining())
            ),
        )

    def _on_snapshot(self, before: Snapshot, after: Snapshot) -> None:
        self._open_requests.leave_out_enabled(after)
        self._changed.set()

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self._bring_up_to_date()
                self._log_problem("")
            except (RuntimeProblem, OSError) as problem:
                self._failures += 1
                self._log_problem(_sentence(problem))
            except Exception:  # noqa: BLE001 - logged; the next poll tries again
                self._failures += 1
                _log.exception(
                    "updating HAProxy failed because of a bug in the gateway; HAProxy keeps the earlier offer"
                )
            self._earlier = self._draining()
            self._acknowledged()

    async def _bring_up_to_date(self) -> None:
        snapshot = self._snapshot_holder.current
        try:
            async with conversation(self._places.socket) as talk:
                process = self._met(await talk.info())
                servers = await talk.servers()
                self._known = frozenset(servers)
                await self._write(snapshot)
                if self._lines != process.lines:
                    await talk.replace_map(self._places.options.map_path, self._lines)
                    process.lines = self._lines
                    self._updates += 1
                await self._set_states(talk, servers)
            async with conversation(self._places.socket) as talk:
                if self._met(await talk.info()) is not process:
                    self._changed.set()  # it was replaced meanwhile: the new one may have read the older file
                    return
                process.seqs = _seqs(snapshot)
                if drained_members(snapshot):
                    self._count(snapshot, await talk.requests())
        except NobodyListens:
            await self._nobody(snapshot)
            raise
        except RuntimeProblem:
            await self._write(snapshot)
            raise

    def _met(self, info: Info) -> _Process:
        """Return the HAProxy process that answers: the known one, or a new one."""
        before = self._process
        self._absent = None
        if before is not None and before.is_same(info):
            before.info = info
            return before
        if before is not None:
            self._may_drain(before)
            _log.info("HAProxy was restarted (process %d) and gets the current map", info.pid)
        self._process = _Process(info)
        return self._process

    def _may_drain(self, process: _Process) -> None:
        """Note that a HAProxy process has lost the socket, and may still finish its requests."""
        self._earlier.append((self._clock() + self._places.hard_stop_after, process.seqs))

    async def _nobody(self, snapshot: Snapshot) -> None:
        """Write map and configuration for a HAProxy that starts now. An earlier one may be draining."""
        if self._process is not None:
            self._may_drain(self._process)
            self._process = None
        await self._write(snapshot)
        self._absent = _seqs(snapshot)
        self._count(snapshot, {})

    def _draining(self) -> list[tuple[float, Mapping[str, int]]]:
        now = self._clock()
        return [(until, seqs) for until, seqs in self._earlier if until > now]

    def _count(self, in_force: Snapshot, requests: Mapping[str, Mapping[str, int]]) -> None:
        self._open_requests.count(in_force, self._snapshot_holder.current, self._table, requests)

    async def _set_states(self, talk: Conversation, servers: Mapping[str, Mapping[str, bool]]) -> None:
        """Drain servers that are ejected, or a last resort, in each route set that has others."""
        ejected = frozenset(self._ejected())
        for service in self._table.services:
            choices = service.unusable | ejected, service.unusable
            for route_set in service.route_sets:
                states = servers.get(route_set.name, {})
                passed_over = next((keys for keys in choices if route_set.keys - keys), frozenset())
                for member in route_set.members:
                    name, usable = server_name(member), member.key not in passed_over
                    if states.get(name, usable) is not usable:
                        await talk.set_server(route_set.name, name, usable=usable)

    async def _write(self, snapshot: Snapshot) -> None:
        """Compile the table for the route sets that HAProxy has, and write map and configuration. In a
        thread, because thousands of versions take longer than the loop may stand still."""
        self._table = table = await asyncio.to_thread(self._compiler.compile, snapshot, self._known)
        if table is not self._in_files:
            self._lines = await asyncio.to_thread(self._write_files, table)
            self._in_files = table
        self._log_missing()

    def _write_files(self, table: Table) -> tuple[str, ...]:
        """Write HAProxy's map, then its configuration, which names the map. Returns the map's lines."""
        places = self._places
        texts = {
            places.map_file: map_text(table),
            places.configuration: configuration_text(table, places.options),
        }
        for path, text in texts.items():
            if self._written.get(path) != text:
                replace_file(path, text)
                self._written[path] = text
        return tuple(map_lines(table))

    def _log_problem(self, problem: str) -> None:
        if problem == self._problem:
            return
        if problem:
            _log.error("HAProxy is not in sync: %s", problem)
        else:
            _log.info("HAProxy is in sync: %d rows", sum(len(each.rows) for each in self._table.services))
        self._problem = problem

    def _log_missing(self) -> None:
        missing = frozenset(name for each in self._table.services for name in each.missing)
        if missing and missing != self._missing:
            _log.warning(
                "HAProxy lacks %d route sets, so some requests go through the gateway or reach fewer"
                " backends: reload HAProxy with %s",
                len(missing),
                self._places.configuration,
            )
        self._missing = missing


MakeEngine: TypeAlias = Callable[
    [SnapshotHolder, Callable[[], None], Callable[[], Collection[str]]], HaproxyDriver
]
"""Function that makes HAProxy's driver from (snapshot holder, acknowledged, ejected)."""


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically. Raises `OSError`."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.chmod(0o644)
    new.replace(path)


def _sentence(problem: RuntimeProblem | OSError) -> str:
    if isinstance(problem, RuntimeProblem):
        return str(problem)
    return f"{problem.filename} cannot be written: {problem.strerror}"


def _seqs(snapshot: Snapshot) -> dict[str, int]:
    """Sequence numbers of the agreed records in `snapshot`, by service."""
    return {
        name: 0 if view.agreed is None or view.agreed.record is None else view.agreed.record.seq
        for name, view in snapshot.views.items()
    }


def drained_members(snapshot: Snapshot) -> Mapping[str, Member]:
    """Drained members (backends) of all services, by key."""
    members = (member for view in snapshot.views.values() for member in view.members.all)
    return {member.key: member for member in members if member.drained}


@final
class OpenRequests:
    """Counts the requests that HAProxy may have at drained backends, for `drain --wait`. A backend is counted
    once no row in force leads to it, because its number then only falls. Before that, and while an earlier
    process drains, which cannot be asked, it counts as having one."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}

    def leave_out_enabled(self, snapshot: Snapshot) -> None:
        """Forget the counts of members that are not drained any more."""
        drained = drained_members(snapshot)
        self._counted = {key: number for key, number in self._counted.items() if key in drained}

    def count(
        self, in_force: Snapshot, present: Snapshot, table: Table, requests: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Count the requests at drained members. `requests`: by route set and server. `in_force`: the
        snapshot of `table`. A route set that the table lacks may be an earlier one of any service."""
        services = {route_set.name: route_set.service for route_set in table.route_sets}
        ours = {
            route_set: servers
            for route_set, servers in requests.items()
            if route_set.startswith(ROUTE_SET_PREFIX)
        }
        still = drained_members(present)
        self._counted = {
            key: sum(
                servers.get(server_name(EngineServer.of(member)), 0)
                for route_set, servers in ours.items()
                if services.get(route_set, member.service) == member.service
            )
            for key, member in drained_members(in_force).items()
            if key in still
        }

    def may_be(self, present: Snapshot, *, elsewhere: bool) -> Mapping[str, int]:
        """Requests that may be open at each drained member, by key; at least one if it is unknown.
        `elsewhere`: an earlier process may have some that cannot be counted."""
        least = 1 if elsewhere else 0
        return {key: max(least, self._counted.get(key, 1)) for key in drained_members(present)}
