"""W3C Trace Context: reading and writing `traceparent` and `tracestate`, and the spans of a sampled request.

    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
    version, trace id, id of the sender's span, flags (1: the sender records this trace)

Bytes in, values out. Sampling and sending happen elsewhere. Fields are lines with the CRLF before each of
them.
"""

from __future__ import annotations

import re
from random import getrandbits
from typing import TYPE_CHECKING, Final

from gateway.core.http.patterns import literal, span, unless

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Backend

TRACEPARENT: Final = b"traceparent"
TRACESTATE: Final = b"tracestate"

_DIGIT: Final = rb"[0-9a-f]"
_DASH: Final = literal(b"-")
_TWO_DIGITS: Final = span(_DIGIT, 2, 2)
PARENT: Final = (
    unless(b"ff")
    + _TWO_DIGITS
    + _DASH
    + unless(b"0" * 32)
    + span(_DIGIT, 32, 32)
    + _DASH
    + unless(b"0" * 16)
    + span(_DIGIT, 16, 16)
    + _DASH
    + _TWO_DIGITS
)
"""Pattern of a well-formed `traceparent`; in versions after 00 more may follow."""
MALFORMED: Final = b"-"
"""Value in place of fields of a trace context that are not well-formed and have to be removed."""
UNSAMPLED: Final = b"02468ace"
"""Possible last digits of a `traceparent` whose sender does not record the trace."""

_LENGTH: Final = 55
_SAMPLED: Final = 0x01
_parse: Final = re.compile(PARENT.source).match
_LINE: Final = re.compile(rb"\r\ntrace(parent|state):[ \t]*([^\r]*)", re.IGNORECASE)
_PARENT_LINE: Final = b"\r\ntraceparent:"
_STATE_LINE: Final = b"\r\ntracestate:"


def trace_of(fields: bytes) -> bytes:
    """Returns the well-formed `traceparent` among these fields, cut to the length of version 00; empty: there
    is none; otherwise `MALFORMED`. Two of them are malformed, and so is `tracestate` alone (W3C Trace Context
    3.3.1)."""
    names = fields.lower()  # a pattern that ignores case takes three times as long
    start = names.find(_PARENT_LINE)
    if start < 0:
        return MALFORMED if _STATE_LINE in names else b""
    start += len(_PARENT_LINE)
    end = names.find(b"\r\n", start)
    value = (fields[start:end] if end >= 0 else fields[start:]).strip(b" \t")
    if is_well_formed(value) and names.find(_PARENT_LINE, start) < 0:
        return value[:_LENGTH]
    return MALFORMED


def is_well_formed(traceparent: bytes) -> bool:
    """Whether a `traceparent` has the form of version 00, or extends it (W3C Trace Context 3.2.2, 4.3)."""
    if _parse(traceparent) is None:
        return False
    return len(traceparent) == _LENGTH or (
        traceparent[:2] != b"00" and traceparent[_LENGTH : _LENGTH + 1] == b"-"
    )


def is_sampled(traceparent: bytes) -> bool:
    """Whether the sender of a well-formed `traceparent` records the trace."""
    return traceparent[_LENGTH - 1] not in UNSAMPLED


def trace_digits(traceparent: bytes) -> str:
    """Returns the trace id of a `traceparent` as text; empty: there is none, or it is `MALFORMED`."""
    return traceparent[3:35].decode()  # in the compiled build a named slice of bytes is an error


def trace_id_of(traceparent: bytes) -> int:
    """Returns the trace id of a well-formed `traceparent`."""
    return int(trace_digits(traceparent), 16)


def span_id_of(traceparent: bytes) -> int:
    """Returns the id of the sender's span in a well-formed `traceparent`."""
    return int(traceparent[36:52], 16)


def write_traceparent(trace_id: int, span_id: int, *, sampled: bool) -> bytes:
    """Writes a `traceparent` that is sent within the span with this id."""
    return b"00-%032x-%016x-%02x" % (trace_id, span_id, _SAMPLED if sampled else 0)


def states_among(fields: bytes) -> list[bytes]:
    """Returns the values of all `tracestate` fields among these header fields."""
    return [value.rstrip(b" \t") for name, value in _LINE.findall(fields) if name.lower() == b"state"]


def without_trace(fields: bytes, *, keep_state: bool) -> bytes:
    """Removes the trace context from header fields, or only `traceparent`."""
    if not keep_state:
        return _LINE.sub(b"", fields)
    return _LINE.sub(lambda line: line[0] if line[1].lower() == b"state" else b"", fields)


class AttemptSpan:
    """Span of one attempt to send a sampled request to a backend."""

    __slots__ = ("backend", "began", "ended", "error", "span_id", "status", "target")

    def __init__(self, backend: Backend, target: bytes, began: float) -> None:
        self.backend = backend
        self.target = target
        """Request target as the backend got it in this attempt; empty: nothing was sent."""
        self.span_id = new_span_id()
        self.began = began
        self.ended = -1.0
        """Monotonic time at which the attempt ended; negative: it ends with the request."""
        self.status = 0
        """Status of a response that the client does not get; 0: the request's record has the status."""
        self.error = ""
        """Name of the attempt's failure (`dataplane.local_responses.failures`); empty: there was none."""


class RequestTrace:
    """Data for the spans of one sampled request."""

    __slots__ = ("attempts", "parent_id", "span_id", "states", "trace_id")

    def __init__(self, trace_id: int, parent_id: int, states: list[bytes]) -> None:
        self.trace_id = trace_id
        self.parent_id = parent_id
        """Id of the client's span; 0: the trace begins here."""
        self.span_id = new_span_id()
        self.states = states
        self.attempts: list[AttemptSpan] = []


def new_span_id() -> int:
    """Makes a random span id, which is never zero."""
    return getrandbits(64) or 1
