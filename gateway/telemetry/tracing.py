"""Sampling of requests for traces, and the trace context that their backends get.

    traceparent of the client  ->  sampled?  no:  it passes unchanged
                                             yes: a span for the request, one for each attempt
    record, at the end         ->  SpanSink (`telemetry.spans`: OpenTelemetry)

Without a `Tracing` nothing of this runs, and the headers pass unchanged. A request that is not sampled costs
less than a microsecond. Nothing here exports, waits or raises: spans are made from the `RequestTrace` when
the request has ended. Times are those of the monotonic clock.
"""

from __future__ import annotations

from random import randbytes
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gateway.telemetry.trace_context import (
    MALFORMED,
    TRACEPARENT,
    UNSAMPLED,
    AttemptSpan,
    RequestTrace,
    is_sampled,
    new_span_id,
    span_id_of,
    states_among,
    trace_id_of,
    without_trace,
    write_traceparent,
)

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Backend
    from gateway.core.http.header_edits import HeaderEdits
    from gateway.telemetry.request_record import RequestRecord

_FLAG: Final = -1
"""Index of the last digit of a `traceparent`; in `MALFORMED` it is no digit."""
_NO_PARENT: Final = (b"", MALFORMED)
_RATIO_BITS: Final = 64
"""Number of a trace id's lower bits that decide on sampling (OpenTelemetry, TraceIdRatioBased)."""
_LOW_BITS: Final = (1 << _RATIO_BITS) - 1
_BEGIN: Final = f"{TRACEPARENT.decode()}: "
_VALUE: Final = slice(len(_BEGIN), -4)
"""Position of the field's value in the `traceparent` line that ends a request head."""
_LOW_DIGITS: Final = slice(19, 35)
"""Position of a trace id's lower bits in a `traceparent`. Texts of one length are ordered as numbers."""
_ABOVE_ALL: Final = b"g"
_TRACE_ID_BYTES: Final = 16
_BLOCK: Final = 64
"""Number of trace ids made together, at a fifth of the cost of making each."""


@final
class Sampler(NamedTuple):
    """Rule that chooses the requests to sample for traces, as `OTEL_TRACES_SAMPLER` configures it."""

    share: float
    """Share of traces to sample, 0 to 1."""
    by_parent: bool
    """Whether a client's `traceparent` decides on sampling, and `share` is for new traces only."""

    @property
    def bound(self) -> int:
        """Upper bound, exclusive, of the lower bits of trace ids that are sampled."""
        return round(self.share * (1 << _RATIO_BITS))


class SpanSink:
    """Receiver of the spans of sampled requests."""

    def finish(self, record: RequestRecord, trace: RequestTrace) -> None:
        """Takes the record and trace of a request that has ended now. Neither waits nor raises."""
        raise NotImplementedError


@final
class Tracing:
    """Tracing of one process: samples requests, and gives backends their trace context."""

    def __init__(self, sampler: Sampler, sink: SpanSink) -> None:
        self._sink = sink
        self._by_parent = sampler.by_parent
        self._bound = sampler.bound
        self._bound_digits = b"%016x" % self._bound if self._bound <= _LOW_BITS else _ABOVE_ALL
        self._line_end = f"-{new_span_id():016x}-00\r\n\r\n"
        """End of a request head that begins a trace and is not sampled; all such spans have the same id."""
        self._unused: list[bytes] = []
        """Ends of request heads, each with the id of a new trace that is not sampled, for later use."""

    def head_end(self, record: RequestRecord) -> bytes:
        """Returns the end of a head that came without `traceparent`, with a new one; empty: call `send`."""
        if record.traceparent:  # another attempt
            return b"" if record.trace is not None else b"traceparent: %b\r\n\r\n" % record.traceparent
        end = (self._unused or self._make_ends()).pop()
        traceparent = record.traceparent = end[_VALUE]
        if self._bound and traceparent[_LOW_DIGITS] < self._bound_digits:
            trace = record.trace = RequestTrace(trace_id_of(traceparent) or 1, 0, [])
            record.traceparent = write_traceparent(trace.trace_id, trace.span_id, sampled=True)
            return b""
        return end

    def send(
        self,
        head: bytes,
        record: RequestRecord,
        backend: Backend,
        began: float,
        edits: HeaderEdits | None,
    ) -> bytes:
        """Returns the head of a request with the trace context for `backend`. `head` still has the client's;
        `began` is the start of the attempt; `edits` are those configured for the service."""
        parent = record.head.trace
        if self._by_parent and parent and parent[_FLAG] in UNSAMPLED:
            record.traceparent = parent
            return head
        if not record.traceparent:
            self._begin(record)
        traceparent, trace = record.traceparent, record.trace
        if trace is not None:
            attempt = AttemptSpan(backend, head.split(b" ", 2)[1], began)
            trace.attempts.append(attempt)
            traceparent = write_traceparent(trace.trace_id, attempt.span_id, sampled=True)
        if parent == traceparent:
            return head
        if parent:
            head = _without_trace_of_client(head, keep_state=parent != MALFORMED)
        if edits is not None:
            return head[:-4] + edits.without(b"\r\ntraceparent: " + traceparent) + b"\r\n\r\n"
        return b"%btraceparent: %b\r\n\r\n" % (head[:-2], traceparent)

    def not_sent(self, record: RequestRecord, backend: Backend, began: float) -> None:
        """Records an attempt at a backend that failed before sending. `end_attempt` adds the reason."""
        if not record.traceparent:
            self._begin(record)
        if record.trace is not None:
            record.trace.attempts.append(AttemptSpan(backend, b"", began))

    def end_attempt(self, record: RequestRecord, now: float, *, status: int = 0, error: str = "") -> None:
        """Records the end of the last attempt at a backend, of a request that goes on."""
        trace = record.trace
        if trace is None or not trace.attempts or trace.attempts[-1].ended >= 0:
            return
        attempt = trace.attempts[-1]
        attempt.ended, attempt.status, attempt.error = now, status, error

    def finish(self, record: RequestRecord) -> None:
        """Hands a request that has ended to the receiver of spans, if it is sampled."""
        if not record.traceparent:  # no backend got it
            self._begin(record)
        if record.trace is not None:
            self._sink.finish(record, record.trace)

    def _make_ends(self) -> list[bytes]:
        begin, end = f"{_BEGIN}00-", self._line_end
        ids = randbytes(_BLOCK * _TRACE_ID_BYTES).hex(",", _TRACE_ID_BYTES)  # noqa: S311 - they are no secrets
        self._unused = f"{begin}{ids.replace(',', f'{end},{begin}')}{end}".encode().split(b",")
        return self._unused

    def _begin(self, record: RequestRecord) -> None:
        """Continues the client's trace of a request, or begins one, and decides whether it is sampled."""
        parent = record.head.trace
        if parent in _NO_PARENT:
            # A malformed `traceparent` makes `tracestate` invalid as well.
            self.head_end(record)
            return
        trace_id, was_sampled = trace_id_of(parent), is_sampled(parent)
        if was_sampled if self._by_parent else trace_id & _LOW_BITS < self._bound:
            states = states_among(record.head.passthrough)
            trace = record.trace = RequestTrace(trace_id, span_id_of(parent), states)
            record.traceparent = write_traceparent(trace_id, trace.span_id, sampled=True)
        elif was_sampled:  # another flag needs another parent (W3C Trace Context 3.4)
            record.traceparent = write_traceparent(trace_id, new_span_id(), sampled=False)
        else:
            record.traceparent = parent


def _without_trace_of_client(head: bytes, *, keep_state: bool) -> bytes:
    line = head.find(b"\r\n")
    return head[:line] + without_trace(head[line:-4], keep_state=keep_state) + b"\r\n\r\n"
