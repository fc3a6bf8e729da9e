"""The series of the process as a whole: what runs, its configuration and state file, its workers, its limits
and what is used of them, TLS, the event loop, the logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.errors import CLIENT_ERROR_REASONS
from gateway.runtime.compiled import build_info
from gateway.telemetry.series.declaring import OPEN, OTHER, PROCESS, Group, counter, gauge, histogram

RESULTS: Final = ("success", "failure")
"""The label `result` of whatever is read or written again."""

HANDSHAKE_RESULTS: Final = (
    "full",  # a new session
    "resumed",  # a known session
    "closed",  # the client has left
    "timeout",  # timeouts.handshake
    "displaced",  # it had to yield to others (limits.handshakes)
    "plain_http",  # plain HTTP on a port for TLS
    "not_tls",  # neither TLS nor HTTP
    "oversized",  # more bytes than any handshake has
    "version",  # only versions of TLS that are too old
    "cipher",  # no common cipher
    "client_certificate",  # none where one is required, or one that is not valid
    "client_refused",  # the client has sent an alert: it does not trust the certificate, for example
    "protocol",  # anything else that breaks TLS
)
"""The label `result` of skewgate_tls_handshakes_total."""

INTERNAL: Final = "internal"
"""The reason of errors that a bug of the gateway caused."""

ADMIN_ERRORS: Final = (
    "body",  # incomplete, malformed or too large
    "forbidden",  # the wrong Host or Origin
    "head_too_large",
    INTERNAL,
    "malformed",  # not valid HTTP
    "timeout",  # a request or the reading of a response took too long
    "tls",  # TLS on a port without it
    "too_many_connections",
    "unauthorized",  # no token, or another one
)
"""The label `reason` of skewgate_admin_errors_total."""


def _build() -> tuple[str, ...]:
    version, python, loop, compiled = build_info()
    return version, python, loop, str(compiled).lower()


def _known(workers: Mapping[str, object], name: str) -> Mapping[str, float]:
    """One field of each worker that knows it."""
    return {worker: found for worker, each in workers.items() if (found := getattr(each, name)) is not None}


class Standard(Group, level=PROCESS, prefix="process_", of=lambda now: now.stats):
    """The names that every exporter has, and that dashboards for all of them look for."""

    cpu_seconds = counter(
        "Total user and system CPU time spent in seconds.",
        page="CPU time of the process, user and system",
        read=lambda it, now: it.cpu_seconds,
    )
    start_time_seconds = gauge(
        "When the process was started.",
        page="when it was started: seconds since the epoch",
        read=lambda it, now: it.started_at,
        sparse=True,
    )
    resident_memory_bytes = gauge(
        "Resident memory size in bytes.",
        page="its resident memory",
        read=lambda it, now: it.resident_bytes,
        sparse=True,
    )
    virtual_memory_bytes = gauge(
        "Virtual memory size in bytes.",
        page="its virtual memory",
        read=lambda it, now: it.virtual_bytes,
        sparse=True,
    )
    open_fds = gauge(
        "Number of open file descriptors.",
        page="open file descriptors",
        read=lambda it, now: it.open_fds,
        sparse=True,
    )
    max_fds = gauge(
        "Maximum number of open file descriptors.",
        page="how many there may be",
        read=lambda it, now: it.max_fds,
    )


class OfConfiguration(Group, level=PROCESS):
    """Series of what runs, its configuration and its state file."""

    build_info = gauge(
        "What is running; always 1.",
        {"version": OPEN, "python": OPEN, "loop": OPEN, "compiled": OPEN},
        page="what is running, and whether its hot path is compiled (`true`, `false`); always 1",
        read=lambda it, now: {_build(): 1},
    )
    config_info = gauge(
        "The configuration in force; always 1.",
        {"hash": OPEN},
        page="which configuration is in force, as in `/status`; always 1",
        read=lambda it, now: {now.config_hash: 1} if now.config_hash else {},
    )
    config_last_reload_successful = gauge(
        "1 if the configuration was read successfully the last time, else 0.",
    )
    config_last_reload_success_timestamp_seconds = gauge(
        "When the configuration in force was read.",
    )
    config_reloads = counter(
        "Reloads of the configuration, by result.",
        {"result": RESULTS},
        page="reloads of the configuration",
    )
    state_last_write_successful = gauge(
        "1 if the present state is in the state file, else 0.",
        page="1 if the present state is in the `state` file, else 0; none without a file",
        read=lambda it, now: now.state and now.state.successful,
    )
    state_last_write_success_timestamp_seconds = gauge(
        "When the state file was last written.",
        page="when the file was last written. That happens only when something has changed",
        read=lambda it, now: now.state and now.state.written_at,
    )
    state_writes = counter(
        "Attempts to write the state file, by result.",
        {"result": RESULTS},
        page="attempts to write it",
        read=lambda it, now: now.state and {"success": now.state.writes, "failure": now.state.failures},
    )


class OfWorkers(Group, level=PROCESS, of=lambda now: now.report.processes or None):
    """Series of workers that are processes of their own; else `Standard` is about the only one."""

    worker_up = gauge(
        "1 while a worker serves clients.",
        {"worker": OPEN},
        page=(
            "1 while it serves clients. This and the next six only where `workers` is more than 1: else "
            "`process_*` has it all"
        ),
        read=lambda it, now: _known(it, "up"),
    )
    worker_restarts = counter(
        "How often a worker was replaced because it had ended.",
        {"worker": OPEN},
        page="how often it was replaced because it had ended",
        read=lambda it, now: _known(it, "restarts"),
    )
    worker_cpu_seconds = counter(
        "User and system CPU time of a worker and its predecessors.",
        {"worker": OPEN},
        page="CPU time, user and system, of those before it, too",
        read=lambda it, now: _known(it, "cpu_seconds"),
    )
    worker_resident_memory_bytes = gauge(
        "Resident memory size of a worker.",
        {"worker": OPEN},
        page="its resident memory; pages that workers share count in each of them",
        read=lambda it, now: _known(it, "resident_bytes"),
    )
    worker_open_fds = gauge(
        "Number of open file descriptors of a worker.",
        {"worker": OPEN},
        page="its open file descriptors",
        read=lambda it, now: _known(it, "open_fds"),
    )
    worker_cut_requests = counter(
        "Requests under way when a worker died, by its last report.",
        {"worker": OPEN},
        page=(
            "requests that were under way when it died, by its last report (0.75 s old at most, unless it "
            "hung); no line of the access log tells of them ([workers](workers.md#what-is-lost-with-it))"
        ),
        read=lambda it, now: _known(it, "cut_requests"),
    )
    worker_cut_tunnels = counter(
        "Tunnels open when a worker died, by its last report.",
        {"worker": OPEN},
        page="likewise its open tunnels",
        read=lambda it, now: _known(it, "cut_tunnels"),
    )


class OfProcess(Group, level=PROCESS):
    """Series of limits and what is used of them, of errors, TLS, the event loop and the logs."""

    client_connections = gauge(
        "Connections of clients.",
        {"worker": OPEN},
        page="connections of clients, those included that have not come to HTTP yet",
        read=lambda it, now: _known(now.report.use, "clients"),
    )
    client_connections_limit = gauge(
        "Connections of clients: how many there may be.",
        {"worker": OPEN},
        page=(
            "how many there may be now (`limits.connections`, or what the limit of open files leaves "
            "beside connections to backends); beyond that, some that have sent no request yet, or are "
            "idle, are closed"
        ),
        read=lambda it, now: _known(now.report.use, "max_clients"),
    )
    tls_handshakes_active = gauge(
        "TLS handshakes of clients that are under way.",
        {"worker": OPEN},
        page="TLS handshakes of clients that are under way",
        read=lambda it, now: _known(now.report.use, "handshakes"),
    )
    tls_handshakes_active_limit = gauge(
        "TLS handshakes of clients that are under way: how many there may be.",
        {"worker": OPEN},
        page="how many there may be (`limits.handshakes`); others wait",
        read=lambda it, now: _known(now.report.use, "max_handshakes"),
    )
    held_body_bytes = gauge(
        "Bytes of request bodies that are held in memory.",
        {"worker": OPEN},
        read=lambda it, now: _known(now.report.use, "held_body_bytes"),
    )
    held_body_bytes_limit = gauge(
        "Bytes of request bodies that are held in memory: how many there may be.",
        {"worker": OPEN},
        page="beyond which bodies are streamed and not sent again (`limits.replay_total`)",
        read=lambda it, now: _known(now.report.use, "max_held_body_bytes"),
    )
    shedding_level = gauge(
        "What is refused while the event loop is late: 0 nothing, 1 new connections, 2 young, 3 all.",
        {"worker": OPEN},
        page=(
            "what is refused because the event loop is late: 0 nothing, 1 requests of new connections, 2 "
            "of young ones, 3 of all"
        ),
        read=lambda it, now: _known(now.report.use, "shedding_level"),
    )
    admin_connections = gauge(
        "Connections to the admin listener and to the one for metrics.",
        {"listener": OPEN},
        page="connections of operators and scrapers",
        read=lambda it, now: {name: used for name, (used, _) in now.admin_connections.items()},
    )
    admin_connections_limit = gauge(
        "Connections to the admin listener: how many there may be.",
        {"listener": OPEN},
        page="how many there may be",
        read=lambda it, now: {name: most for name, (_, most) in now.admin_connections.items()},
    )
    client_errors = counter(
        "Requests that are not valid HTTP, or exceed a limit, by reason.",
        {"reason": tuple(sorted((*CLIENT_ERROR_REASONS, OTHER)))},
        page="requests that are not valid HTTP, or exceed a limit",
    )
    admin_errors = counter(
        "Requests and connections that the admin listener refused or cut off, by reason.",
        {"reason": ADMIN_ERRORS},
        page="requests and connections that the admin listener refused or cut off",
    )
    tls_handshakes = counter(
        "TLS handshakes of clients, by result.",
        {"result": (*HANDSHAKE_RESULTS, OTHER)},
        page="TLS handshakes of clients",
    )
    certificate_reloads = counter(
        "How often certificates whose files had changed were read again, by result.",
        {"result": RESULTS},
        page=(
            "how often certificates were read again, because their files had changed or with a reload; "
            "after a failure those before stay in force"
        ),
    )
    certificate_expiry_timestamp_seconds = gauge(
        "When a certificate in force expires, by its file.",
        {"certificate": OPEN},
        page=(
            "when a certificate in force expires, of a listener or of the gateway as a client of "
            "backends: seconds since the epoch"
        ),
        read=lambda it, now: now.certificate_expiry,
    )
    event_loop_lag_seconds = histogram(
        "How late the event loop of a worker woke up.",
        {"worker": OPEN},
        page="how late the event loop woke up",
    )
    access_log_dropped = counter(
        "Lines of the access log that could not be written.",
        page="access log lines that could not be written",
        read=lambda it, now: now.report.access_log_dropped,
    )
    process_log_dropped = counter(
        "Lines of the process log that could not be written.",
        page=(
            "lines of the log on standard error that could not be written, mostly because its reader has "
            "stopped"
        ),
        read=lambda it, now: now.report.process_log_dropped,
    )
