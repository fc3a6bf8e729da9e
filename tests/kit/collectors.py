"""A collector for tests: receives spans by OTLP over HTTP, read with OpenTelemetry's own messages."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, final

from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tests.kit.waiting import Changes

SERVER: Final = 2
CLIENT: Final = 3
ERROR: Final = 2


class Span(NamedTuple):
    """One span as it came."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    state: str
    began: int
    ended: int
    status: int
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]


@final
class OtlpReceiver:
    """Keeps the spans that it got."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.headers: list[Mapping[str, str]] = []
        self.url = ""
        self._came = Changes()

    async def on_export(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        data = await request.read()
        message = ExportTraceServiceRequest()
        message.ParseFromString(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        self.headers.append(request.headers)
        for resource in message.resource_spans:
            of_resource = _attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        one.name,
                        one.kind,
                        one.trace_id.hex(),
                        one.span_id.hex(),
                        one.parent_span_id.hex(),
                        one.trace_state,
                        one.start_time_unix_nano,
                        one.end_time_unix_nano,
                        one.status.code,
                        _attributes(one.attributes),
                        of_resource,
                    )
                    for one in scope.spans
                ]
        self._came.notify()
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")

    async def until(self, number: int) -> None:
        """Wait until so many spans have come."""
        await self._came.until(lambda: len(self.spans) >= number)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs if isinstance(pair, KeyValue)}


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)


@asynccontextmanager
async def otlp_receiver() -> AsyncIterator[OtlpReceiver]:
    """One that listens on loopback."""
    receiver = OtlpReceiver()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/traces", receiver.on_export)
    async with TestServer(app) as server:
        receiver.url = str(server.make_url("/")).removesuffix("/")
        yield receiver
