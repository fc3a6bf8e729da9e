"""The metric families about the process as a whole: what runs, its configuration and state file, its limits
and what is used of them, TLS, the event loop, the logs.

The other half of `telemetry.collector`, which has those of services and backends. Runs only when somebody
scrapes. It counts nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, final

from gateway.compiled import build_info
from gateway.telemetry.counters import Counters
from gateway.telemetry.families import Family, Kind, counter, gauge, histogram
from gateway.telemetry.process_stats import ProcessStats
from gateway.telemetry.worker_report import WorkerProcess, WorkerReport, WorkerUse


@final
class StateWrites(NamedTuple):
    """How the writing of the state file goes."""

    successful: bool
    """The present state is in the file."""
    written_at: float
    """When it was last written: seconds since the epoch; 0: never by this process."""
    writes: int
    failures: int


@final
class ProcessFamilies:
    """Makes these families from `counters` and from what is watched."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.certificate_expiry: Callable[[], Mapping[str, float]] = dict
        """Seconds since the epoch, by path."""
        self.admin_connections: Callable[[], Mapping[str, tuple[int, int]]] = dict
        """Open ones and their limit, by `admin` and `metrics`."""
        self.config_hash: Callable[[], str] = str
        """Of the configuration in force; empty: not known."""
        self.state_writes: Callable[[], StateWrites | None] = lambda: None
        """None: there is no state file."""

    def collect(self, stats: ProcessStats, report: WorkerReport) -> Iterator[Family]:
        """All of them. `stats`: a look at the process at this moment; `report`: one at all workers."""
        yield from _process(stats)
        yield from self._configuration()
        yield from self._state_file()
        yield from _worker_processes(report.processes)
        yield from self._use_of_limits(report.use)
        yield from self._errors()
        yield from self._tls()
        yield from self._event_loop()
        for log, dropped in (
            ("access_log", report.access_log_dropped),
            ("process_log", report.process_log_dropped),
        ):
            yield counter(
                f"{log}_dropped",
                f"Lines of the {log.replace('_', ' ')} that could not be written.",
                (),
                [((), dropped)],
            )

    def _configuration(self) -> Iterator[Family]:
        counters, config_hash = self._counters, self.config_hash()
        version, python, loop, compiled = build_info()
        yield gauge(
            "build_info",
            "What is running; always 1.",
            ("compiled", "loop", "python", "version"),
            [((str(compiled).lower(), loop, python, version), 1)],
        )
        yield gauge(
            "config_info",
            "The configuration in force; always 1.",
            ("hash",),
            [((config_hash,), 1)] if config_hash else [],
        )
        yield gauge(
            "config_last_reload_successful",
            "1 if the configuration was read successfully the last time, else 0.",
            (),
            [((), counters.last_reload_successful)],
        )
        yield gauge(
            "config_last_reload_success_timestamp_seconds",
            "When the configuration in force was read.",
            (),
            [((), counters.last_success_at)],
        )
        yield counter(
            "config_reloads",
            "Reloads of the configuration, by result.",
            ("result",),
            [((result,), count) for result, count in counters.reloads.items()],
        )

    def _state_file(self) -> Iterator[Family]:
        found = self.state_writes()
        known = [] if found is None else [found]
        yield gauge(
            "state_last_write_successful",
            "1 if the present state is in the state file, else 0.",
            (),
            [((), each.successful) for each in known],
        )
        yield gauge(
            "state_last_write_success_timestamp_seconds",
            "When the state file was last written.",
            (),
            [((), each.written_at) for each in known],
        )
        yield counter(
            "state_writes",
            "Attempts to write the state file, by result.",
            ("result",),
            [
                ((result,), count)
                for each in known
                for result, count in (("success", each.writes), ("failure", each.failures))
            ],
        )

    def _use_of_limits(self, workers: Mapping[str, WorkerUse]) -> Iterator[Family]:
        listeners = self.admin_connections()
        for name, text, used, limit in (
            ("client_connections", "Connections of clients", 0, 1),
            ("tls_handshakes_active", "TLS handshakes of clients that are under way", 2, 3),
            ("held_body_bytes", "Bytes of request bodies that are held in memory", 4, 5),
        ):
            for suffix, description, index in (
                ("", f"{text}.", used),
                ("_limit", f"{text}: how many there may be.", limit),
            ):
                yield gauge(
                    f"{name}{suffix}",
                    description,
                    ("worker",),
                    [((worker,), use[index]) for worker, use in workers.items()],
                )
        yield gauge(
            "shedding_level",
            "What is refused while the event loop is late: 0 nothing, 1 new connections, 2 young, 3 all.",
            ("worker",),
            [((worker,), use.shedding_level) for worker, use in workers.items()],
        )
        for suffix, description, index in (
            ("", "Connections to the admin listener and to the one for metrics.", 0),
            ("_limit", "Connections to the admin listener: how many there may be.", 1),
        ):
            yield gauge(
                f"admin_connections{suffix}",
                description,
                ("listener",),
                [((listener,), use[index]) for listener, use in listeners.items()],
            )

    def _errors(self) -> Iterator[Family]:
        counters = self._counters
        yield counter(
            "client_errors",
            "Requests that are not valid HTTP, or exceed a limit, by reason.",
            ("reason",),
            [((reason,), count) for reason, count in sorted(counters.client_errors.items())],
        )
        yield counter(
            "admin_errors",
            "Requests and connections that the admin listener refused or cut off, by reason.",
            ("reason",),
            [((reason,), count) for reason, count in counters.admin_errors.items()],
        )

    def _tls(self) -> Iterator[Family]:
        yield counter(
            "tls_handshakes",
            "TLS handshakes of clients, by result.",
            ("result",),
            [((result,), count) for result, count in self._counters.handshakes.items()],
        )
        yield counter(
            "certificate_reloads",
            "How often certificates whose files had changed were read again, by result.",
            ("result",),
            [((result,), count) for result, count in self._counters.certificate_reloads.items()],
        )
        yield gauge(
            "certificate_expiry_timestamp_seconds",
            "When a certificate in force expires, by its file.",
            ("certificate",),
            [((path,), expiry) for path, expiry in self.certificate_expiry().items()],
        )

    def _event_loop(self) -> Iterator[Family]:
        yield histogram(
            "event_loop_lag_seconds",
            "How late the event loop of a worker woke up.",
            ("worker",),
            [((worker,), lags) for worker, lags in self._counters.lags.items()],
        )


def _worker_processes(processes: Mapping[str, WorkerProcess]) -> Iterator[Family]:
    """None where the only worker is in this process, which `process_*` is about."""
    if not processes:
        return
    for make, name, text, index in (
        (gauge, "up", "1 while a worker serves clients.", 0),
        (counter, "restarts", "How often a worker was replaced because it had ended.", 1),
        (counter, "cpu_seconds", "User and system CPU time of a worker and its predecessors.", 2),
        (gauge, "resident_memory_bytes", "Resident memory size of a worker.", 3),
        (gauge, "open_fds", "Number of open file descriptors of a worker.", 4),
        (counter, "cut_requests", "Requests under way when a worker died, by its last report.", 5),
        (counter, "cut_tunnels", "Tunnels open when a worker died, by its last report.", 6),
    ):
        known = [
            (worker, number) for worker, each in processes.items() if (number := each[index]) is not None
        ]
        yield make(f"worker_{name}", text, ("worker",), [((worker,), number) for worker, number in known])


def _process(stats: ProcessStats) -> Iterator[Family]:
    """Under the names that every exporter has, and that dashboards for all of them look for."""
    for kind, name, text, number in (
        (Kind.COUNTER, "cpu_seconds", "Total user and system CPU time spent in seconds.", stats.cpu_seconds),
        (Kind.GAUGE, "start_time_seconds", "When the process was started.", stats.started_at),
        (Kind.GAUGE, "resident_memory_bytes", "Resident memory size in bytes.", stats.resident_bytes),
        (Kind.GAUGE, "virtual_memory_bytes", "Virtual memory size in bytes.", stats.virtual_bytes),
        (Kind.GAUGE, "open_fds", "Number of open file descriptors.", stats.open_fds),
        (Kind.GAUGE, "max_fds", "Maximum number of open file descriptors.", stats.max_fds),
    ):
        if number is not None:
            yield Family(kind, name, text, (), [((), number)], prefix="process_")
