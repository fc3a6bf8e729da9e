"""The metric series of the process as a whole: what runs, its configuration and state file, its workers, its
limits and what is used of them, TLS, the event loop, the logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.errors import CLIENT_ERROR_REASONS
from gateway.runtime.compiled import build_info
from gateway.telemetry.series.declaring import OPEN, OTHER, PROCESS, Group, Series, counter, gauge, histogram

RESULTS: Final = ("success", "failure")
"""Values of the label `result` of reloads and writes."""

HANDSHAKE_RESULTS: Final = (
    "full",  # a new session
    "resumed",  # a known session
    "closed",  # the client has left
    "timeout",  # timeouts.handshake
    "displaced",  # closed in favour of others (limits.handshakes)
    "plain_http",  # plain HTTP on a port for TLS
    "not_tls",  # neither TLS nor HTTP
    "oversized",  # more bytes than any handshake has
    "version",  # only TLS versions that are too old
    "cipher",  # no common cipher
    "client_certificate",  # missing or not valid
    "client_refused",  # the client has sent an alert: it does not trust the certificate, for example
    "protocol",  # anything else that breaks TLS
)
"""Values of the label `result` of skewgate_tls_handshakes_total."""

INTERNAL: Final = "internal"
"""Value of the label `reason` for errors that a bug of the gateway caused."""

ADMIN_ERRORS: Final = (
    "body",  # incomplete, malformed or too large
    "forbidden",  # wrong Host or Origin
    "head_too_large",
    INTERNAL,
    "malformed",  # not valid HTTP
    "timeout",  # a request, or reading a response, took too long
    "tls",  # TLS on a port without it
    "too_many_connections",
    "unauthorized",  # no token, or a wrong one
)
"""Values of the label `reason` of skewgate_admin_errors_total."""


def _build() -> tuple[str, ...]:
    version, python, loop, compiled = build_info()
    return version, python, loop, str(compiled).lower()


def _known(workers: Mapping[str, object], name: str) -> Mapping[str, float]:
    """Values of one field of the workers' reports by worker, without workers that do not know it."""
    return {worker: found for worker, each in workers.items() if (found := getattr(each, name)) is not None}


def _of_worker(field: str, text: str, kind: type[Series] = gauge) -> Series:
    """Declares a metric series of one field of `WorkerStats`, by worker."""
    return kind(text, {"worker": OPEN}, read=lambda it, now: _known(it, field))


def _of_limit(field: str, text: str) -> Series:
    """Declares a gauge of one field of `WorkerUse`, by worker."""
    return gauge(text, {"worker": OPEN}, read=lambda it, now: _known(now.report.use, field))


class Standard(Group, level=PROCESS, prefix="process_", of=lambda now: now.stats):
    """Metric series of the process under the names that all exporters and their dashboards use."""

    cpu_seconds = counter(
        "User and system CPU time of the process in seconds.",
        read=lambda it, now: it.cpu_seconds,
    )
    start_time_seconds = gauge(
        "Start time of the process in seconds since the epoch.",
        read=lambda it, now: it.started_at,
        sparse=True,
    )
    resident_memory_bytes = gauge(
        "Resident memory of the process in bytes.",
        read=lambda it, now: it.resident_bytes,
        sparse=True,
    )
    virtual_memory_bytes = gauge(
        "Virtual memory of the process in bytes.",
        read=lambda it, now: it.virtual_bytes,
        sparse=True,
    )
    open_fds = gauge("Open file descriptors.", read=lambda it, now: it.open_fds, sparse=True)
    max_fds = gauge("Limit of open file descriptors.", read=lambda it, now: it.max_fds)


class OfConfiguration(Group, level=PROCESS):
    """Metric series of the build, the configuration and the state file."""

    build_info = gauge(
        "Running build, and whether its hot path is compiled (`true`, `false`); always 1.",
        {"version": OPEN, "python": OPEN, "loop": OPEN, "compiled": OPEN},
        read=lambda it, now: {_build(): 1},
    )
    config_info = gauge(
        "Configuration in force, by the hash that `/status` shows; always 1.",
        {"hash": OPEN},
        read=lambda it, now: {now.config_hash: 1} if now.config_hash else {},
    )
    config_last_reload_successful = gauge("1 if the last reload of the configuration succeeded, else 0.")
    config_last_reload_success_timestamp_seconds = gauge("Time at which the configuration in force was read.")
    config_reloads = counter("Reloads of the configuration by result.", {"result": RESULTS})
    state_last_write_successful = gauge(
        "1 if the present state is in the `state` file, else 0; none without such a file.",
        read=lambda it, now: now.state and now.state.successful,
    )
    state_last_write_success_timestamp_seconds = gauge(
        "Time of the last write of the state file, which is written only when something has changed.",
        read=lambda it, now: now.state and now.state.written_at,
    )
    state_writes = counter(
        "Attempts to write the state file by result.",
        {"result": RESULTS},
        read=lambda it, now: now.state and {"success": now.state.writes, "failure": now.state.failures},
    )


class OfWorkers(Group, level=PROCESS, of=lambda now: now.report.processes or None):
    """Metric series of worker processes. With one worker `Standard` covers it."""

    worker_up = _of_worker(
        "up",
        "1 while the worker serves clients. Series of workers exist only where `workers` is more than 1; "
        "otherwise `process_*` has it all.",
    )
    worker_restarts = _of_worker(
        "restarts", "Replacements of the worker because its process had ended.", counter
    )
    worker_cpu_seconds = _of_worker(
        "cpu_seconds", "User and system CPU time of the worker and its predecessors.", counter
    )
    worker_resident_memory_bytes = _of_worker(
        "resident_bytes", "Resident memory of the worker; pages that workers share count in each of them."
    )
    worker_open_fds = _of_worker("open_fds", "Open file descriptors of the worker.")
    worker_cut_requests = _of_worker(
        "cut_requests",
        "Requests in flight when the worker died, by its last report (at most 0.75 s old, unless it hung); "
        "they have no line in the access log.",
        counter,
    )
    worker_cut_tunnels = _of_worker(
        "cut_tunnels", "Open tunnels when the worker died, by its last report.", counter
    )


class OfProcess(Group, level=PROCESS):
    """Metric series of limits and their use, of errors, TLS, the event loop and the logs."""

    client_connections = _of_limit(
        "clients", "Connections of clients, including those that have not sent HTTP yet."
    )
    client_connections_limit = _of_limit(
        "max_clients",
        "Limit of client connections (`limits.connections`, or what the limit of open files leaves beside "
        "connections to backends); above it, some that are idle or have sent no request yet are closed.",
    )
    tls_handshakes_active = _of_limit("handshakes", "TLS handshakes of clients in progress.")
    tls_handshakes_active_limit = _of_limit(
        "max_handshakes", "Limit of TLS handshakes in progress (`limits.handshakes`); others wait."
    )
    held_body_bytes = _of_limit("held_body_bytes", "Bytes of request bodies held in memory.")
    held_body_bytes_limit = _of_limit(
        "max_held_body_bytes",
        "Limit of request bodies held in memory (`limits.replay_total`); beyond it bodies are streamed and "
        "not sent again.",
    )
    shedding_level = _of_limit(
        "shedding_level",
        "Requests refused because the event loop is late: 0 none, 1 those of new connections, 2 those of "
        "young ones, 3 all.",
    )
    admin_connections = gauge(
        "Connections of operators and scrapers, by listener.",
        {"listener": OPEN},
        read=lambda it, now: {name: used for name, (used, _) in now.admin_connections.items()},
    )
    admin_connections_limit = gauge(
        "Limit of connections of operators and scrapers, by listener.",
        {"listener": OPEN},
        read=lambda it, now: {name: most for name, (_, most) in now.admin_connections.items()},
    )
    client_errors = counter(
        "Requests that are not valid HTTP or exceed a limit, by reason.",
        {"reason": tuple(sorted((*CLIENT_ERROR_REASONS, OTHER)))},
    )
    admin_errors = counter(
        "Requests and connections that the admin listener refused or closed, by reason.",
        {"reason": ADMIN_ERRORS},
    )
    tls_handshakes = counter(
        "TLS handshakes of clients by result.",
        {"result": (*HANDSHAKE_RESULTS, OTHER)},
    )
    certificate_reloads = counter(
        "Reloads of certificates, because their files changed or with a reload of the configuration, by "
        "result; after a failure the certificates before stay in force.",
        {"result": RESULTS},
    )
    certificate_expiry_timestamp_seconds = gauge(
        "Expiry of a certificate in force, of a listener or of the gateway as a client of backends, by its "
        "file, in seconds since the epoch.",
        {"certificate": OPEN},
        read=lambda it, now: now.certificate_expiry,
    )
    event_loop_lag_seconds = histogram("Lag of the event loop.", {"worker": OPEN})
    access_log_dropped = counter(
        "Lines of the access log that could not be written.",
        read=lambda it, now: now.report.access_log_dropped,
    )
    usage_incomplete = gauge(
        "1 while today's record of usage is incomplete; none with `usage: off`.",
        read=lambda it, now: now.usage_incomplete,
    )
    process_log_dropped = counter(
        "Lines of the log on standard error that could not be written, mostly because its reader stopped.",
        read=lambda it, now: now.report.process_log_dropped,
    )
