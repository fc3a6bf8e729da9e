"""The gateway's part in traces: which requests are recorded, and what their backends are told.

    traceparent of the client  ->  sampled?  no:  it goes on as it came
                                             yes: a span for the request, one for each attempt
    record, at the end         ->  SpanSink (`telemetry.spans`: OpenTelemetry)

Without a `Tracing` nothing of this runs, and the headers pass as they came. A request that is not sampled
costs less than a microsecond. Nothing here exports, waits or raises: spans are made when the request has
ended, from what was noted. Times are those of the monotonic clock.
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
"""The last digit of a `traceparent`; of `MALFORMED` it is no digit."""
_NO_PARENT: Final = (b"", MALFORMED)
_RATIO_BITS: Final = 64
"""The lower bits of a trace id decide whether a share of all traces includes it, so that everybody who takes
the same share takes the same traces (OpenTelemetry, TraceIdRatioBased)."""
_LOW_BITS: Final = (1 << _RATIO_BITS) - 1
_BEGIN: Final = f"{TRACEPARENT.decode()}: "
_VALUE: Final = slice(len(_BEGIN), -4)
"""Of a line `traceparent` with the end of a head after it."""
_LOW_DIGITS: Final = slice(19, 35)
"""Of a `traceparent`: the bits that decide. Digits of the same number are ordered as numbers are."""
_ABOVE_ALL: Final = b"g"
_TRACE_ID_BYTES: Final = 16
_BLOCK: Final = 64
"""Traces whose ids are made at once, which costs a fifth of making each."""


@final
class Sampler(NamedTuple):
    """Which requests are recorded, as `OTEL_TRACES_SAMPLER` says."""

    share: float
    """Of all traces: 1 is all of them, 0 none."""
    by_parent: bool
    """True: where the client belongs to a trace, its flag decides, and `share` counts for new traces only."""

    @property
    def bound(self) -> int:
        """Trace ids whose lower bits are below it are recorded."""
        return round(self.share * (1 << _RATIO_BITS))


class SpanSink:
    """Where the spans of recorded requests go. It neither waits nor raises."""

    def finish(self, record: RequestRecord, trace: RequestTrace) -> None:
        """The request has ended now."""
        raise NotImplementedError


@final
class Tracing:
    """The tracing of one process."""

    def __init__(self, sampler: Sampler, sink: SpanSink) -> None:
        self._sink = sink
        self._by_parent = sampler.by_parent
        self._bound = sampler.bound
        self._bound_digits = b"%016x" % self._bound if self._bound <= _LOW_BITS else _ABOVE_ALL
        self._line_end = f"-{new_span_id():016x}-00\r\n\r\n"
        """Of every `traceparent` of a trace that begins here and is not recorded: nobody looks for such a
        span, so it has one id for all."""
        self._unused: list[bytes] = []
        """For traces that will begin here: how a head ends if its trace is not recorded."""

    def head_end(self, record: RequestRecord) -> bytes:
        """How the head of a request ends that came without a trace context, if its trace is not recorded.
        Empty: it is, and `send` has to see the head."""
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
        """The head of a request as `backend` gets it, with the trace context. `head`: with what the client
        says of it; `began`: when the attempt did; `edits`: what the service is configured to change."""
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
        """An attempt has failed before anything was sent. `end_attempt` says why."""
        if not record.traceparent:
            self._begin(record)
        if record.trace is not None:
            record.trace.attempts.append(AttemptSpan(backend, b"", began))

    def end_attempt(self, record: RequestRecord, now: float, *, status: int = 0, error: str = "") -> None:
        """The attempt that was sent last is over, but the request is not."""
        trace = record.trace
        if trace is None or not trace.attempts or trace.attempts[-1].ended >= 0:
            return
        attempt = trace.attempts[-1]
        attempt.ended, attempt.status, attempt.error = now, status, error

    def finish(self, record: RequestRecord) -> None:
        """The request has ended."""
        if not record.traceparent:  # no backend has got it
            self._begin(record)
        if record.trace is not None:
            self._sink.finish(record, record.trace)

    def _make_ends(self) -> list[bytes]:
        begin, end = f"{_BEGIN}00-", self._line_end
        ids = randbytes(_BLOCK * _TRACE_ID_BYTES).hex(",", _TRACE_ID_BYTES)  # noqa: S311 - they are no secrets
        self._unused = f"{begin}{ids.replace(',', f'{end},{begin}')}{end}".encode().split(b",")
        return self._unused

    def _begin(self, record: RequestRecord) -> None:
        """Continue the trace of the client, or begin one; decide whether it is recorded."""
        parent = record.head.trace
        if parent in _NO_PARENT:
            # Where a `traceparent` is malformed, `tracestate` says nothing, either.
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
