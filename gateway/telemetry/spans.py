"""OpenTelemetry spans, made from the `RequestTrace` of a sampled request (`telemetry.tracing`).

    RequestTrace  ->  SERVER span  ->  queue of the SDK, bounded  ->  its thread  ->  OTLP over HTTP
                      CLIENT spans

The only module that imports OpenTelemetry, which the extra `otel` installs; `telemetry.otel` imports it when
tracing is configured. Attributes are those of the semantic conventions for HTTP, and `skewgate.*`. A slow,
absent or hostile collector costs spans only: the queue is bounded, the SDK drops what does not fit, and
little of a response is read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from io import BytesIO
from threading import Thread
from typing import Any, Final, TypeAlias, final

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState

from gateway import __version__
from gateway.core.http.message import METHODS
from gateway.telemetry.access_log import printable, redacted
from gateway.telemetry.request_record import NO_BACKEND, RequestRecord
from gateway.telemetry.trace_context import AttemptSpan, RequestTrace
from gateway.telemetry.tracing import SpanSink

MAX_ANSWER: Final = 64 * 1024
"""Maximum bytes of a collector's response that are read."""
OTHER_METHOD: Final = "_OTHER"
"""Replacement in spans for unknown methods, which clients choose (semantic conventions for HTTP)."""

_NOTHING: Final = Context()

Attributes: TypeAlias = dict[str, str | int]

_log = logging.getLogger("skewgate.tracing")


@final
class OpenTelemetrySink(SpanSink):
    """Makes OpenTelemetry spans and hands them to the SDK, which reads `OTEL_*` itself and raises about
    malformed values."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._ids = _NotedIds()
        self._exporter = OTLPSpanExporter(session=_BoundedSession())
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # `Tracing` has sampled
            resource=_resource(environ),
            id_generator=self._ids,
            shutdown_on_exit=False,  # it would wait for the collector
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("skewgate", __version__)

    def finish(self, record: RequestRecord, trace: RequestTrace) -> None:
        try:
            self._make_spans(record, trace)
        except Exception:  # noqa: BLE001 - an error of the SDK, or of ours, must not cost the request
            _log.exception("cannot make a span")

    def _make_spans(self, record: RequestRecord, trace: RequestTrace) -> None:
        ended, now = time.time_ns(), time.monotonic()
        path, _, query = record.target.partition("?")
        target = f"{path}?{redacted(query)}" if query else path
        attributes = _of_request(record)
        attributes |= {"url.path": path, "url.scheme": record.peer.scheme}
        if query:
            attributes["url.query"] = redacted(query)
        self._ids.trace_id, self._ids.span_id = trace.trace_id, trace.span_id
        span = self._start(
            _parent(trace), SpanKind.SERVER, record, attributes, ended - round(record.seconds * 1e9)
        )
        if record.status >= 500 or (not record.status and record.reason):
            _fail(span, record.reason or str(record.status))
        server = set_span_in_context(span, _NOTHING)
        for number, attempt in enumerate(trace.attempts):
            self._ids.span_id = attempt.span_id
            attributes = _of_attempt(record, attempt, number, target)
            began = ended - round((now - attempt.began) * 1e9)
            client = self._start(server, SpanKind.CLIENT, record, attributes, began)
            _set_status(client, record, attempt)
            client.end(ended if attempt.ended < 0 else ended - round((now - attempt.ended) * 1e9))
        span.end(ended)

    def _start(
        self, parent: Context, kind: SpanKind, record: RequestRecord, attributes: Attributes, began: int
    ) -> Span:
        method = record.method if record.method in METHODS else "HTTP"
        span = self._tracer.start_span(method, parent, kind, attributes, start_time=began)
        assert isinstance(span, Span)  # it is sampled
        return span

    def close(self, timeout: float) -> bool:
        """Sends the spans that are left, and blocks; False: the collector took longer than `timeout` s."""
        thread = Thread(target=self._provider.shutdown, name="skewgate-traces", daemon=True)
        thread.start()
        thread.join(timeout)
        if not thread.is_alive():
            return True
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # so that it tries no more
        return False


@final
class _NotedIds(IdGenerator):
    """Id generator for the SDK that gives spans the ids which were sent to backends."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


@final
class _BoundedSession(requests.Session):
    """HTTP session that reads at most `MAX_ANSWER` of a response and follows no redirect."""

    def __init__(self) -> None:
        super().__init__()
        self.max_redirects = 0

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:  # noqa: ANN401
        response = super().send(request, **{**kwargs, "stream": True})
        length = response.headers.get("Content-Length", "")
        if length.isdigit() and int(length) <= MAX_ANSWER:
            return response
        response.close()
        response.raw = BytesIO()
        return response


def _resource(environ: Mapping[str, str]) -> Resource:
    """Makes the resource of all spans; its service name is the environment's, if that has one."""
    resource = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    named = environ.get("OTEL_SERVICE_NAME") or f"{SERVICE_NAME}=" in resource
    attributes = {SERVICE_VERSION: __version__}
    return Resource.create(attributes if named else {SERVICE_NAME: "skewgate", **attributes})


def _parent(trace: RequestTrace) -> Context:
    if not trace.parent_id:
        return _NOTHING
    state = TraceState.from_header([value.decode("latin-1") for value in trace.states])
    context = SpanContext(
        trace.trace_id,
        trace.parent_id,
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=state,
    )
    return set_span_in_context(NonRecordingSpan(context), _NOTHING)


def _of_method(record: RequestRecord) -> Attributes:
    if record.method in METHODS:
        return {"http.request.method": record.method}
    return {"http.request.method": OTHER_METHOD, "http.request.method_original": printable(record.method)}


def _of_request(record: RequestRecord) -> Attributes:
    """Span attributes of the exchange between client and gateway. Text of the client is cut (threats O8)."""
    attributes = _of_method(record)
    host, port = _split(record.head.host)
    attributes |= {
        "client.address": record.client,
        "network.protocol.name": "http",
        "network.protocol.version": f"1.{record.head.minor}",
        "server.address": host,
        "user_agent.original": printable(record.head.user_agent.decode("latin-1")),
        "skewgate.service": record.service,
        "skewgate.backend": "" if record.backend == NO_BACKEND else record.backend,
        "skewgate.requested": "" if record.requested is None else record.requested.value,
        "skewgate.served": record.version if record.backend != NO_BACKEND else "",
        "skewgate.result": "" if record.result is None else record.result.value,
        "skewgate.reason": record.reason,
        "skewgate.request_id": record.request_id,
    }
    if port:
        attributes["server.port"] = int(port)
    if record.status:
        attributes["http.response.status_code"] = record.status
    return {name: value for name, value in attributes.items() if value != ""}


def _split(host: str) -> tuple[str, str]:
    """Splits a valid `Host` into name and port; the port may be empty."""
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and port.isdigit() else (host, "")


def _of_attempt(record: RequestRecord, attempt: AttemptSpan, number: int, target: str) -> Attributes:
    """Span attributes of an exchange between gateway and backend. `target`: for one that sent nothing."""
    backend, target = attempt.backend, f"{attempt.backend.path}{target}"
    if attempt.target:
        path, mark, query = attempt.target.decode("ascii").partition("?")
        target = f"{path}{mark}{redacted(query)}" if query else path
    attributes = _of_method(record)
    attributes |= {
        "server.address": backend.socket_path or backend.host,
        "url.full": f"{'http' if backend.tls is None else 'https'}://{backend.authority}{target}",
        "network.protocol.name": "http",
        "skewgate.service": record.service,
        "skewgate.backend": backend.name,
    }
    if not backend.socket_path:
        attributes["server.port"] = backend.port
    if number:
        attributes["http.request.resend_count"] = number
    return attributes


def _set_status(span: Span, record: RequestRecord, attempt: AttemptSpan) -> None:
    answered = attempt.ended < 0 and record.backend == attempt.backend.name  # the client got this response
    status = attempt.status or (record.status if answered else 0)
    error = attempt.error or (record.reason if attempt.ended < 0 else "")
    if status:
        span.set_attribute("http.response.status_code", status)
    if error or status >= 400:
        _fail(span, error or str(status))


def _fail(span: Span, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(Status(StatusCode.ERROR))
