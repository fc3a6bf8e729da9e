"""Traces: what a backend is told, which requests are recorded, and what is noted of each attempt."""

from __future__ import annotations

import json
import re
from typing import Final, final

import pytest

from gateway.core.http.header_edits import HeaderEdits
from gateway.telemetry.request_record import RequestRecord
from gateway.telemetry.trace_context import RequestTrace, is_well_formed
from gateway.telemetry.tracing import Sampler, SpanSink, Tracing
from tests.kit.backends import (
    ScriptedBackend,
    always,
    no_reply,
    refusing_backend,
    respond_with,
    serve,
)
from tests.kit.messages import Message, request, response, version_line
from tests.kit.workers import Gateway, Testbed

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN: Final = "00f067aa0ba902b7"
SAMPLED: Final = f"traceparent: 00-{TRACE}-{SPAN}-01"
UNSAMPLED: Final = f"traceparent: 00-{TRACE}-{SPAN}-00"
STATE: Final = "tracestate: vendor=1,other=2"
ALWAYS: Final = Sampler(1.0, by_parent=True)
NEVER: Final = Sampler(0.0, by_parent=True)


@final
class Kept(SpanSink):
    """Keeps what would become spans."""

    def __init__(self) -> None:
        self.found: list[tuple[RequestRecord, RequestTrace]] = []

    def finish(self, record: RequestRecord, trace: RequestTrace) -> None:
        self.found.append((record, trace))

    @property
    def only(self) -> RequestTrace:
        ((_, trace),) = self.found
        return trace


def trace_with(gateway: Gateway, sampler: Sampler = ALWAYS) -> Kept:
    sink = Kept()
    gateway.worker.context.tracing = Tracing(sampler, sink)
    return sink


async def traced(testbed: Testbed, sampler: Sampler = ALWAYS) -> tuple[Gateway, ScriptedBackend, Kept]:
    gateway, backend = await testbed.gateway_and_backend(serve)
    return gateway, backend, trace_with(gateway, sampler)


def told(message: Message) -> list[str]:
    """The trace context, as a backend got it."""
    fields = [f"{name.lower()}: {value}" for name, value in message.fields]
    return [field for field in fields if field.startswith("trace")]


@pytest.mark.parametrize("lines", [(SAMPLED, STATE), (UNSAMPLED,), ("traceparent: spam", STATE), ()])
async def test_without_tracing_the_fields_pass_as_they_came(testbed: Testbed, lines: tuple[str, ...]) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()

    for _ in range(3):  # the strict reader, then a layout
        assert (await client.request(request("GET", "/v1/nodes", *lines))).status == 200
        assert told(backend.requests[-1]) == list(lines)
        assert gateway.records[-1].trace_id == (TRACE if lines[:1] in ((SAMPLED,), (UNSAMPLED,)) else "")
        assert gateway.records[-1].trace is None


async def test_a_sampled_request_is_continued(testbed: Testbed) -> None:
    gateway, backend, kept = await traced(testbed)
    client = await gateway.client()

    for number in range(1, 4):
        lines = (SAMPLED.replace("traceparent", "TraceParent"), "X-Between: 1", STATE)
        assert (await client.request(request("POST", "/v1/nodes?a=b", *lines))).status == 200
        record, trace = kept.found[-1]
        (attempt,) = trace.attempts
        expected = {f"traceparent: 00-{TRACE}-{attempt.span_id:016x}-01", STATE}
        assert set(told(backend.requests[-1])) == expected
        assert backend.requests[-1].one("X-Between") == "1"
        assert (f"{trace.trace_id:032x}", f"{trace.parent_id:016x}") == (TRACE, SPAN)
        assert trace.states == [b"vendor=1,other=2"]
        assert (attempt.target, attempt.backend.name) == (b"/v1/nodes?a=b", "api-1")
        assert attempt.span_id != trace.span_id
        assert record.trace_id == TRACE
        assert len(kept.found) == number


@pytest.mark.parametrize("sampler", [ALWAYS, NEVER])
async def test_an_unsampled_request_passes_as_it_came(testbed: Testbed, sampler: Sampler) -> None:
    gateway, backend, kept = await traced(testbed, sampler)
    client = await gateway.client()

    for _ in range(3):
        assert (await client.request(request("GET", "/v1/nodes", UNSAMPLED, STATE))).status == 200
        assert told(backend.requests[-1]) == [UNSAMPLED, STATE]
        assert gateway.records[-1].trace_id == TRACE
    assert kept.found == []


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("traceparent: spam",),
        (f"traceparent: 00-{'0' * 32}-{SPAN}-01", STATE),
        (f"traceparent: ff-{TRACE}-{SPAN}-01", STATE),
        (SAMPLED, SAMPLED),
        (SAMPLED.upper(), STATE),
        (STATE,),
        (SAMPLED, "Connection: traceparent"),
    ],
)
@pytest.mark.parametrize("sampler", [ALWAYS, NEVER, Sampler(0.5, by_parent=False)])
async def test_a_trace_begins_here_where_none_or_a_malformed_one_came(
    testbed: Testbed, lines: tuple[str, ...], sampler: Sampler
) -> None:
    gateway, backend, kept = await traced(testbed, sampler)
    client = await gateway.client()

    seen = set()
    for _ in range(3):
        assert (await client.request(request("GET", "/v1/nodes", *lines))).status == 200
        (line,) = told(backend.requests[-1])  # and no tracestate
        value = line.partition(": ")[2]
        assert is_well_formed(value.encode())
        recorded = value.endswith("-01")
        assert recorded is any(record is gateway.records[-1] for record, _ in kept.found)
        assert recorded is (sampler.share == 1) or sampler.share == 0.5
        assert gateway.records[-1].trace_id == value[3:35] != TRACE
        seen.add(value[3:35])
    assert len(seen) == 3
    assert all(trace.parent_id == 0 and trace.states == [] for _, trace in kept.found)


async def test_a_sampler_that_looks_at_no_parent(testbed: Testbed) -> None:
    gateway, backend, kept = await traced(testbed, Sampler(1.0, by_parent=False))
    await gateway.request(request("GET", "/v1/nodes", UNSAMPLED))
    assert told(backend.requests[-1])[0].endswith("-01")
    assert f"{kept.only.trace_id:032x}" == TRACE

    gateway.worker.context.tracing = Tracing(Sampler(0.0, by_parent=False), kept)
    await gateway.request(request("GET", "/v1/nodes", UNSAMPLED))
    assert told(backend.requests[-1]) == [UNSAMPLED]
    await gateway.request(request("GET", "/v1/nodes", SAMPLED, STATE))
    parent, state = sorted(told(backend.requests[-1]))
    assert re.fullmatch(f"traceparent: 00-{TRACE}-[0-9a-f]{{16}}-00", parent)
    assert (SPAN not in parent, state) == (True, STATE)
    assert len(kept.found) == 1


async def test_a_share_takes_the_traces_that_everybody_takes() -> None:
    """The lower 64 bits of the trace id decide (OpenTelemetry)."""
    sampler = Sampler(0.25, by_parent=True)

    assert sampler.bound == 1 << 62


async def test_a_later_version_is_continued_as_version_00(testbed: Testbed) -> None:
    gateway, backend, _ = await traced(testbed)

    line = f"traceparent: cc-{TRACE}-{SPAN}-01-and-more"
    assert (await gateway.request(request("GET", "/v1/nodes", line))).status == 200

    (line,) = told(backend.only_request)
    assert re.fullmatch(f"traceparent: 00-{TRACE}-[0-9a-f]{{16}}-01", line)


async def test_each_attempt_is_a_span_of_its_own(testbed: Testbed) -> None:
    backends = [await testbed.backend(no_reply), await testbed.backend(serve)]
    gateway = await testbed.gateway(*backends, refusing_backend())
    kept = trace_with(gateway)

    for _ in range(12):
        assert (await gateway.request(request("GET", "/v1/nodes", SAMPLED))).status in (200, 502)

    errors = set()
    for record, trace in kept.found:
        assert len(trace.attempts) >= record.attempts
        *failed, last = trace.attempts
        assert all(attempt.error and attempt.ended >= attempt.began > 0 for attempt in failed)
        errors |= {attempt.error for attempt in failed}
        assert (last.ended < 0) is (record.status == 200)
    assert errors == {"connect", "no_reply"}
    spans = [attempt.span_id for _, trace in kept.found for attempt in trace.attempts if attempt.target]
    sent = [told(each)[0] for one in backends for each in one.requests]
    assert sorted(f"traceparent: 00-{TRACE}-{span:016x}-01" for span in spans) == sorted(sent)


async def test_every_attempt_of_a_new_trace_that_is_not_recorded_belongs_to_it(testbed: Testbed) -> None:
    backends = [await testbed.backend(no_reply), await testbed.backend(serve)]
    gateway = await testbed.gateway(*backends)
    kept = trace_with(gateway, NEVER)

    for first in (0, 1):
        gateway.prefer(first, of=2)
        assert (await gateway.request(request("GET", "/v1/nodes"))).status in (200, 502)

    sent = [told(each) for one in backends for each in one.requests]
    assert {line.count("traceparent: ") for (line,) in sent} == {1}
    assert {line.partition("-")[2][:32] for (line,) in sent} == {each.trace_id for each in gateway.records}
    assert len(sent) > len(gateway.records)
    assert kept.found == []


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
async def test_new_traces_have_different_ids_and_the_share_that_was_asked_for(
    testbed: Testbed, share: float
) -> None:
    sampler = Sampler(share, by_parent=True)
    gateway, backend, kept = await traced(testbed, sampler)
    client = await gateway.client()

    for _ in range(200):
        await client.request(request("POST", "/v1/nodes", "Content-Length: 2", body=b"{}"))

    ids = [int(record.trace_id, 16) for record in gateway.records]
    assert len(set(ids)) == len(ids) == 200
    recorded = {trace.trace_id for _, trace in kept.found}
    assert recorded == {each for each in ids if each % (1 << 64) < sampler.bound}
    assert {each.body for each in backend.requests} == {b"{}"}
    assert abs(len(recorded) / len(ids) - share) < 0.2


async def test_a_version_that_was_refused_is_an_attempt_that_ended(testbed: Testbed) -> None:
    text = "Version 1.31 was requested. The supported version range is: [1.1, 1.10]"
    refusal = response(
        406,
        "X-OpenStack-Ironic-API-Minimum-Version: 1.1",
        "X-OpenStack-Ironic-API-Maximum-Version: 1.10",
        "Content-Type: application/json",
        body=json.dumps({"error_message": json.dumps({"faultstring": text})}).encode(),
    )
    refusing, serving = await testbed.backend(always(refusal)), await testbed.backend(serve)
    gateway = await testbed.gateway(refusing, serving)
    gateway.prefer(0, of=2)
    kept = trace_with(gateway)

    answer = await gateway.request(request("GET", "/v1/nodes", SAMPLED, version_line("1.31")))

    assert answer.status == 200
    first, second = kept.only.attempts
    assert (first.backend.name, first.status, first.error) == ("api-1", 406, "")
    assert (second.backend.name, second.ended) == ("api-2", -1.0)


async def test_what_no_backend_gets_is_a_span_too(testbed: Testbed) -> None:
    gateway, backend, kept = await traced(testbed)
    client = await gateway.client()

    assert (await client.request(request("GET", "/v1/nodes", SAMPLED, version_line("1.999")))).status == 406
    assert (await client.request(request("GET", "/v1/nodes", version_line("1.999")))).status == 406
    assert (await client.request(request("GET", "/v1/nodes", UNSAMPLED, version_line("1.999")))).status == 406

    first, second = (trace for _, trace in kept.found)
    assert (f"{first.trace_id:032x}", second.parent_id) == (TRACE, 0)
    assert first.attempts == second.attempts == []
    assert gateway.records[1].trace_id == f"{second.trace_id:032x}"
    assert backend.requests == []


async def test_configured_changes_of_headers_count(testbed: Testbed) -> None:
    """An operator may keep traces from backends."""
    gateway, backend, kept = await traced(testbed)
    context, edits = gateway.worker.context, HeaderEdits((), (), ("Traceparent", "Tracestate"))
    (view,) = gateway.snapshot_holder.current.views.values()
    object.__setattr__(view.service, "request_edits", edits)

    for lines in ((SAMPLED, STATE), ()):
        assert (await gateway.request(request("GET", "/v1/nodes", *lines))).status == 200
        assert told(backend.requests[-1]) == []
    assert len(kept.found) == 2
    assert context.tracing is not None


async def test_ids_and_bodies_stay_what_they_are(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(
        respond_with(response(200, body=b"{}"), response(200, body=b"{}"))
    )
    trace_with(gateway)
    client = await gateway.client()

    for lines in ((SAMPLED,), ()):
        answer = await client.request(
            request("POST", "/v1/nodes", "X-Request-Id: mine", *lines, body=b'{"a": 1}')
        )
        assert answer.status == 200
        assert backend.requests[-1].body == b'{"a": 1}'
        assert backend.requests[-1].one("X-Request-Id") == "mine"
        assert len(told(backend.requests[-1])) == 1
