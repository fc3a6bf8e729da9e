"""A whole gateway that traces: a collector gets the spans, and one that does not answer holds nothing up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from gateway.telemetry import otel
from tests.kit.collectors import CLIENT, SERVER, otlp_receiver
from tests.kit.servers import serving
from tests.scenarios.fakes import Ironic
from tests.scenarios.testbed import in_front_of


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """What OpenTelemetry logs goes where it went before."""
    logger = logging.getLogger("opentelemetry")
    before = logger.handlers, logger.propagate
    yield monkeypatch
    logger.handlers, logger.propagate = before


async def test_a_request_is_one_trace_from_client_to_backend(environment: pytest.MonkeyPatch) -> None:
    environment.setattr(otel, "CLOSE_TIMEOUT", 30.0)  # the receiver takes everything, on a busy machine late
    async with otlp_receiver() as receiver:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        environment.setenv("OTEL_SERVICE_NAME", "front")
        server = Ironic(90)
        async with in_front_of(server) as testbed:
            assert (await testbed.at("1.31")).start.split()[1] == "200"
            assert (await testbed.at("1.999")).start.split()[1] == "406"
        served, refused = (span for span in receiver.spans if span.kind == SERVER)
        (client,) = (span for span in receiver.spans if span.kind == CLIENT)
    sent = next(head for head in testbed.forwarded if head.get("traceparent"))
    assert sent.get("traceparent") == f"00-{client.trace_id}-{client.span_id}-01"
    assert (served.trace_id, served.parent_id, client.parent_id) == (client.trace_id, "", served.span_id)
    assert served.attributes["skewgate.served"] == "1.31"
    assert refused.trace_id != served.trace_id
    assert refused.attributes["http.response.status_code"] == 406
    assert refused.attributes["skewgate.result"] == "above_max"
    assert refused.resource["service.name"] == "front"


async def test_a_collector_that_does_not_answer_holds_nothing_up(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()  # and never an answer

    async with serving(serve) as collector:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.port}")
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        environment.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
        environment.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
        async with in_front_of(Ironic(90)) as testbed:
            for _ in range(50):
                assert (await testbed.at("1.31")).start.split()[1] == "200"
            await asked.wait()
    assert "the last spans are dropped" in caplog.text, "it was waited for until `otel.CLOSE_TIMEOUT` only"
