"""W3C Trace Context: what a request says of its trace, and how it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.trace_context import (
    MALFORMED,
    is_sampled,
    is_well_formed,
    span_id_of,
    states_among,
    trace_id_of,
    trace_of,
    without_trace,
    write_traceparent,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01".encode()


@given(st.integers(1, (1 << 128) - 1), st.integers(1, (1 << 64) - 1), st.booleans())
def test_what_is_written_is_well_formed_and_read_again(trace_id: int, span_id: int, sampled: bool) -> None:
    value = write_traceparent(trace_id, span_id, sampled=sampled)

    assert is_well_formed(value)
    assert (trace_id_of(value), span_id_of(value), is_sampled(value)) == (trace_id, span_id, sampled)


@pytest.mark.parametrize(
    "value, well_formed",
    [
        (f"00-{TRACE}-{SPAN}-00", True),
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True),
        (f"cc-{TRACE}-{SPAN}-01.what-the-future-brings", False),
        (f"00-{TRACE}-{SPAN}-01-more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        (f"00-{TRACE[1:]}-{SPAN}-01", False),
        (f"00-{TRACE}-{SPAN}-1", False),
        (f"00-{TRACE}-{SPAN}-0x", False),
        (f"0-{TRACE}-{SPAN}-01", False),
        (f"00-{TRACE}-{SPAN}", False),
        (f"00_{TRACE}_{SPAN}_01", False),
        ("", False),
    ],
)
def test_which_values_are_well_formed(value: str, well_formed: bool) -> None:
    assert is_well_formed(value.encode()) is well_formed


@given(st.binary(max_size=60))
def test_whatever_comes_is_read(value: bytes) -> None:
    line = b"\r\ntraceparent: " + value.replace(b"\r", b"")
    found = trace_of(line)
    assert found == MALFORMED or (is_well_formed(found) and found in line)


@pytest.mark.parametrize("flags", [f"{number:02x}" for number in range(256)])
def test_the_lowest_bit_of_the_flags_counts(flags: str) -> None:
    assert is_sampled(f"00-{TRACE}-{SPAN}-{flags}".encode()) is bool(int(flags, 16) & 1)


@pytest.mark.parametrize(
    "fields, found",
    [
        (b"", b""),
        (b"\r\nAccept: traceparent:x\r\nX-Traceparent: 1", b""),
        (b"\r\nTraceParent:\t" + PARENT + b" \r\nA: b", PARENT),
        (b"\r\ntraceparent: " + PARENT + b"\r\nTRACESTATE: a=b", PARENT),
        (b"\r\ntraceparent: " + PARENT + b"\r\nTRACEPARENT: " + PARENT, MALFORMED),
        (b"\r\ntraceparent: spam", MALFORMED),
        (b"\r\ntraceparent:", MALFORMED),
        (b"\r\ntracestate: a=b", MALFORMED),
    ],
)
def test_what_fields_say(fields: bytes, found: bytes) -> None:
    assert trace_of(fields) == found


def test_the_trace_context_is_removed_and_nothing_else() -> None:
    fields = b"\r\nA: b\r\ntraceparent: x\r\nTraceState: c=d\r\nX-Traceparent: y\r\ntracestate: e=f "
    fields += b"\r\nZ: traceparent:"

    assert without_trace(fields, keep_state=False) == b"\r\nA: b\r\nX-Traceparent: y\r\nZ: traceparent:"
    assert without_trace(fields, keep_state=True) == fields.replace(b"\r\ntraceparent: x", b"")
    assert states_among(fields) == [b"c=d", b"e=f"]
