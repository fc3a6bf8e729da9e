"""Spans that a collector gets, what `OTEL_*` may say, and collectors that are slow, absent or hostile."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final

import pytest

from gateway.core.decision.decision import NegotiationResult
from gateway.core.fleet.backend import Backend
from gateway.telemetry import otel as module
from gateway.telemetry.otel import OpenTelemetry, read_sampler, start_tracing
from gateway.telemetry.request_record import NO_BACKEND, RequestRecord
from gateway.telemetry.tracing import Sampler, Tracing
from tests.kit.collectors import CLIENT, ERROR, SERVER, OtlpReceiver, otlp_receiver
from tests.kit.servers import serving
from tests.kit.waiting import PATIENCE
from tests.telemetry.builders import Received

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN: Final = "00f067aa0ba902b7"
PARENT: Final = f"00-{TRACE}-{SPAN}-01".encode()
BACKEND: Final = Backend("old", "10.0.0.1", 6385, path="/base")
HEAD: Final = b"GET /base/v1/nodes?token=secret HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The SDK reads the environment of the process: no gateway of a later test may find what a test has put
    there. What it logs goes where it went before."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    logger = logging.getLogger("opentelemetry")
    before = logger.handlers, logger.propagate
    yield monkeypatch
    logger.handlers, logger.propagate = before
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OtlpReceiver]:
    """It takes everything, however busy the machine is."""
    monkeypatch.setattr(module, "CLOSE_TIMEOUT", 30.0)
    async with otlp_receiver() as receiver:
        yield receiver


def started(**variables: str) -> OpenTelemetry:
    """Tracing with these variables in the environment."""
    os.environ.update(variables)
    tracing = start_tracing(os.environ)
    assert tracing is not None
    return tracing


def record(tracing: Tracing, head: Received | None = None, **fields: object) -> RequestRecord:
    """A request that one backend has got, at its end."""
    head = head or Received("GET", b"/v1/nodes?token=secret&limit=", "192.0.2.7", trace=PARENT)
    made = RequestRecord(head, head)
    tracing.send(HEAD, made, BACKEND, time.monotonic(), None)
    values = {
        "service": "baremetal",
        "backend": "old",
        "status": 200,
        "result": NegotiationResult.SERVED,
        "version": "1.31",
        "seconds": 0.25,
        "request_id": "req-1",
    }
    for name, value in {**values, **fields}.items():
        setattr(made, name, value)
    return made


async def test_a_collector_gets_the_spans_of_a_request(
    receiver: OtlpReceiver, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=canary")
    otel = started(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    head = Received(
        "GET",
        b"/v1/nodes?token=secret&limit=",
        "192.0.2.7",
        passthrough=b"\r\ntracestate: vendor=1",
        trace=PARENT,
        host="api.example:6385",
        user_agent=b"python-ironicclient",
    )
    before = time.time_ns()

    otel.tracing.finish(record(otel.tracing, head))
    await otel.close()

    client, server = sorted(receiver.spans, key=lambda span: -span.kind)
    assert (server.name, server.kind, client.name, client.kind) == ("GET", SERVER, "GET", CLIENT)
    assert server.trace_id == client.trace_id == TRACE
    assert (server.parent_id, client.parent_id) == (SPAN, server.span_id)
    assert server.state == client.state == "vendor=1"
    assert (server.status, client.status) == (0, 0)
    assert 0 <= server.ended - before < 10e9
    assert server.ended - server.began == 250_000_000
    assert server.began < client.began <= client.ended == server.ended
    assert server.attributes == {
        "client.address": "192.0.2.7",
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "server.address": "api.example",
        "server.port": 6385,
        "skewgate.backend": "old",
        "skewgate.request_id": "req-1",
        "skewgate.result": "served",
        "skewgate.served": "1.31",
        "skewgate.service": "baremetal",
        "url.path": "/v1/nodes",
        "url.query": "token=*&limit=*",
        "url.scheme": "http",
        "user_agent.original": "python-ironicclient",
    }
    assert client.attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "network.protocol.name": "http",
        "server.address": "10.0.0.1",
        "server.port": 6385,
        "skewgate.backend": "old",
        "skewgate.service": "baremetal",
        "url.full": "http://10.0.0.1:6385/base/v1/nodes?token=*",
    }
    assert (server.resource["service.name"], server.resource["service.version"]) == ("skewgate", "0.1.0")
    assert receiver.headers[0]["api-key"] == "canary"


async def test_failures_are_errors(receiver: OtlpReceiver) -> None:
    otel = started(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{receiver.url}/v1/traces")
    tracing = otel.tracing
    failed = record(tracing, backend=NO_BACKEND, status=502, reason="no_reply")
    tracing.end_attempt(failed, time.monotonic(), error="no_reply")
    tracing.not_sent(failed, BACKEND, time.monotonic())
    tracing.end_attempt(failed, time.monotonic(), error="connect")
    for one in (
        failed,
        record(tracing, status=404),
        record(tracing, status=0, reason="client_gone"),
        record(tracing, Received("SPAM\x7f", b"/", "", trace=PARENT, host="[::1]")),
    ):
        tracing.finish(one)
    await otel.close()

    spans = [(span.kind, span.status, span.attributes.get("error.type")) for span in receiver.spans]
    by_request: list[list[tuple[int, int, str | None]]] = [
        [(CLIENT, ERROR, "no_reply"), (CLIENT, ERROR, "connect"), (SERVER, ERROR, "no_reply")],
        [(CLIENT, ERROR, "404"), (SERVER, 0, None)],
        [(CLIENT, ERROR, "client_gone"), (SERVER, ERROR, "client_gone")],
        [(CLIENT, 0, None), (SERVER, 0, None)],
    ]
    assert spans == [span for request in by_request for span in request]
    assert "skewgate.served" not in receiver.spans[2].attributes
    assert receiver.spans[1].attributes["http.request.resend_count"] == 1
    assert receiver.spans[1].attributes["url.full"] == "http://10.0.0.1:6385/base/v1/nodes?token=*&limit=*"
    odd = receiver.spans[-1]
    assert (odd.name, odd.attributes["http.request.method"]) == ("HTTP", "_OTHER")
    assert odd.attributes["http.request.method_original"] == "SPAM\\u007f"
    assert odd.attributes["server.address"] == "[::1]"


@pytest.mark.parametrize(
    "variables, name",
    [
        ({"OTEL_SERVICE_NAME": "front"}, "front"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=front,deployment.environment.name=x"}, "front"),
        ({}, "skewgate"),
    ],
)
async def test_the_service_has_the_name_that_it_is_given(
    receiver: OtlpReceiver, variables: dict[str, str], name: str
) -> None:
    otel = started(OTEL_TRACES_EXPORTER="otlp", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url, **variables)
    otel.tracing.finish(record(otel.tracing))
    await otel.close()

    assert {span.resource["service.name"] for span in receiver.spans} == {name}


async def test_spans_are_sent_while_the_gateway_runs(receiver: OtlpReceiver) -> None:
    otel = started(
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        OTEL_BSP_SCHEDULE_DELAY="10",
        OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
    )
    otel.tracing.finish(record(otel.tracing))
    await receiver.until(2)
    await otel.close()


# --- what the environment says -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_SERVICE_NAME": "front", "OTEL_TRACES_SAMPLER": "always_on"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_what_does_not_ask_for_traces(variables: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    assert start_tracing(variables) is None
    assert caplog.records == []


@pytest.mark.parametrize(
    "variables, said",
    [
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
            "OTEL_EXPORTER_OTLP_ENDPOINT is 'collector:4318': set it to a URL",
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://user:canary@collector:99999/v1/traces"},
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is 'http://collector:99999/v1/traces': set it to a URL",
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::1"}, "set it to a URL"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc': set it to http/protobuf",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "zipkin"},
            "OTEL_TRACES_EXPORTER is 'zipkin': set it to otlp or none",
        ),
    ],
)
def test_what_cannot_be_right_is_an_error_and_no_tracing(
    variables: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert start_tracing(variables) is None
    (line,) = caplog.messages
    assert said in line
    assert "trace headers pass unchanged" in line
    assert "canary" not in line


def test_settings_that_the_sdk_refuses(
    caplog: pytest.LogCaptureFixture, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")

    assert start_tracing(os.environ) is None
    assert "OpenTelemetry cannot start: max_queue_size" in caplog.messages[-1]


def test_without_the_extra_it_says_what_to_install(
    caplog: pytest.LogCaptureFixture, environment: pytest.MonkeyPatch
) -> None:
    environment.setitem(sys.modules, "gateway.telemetry.spans", None)

    wrong_as_well = {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert start_tracing(wrong_as_well) is None
    (line,) = caplog.messages  # what is wrong with settings is next: first there must be something to set
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed" in line
    assert "install skewgate[otel]" in line


@pytest.mark.parametrize(
    "sampler, arg, name, found",
    [
        ("", "", "parentbased_always_on", Sampler(1.0, by_parent=True)),
        ("always_on", "", "always_on", Sampler(1.0, by_parent=False)),
        ("always_off", "", "always_off", Sampler(0.0, by_parent=False)),
        ("ParentBased_Always_Off", "", "parentbased_always_off", Sampler(0.0, by_parent=True)),
        ("traceidratio", "0.1", "traceidratio 0.1", Sampler(0.1, by_parent=False)),
        ("parentbased_traceidratio", "0", "parentbased_traceidratio 0", Sampler(0.0, by_parent=True)),
        ("traceidratio", "", "traceidratio 1", Sampler(1.0, by_parent=False)),
    ],
)
def test_samplers(sampler: str, arg: str, name: str, found: Sampler) -> None:
    variables = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": arg}

    assert read_sampler(variables) == (name, found)


@pytest.mark.parametrize(
    "sampler, arg, found",
    [
        ("jaeger_remote", "", Sampler(1.0, by_parent=True)),
        ("traceidratio", "ten", Sampler(1.0, by_parent=False)),
        ("traceidratio", "nan", Sampler(1.0, by_parent=False)),
        ("parentbased_traceidratio", "1.5", Sampler(1.0, by_parent=True)),
    ],
)
def test_a_malformed_sampler_is_an_error_and_the_default_counts(
    sampler: str, arg: str, found: Sampler, caplog: pytest.LogCaptureFixture
) -> None:
    variables = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": arg}

    assert read_sampler(variables)[1] == found
    (line,) = caplog.messages
    assert (arg or sampler) in line


# --- collectors that are absent, slow or hostile -----------------------------------------------------------


async def test_an_absent_collector_costs_one_line(
    caplog: pytest.LogCaptureFixture, unused_tcp_port: int
) -> None:
    otel = started(
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://user:canary@127.0.0.1:{unused_tcp_port}",
        OTEL_EXPORTER_OTLP_HEADERS="api-key=canary",
        OTEL_BSP_MAX_QUEUE_SIZE="8",
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE="4",
    )
    for _ in range(500):
        otel.tracing.finish(record(otel.tracing))
    await otel.close()

    said = [line for line in caplog.messages if line.startswith("OpenTelemetry: ")]
    assert 0 < len(said) == len(set(said)) < 6
    assert "canary" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_silent_collector_does_not_hold_the_end(caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()  # and never an answer

    async with serving(serve) as server:
        otel = started(
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{server.port}", OTEL_BSP_SCHEDULE_DELAY="10"
        )
        otel.tracing.finish(record(otel.tracing))
        await asked.wait()
        async with asyncio.timeout(PATIENCE):
            await otel.close()
    assert "the last spans are dropped" in caplog.messages[-1]


ENDLESS: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:9/elsewhere\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"spam\r\n\r\n",
        b"",
        ENDLESS,
    ],
)
async def test_a_hostile_collector_costs_spans_only(answer: bytes) -> None:
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        served.set()
        with suppress(ConnectionError):  # it has had enough
            while answer is ENDLESS:
                writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                await writer.drain()

    async with serving(serve) as server:
        otel = started(
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{server.port}", OTEL_BSP_SCHEDULE_DELAY="10"
        )
        otel.tracing.finish(record(otel.tracing))
        await served.wait()
        otel.tracing.finish(record(otel.tracing))
        async with asyncio.timeout(PATIENCE):
            await otel.close()


async def test_an_error_of_the_sdk_costs_no_request(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    otel = started(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
    otel.tracing.finish(record(otel.tracing, seconds=float("inf")))
    await otel.close()

    assert "cannot make a span" in caplog.messages
