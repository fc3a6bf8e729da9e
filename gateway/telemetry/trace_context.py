"""W3C Trace Context: how a request says to which trace it belongs (`traceparent`, `tracestate`).

    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
    version, trace id, id of the sender's span, flags (1: the sender records this trace)

Bytes in, values out: also what is noted of a request that is recorded. Nothing here decides what is recorded,
and nothing here sends. Fields are lines with the CRLF before each of them.
"""

from __future__ import annotations

import re
from random import getrandbits
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Backend

TRACEPARENT: Final = b"traceparent"
TRACESTATE: Final = b"tracestate"

PARENT: Final = rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
"""A well-formed `traceparent`. Of a later version than 00, more may follow."""
MALFORMED: Final = b"-"
"""In place of a `traceparent`: none that is well-formed has come, but some field that has to be removed."""
UNSAMPLED: Final = b"02468ace"
"""How a `traceparent` ends whose sender does not record the trace."""

_LENGTH: Final = 55
_SAMPLED: Final = 0x01
_OF_SPAN: Final = slice(36, 52)
_parse: Final = re.compile(PARENT).match
_LINE: Final = re.compile(rb"\r\ntrace(parent|state):[ \t]*([^\r]*)", re.IGNORECASE)
_PARENT_LINE: Final = b"\r\ntraceparent:"
_STATE_LINE: Final = b"\r\ntracestate:"


def trace_of(fields: bytes) -> bytes:
    """The well-formed `traceparent` among these fields; empty: none has come; else `MALFORMED`. Two of them
    say nothing, and neither does `tracestate` alone (W3C Trace Context 3.3.1). Of a later version, what
    version 00 knows."""
    names = fields.lower()  # not by an expression that ignores case, which takes three times as long
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
    """Whether a value is one of version 00, or of a later version that begins as version 00 does (W3C Trace
    Context 3.2.2, 4.3)."""
    if _parse(traceparent) is None:
        return False
    return len(traceparent) == _LENGTH or (
        traceparent[:2] != b"00" and traceparent[_LENGTH : _LENGTH + 1] == b"-"
    )


def is_sampled(traceparent: bytes) -> bool:
    """Whether the sender of a well-formed one records the trace."""
    return traceparent[_LENGTH - 1] not in UNSAMPLED


def trace_digits(traceparent: bytes) -> str:
    """The trace id as it is written; empty: of none, and of `MALFORMED`."""
    return traceparent[3:35].decode()  # mypyc takes a slice with a name for an index


def trace_id_of(traceparent: bytes) -> int:
    """Of a well-formed one."""
    return int(trace_digits(traceparent), 16)


def span_id_of(traceparent: bytes) -> int:
    """The id of the sender's span, of a well-formed one."""
    return int(traceparent[_OF_SPAN], 16)


def write_traceparent(trace_id: int, span_id: int, *, sampled: bool) -> bytes:
    """The value, for whoever is asked by the span with this id."""
    return b"00-%032x-%016x-%02x" % (trace_id, span_id, _SAMPLED if sampled else 0)


def states_among(fields: bytes) -> list[bytes]:
    """The values of `tracestate`."""
    return [value.rstrip(b" \t") for name, value in _LINE.findall(fields) if name.lower() == b"state"]


def without_trace(fields: bytes, *, keep_state: bool) -> bytes:
    """These fields without the trace context, or without `traceparent` only."""
    if not keep_state:
        return _LINE.sub(b"", fields)
    return _LINE.sub(lambda line: line[0] if line[1].lower() == b"state" else b"", fields)


class AttemptSpan:
    """One attempt of a recorded request."""

    __slots__ = ("backend", "began", "ended", "error", "span_id", "status", "target")

    def __init__(self, backend: Backend, target: bytes, began: float) -> None:
        self.backend = backend
        self.target = target
        """As the backend got it; empty: nothing was sent."""
        self.span_id = new_span_id()
        self.began = began
        self.ended = -1.0
        """Negative: with the request."""
        self.status = 0
        """Of its response, where the client does not get it; 0: see the record."""
        self.error = ""
        """A name of `dataplane.local_responses.failures`."""


class RequestTrace:
    """The spans of one recorded request, until they are made."""

    __slots__ = ("attempts", "parent_id", "span_id", "states", "trace_id")

    def __init__(self, trace_id: int, parent_id: int, states: list[bytes]) -> None:
        self.trace_id = trace_id
        self.parent_id = parent_id
        """Of the client's span; 0: the trace begins here."""
        self.span_id = new_span_id()
        self.states = states
        """The values of `tracestate`."""
        self.attempts: list[AttemptSpan] = []


def new_span_id() -> int:
    """A random one. Zero is no id."""
    return getrandbits(64) or 1
