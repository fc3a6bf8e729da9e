"""The recorder of finished requests: it hands each record to metrics, tracing and access log.

    RequestRecord  ->  Metrics  ->  Tracing  ->  AccessLog

It is on the hot path, so a single one of them is called directly, and several without a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast
from uuid import uuid4

from gateway.settings import AccessLogSettings
from gateway.settings.sections.usage import UsageSettings
from gateway.telemetry.access_log import AccessLog, Format, Query
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.request_record import RequestRecord
from gateway.telemetry.tracing import Tracing
from gateway.telemetry.usage import UsageCounter
from gateway.tls.values import wall_clock

Listener: TypeAlias = Callable[[RequestRecord], None]


def open_access_log(configured: AccessLogSettings) -> AccessLog:
    """Open the access log. Raises `StartupError` if its file cannot be opened."""
    # The values were checked with the file.
    return AccessLog(cast(Format, configured.format), configured.path, cast(Query, configured.query))


def reads_ids(tracing: Tracing | None, configured: AccessLogSettings) -> bool:
    """Whether trace and request ids are read from heads, for traces or a log. Costs 1 % of a request."""
    return tracing is not None or configured.format != "off"


def usage_counter(configured: UsageSettings | None) -> UsageCounter | None:
    """Make the counter of a process for the record of usage; None: usage is off."""
    if configured is None:
        return None
    return UsageCounter(uuid4().hex, wall_clock, addresses=configured.addresses)


def recorder(
    metrics: Metrics,
    tracing: Tracing | None,
    access_log: AccessLog,
    configured: AccessLogSettings,
) -> Listener:
    """The function to call with each finished request's record: it passes it on to metrics, traces, logs."""
    listener: Listener = metrics.record
    if tracing is not None:
        listener = _both(listener, tracing.finish)  # before the access log: a trace may begin here
    if configured.format != "off":
        listener = _both(listener, access_log.record)
    return listener


def _both(first: Listener, second: Listener) -> Listener:
    def record(request: RequestRecord) -> None:
        first(request)
        second(request)

    return record
