"""What dialects read: the version fields of requests, and the documents and responses of servers.

The first line of an input is the label of a dialect sample of the conformance tests, and if there is none,
any sample. `version_fields`: then a method and a target, and one field a line. `documents`: then a status
and a path, fields, an empty line, and the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple
from zlib import crc32

from gateway.core.decision.decision import NegotiationResult, resolve
from gateway.core.dialect import (
    Advertisement,
    BackendResponse,
    Links,
    ProbeFault,
    ProbeRequest,
    ProbeResponse,
    RequestedKind,
    VersionMatch,
    VersionRefusal,
)
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.http.message import Header, normalize_name, render
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import RequestHead, read_request_head
from gateway.errors import FramingError
from gateway.telemetry.series.backend import PROBE_FAILURES
from tests.dialects.dialect_samples import DIALECT_SAMPLES, METHODS, DialectSample, folded_headers

_BY_LABEL: Final = {sample.label: sample for sample in DIALECT_SAMPLES}
_LIMITS: Final = Limits()
_LINKS: Final = Links("http://10.0.0.5:8774", "api.example", "https://api.example/compute")


class Parts(NamedTuple):
    """An input."""

    sample: DialectSample
    first: str
    """The method, or the status."""
    path: str
    lines: tuple[Header, ...]
    body: bytes


def _parts(data: bytes) -> Parts:
    head, _, body = data.partition(b"\n\n")
    label, _, rest = head.decode("latin-1").partition("\n")
    sample = _BY_LABEL.get(label) or DIALECT_SAMPLES[crc32(label.encode()) % len(DIALECT_SAMPLES)]
    start, *lines = rest.split("\n")
    first, _, path = start.partition(" ")
    fields = (line.partition(":") for line in lines)
    return Parts(sample, first, path, tuple((name, value.strip(" \t")) for name, _, value in fields), body)


@cache
def _view(label: str) -> ServiceView:
    sample = _BY_LABEL[label]
    return sample.view(sample.offered)


# --- requests -----------------------------------------------------------------------------------------------


def version_fields(data: bytes) -> None:
    """A request as the data plane reads it: it is refused, or what backends get is the negotiated version."""
    sample, method, target, lines, _ = _parts(data)
    dialect = sample.dialect
    fields = "".join(f"{name}: {value}\r\n" for name, value in lines)
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode("latin-1")
    table = NameTable.for_requests(dialect.reads | dialect.owned_request)
    try:
        request = read_request_head(head, table, _LIMITS)
    except FramingError:
        return
    endpoint = dialect.endpoint(request.method, request.path, request.query)
    assert endpoint == dialect.endpoint(request.method, request.path, request.query)
    resolution = resolve(_view(sample.label), endpoint, request, request.path)
    passed_on = {
        normalize_name(line.partition(b":")[0].decode()) for line in request.passthrough.split(b"\r\n")
    }
    assert not passed_on & (dialect.owned_request | dialect.reads)
    if resolution.response is not None:
        assert resolution.response.status >= 200
        render(resolution.response.headers)
    if resolution.result is not NegotiationResult.SERVED or resolution.version is None:
        return
    assert resolution.version in sample.offered
    assert resolution.requested is not None
    if resolution.requested.kind is RequestedKind.EXACT and dialect.version_match is VersionMatch.EXACT:
        assert resolution.requested.version == resolution.version
    if not resolution.requested.signed:
        _is_read_back(sample, request, resolution.request_field_lines, resolution.version)


def _is_read_back(sample: DialectSample, request: RequestHead, lines: bytes, version: object) -> None:
    """By a server that reads as this dialect does, in the fields and the target as they are written."""
    dialect = sample.dialect
    target = request.target.decode()
    endpoint = dialect.endpoint(request.method, request.path, request.query)
    resolution = resolve(_view(sample.label), endpoint, request, request.path)
    if dialect.target_has_version and resolution.version is not None:
        target = dialect.write_target(endpoint, target, resolution.version)
    head = b"%b %b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (request.method.encode(), target.encode(), lines)
    table = NameTable.for_requests(dialect.reads | dialect.owned_request)
    again = read_request_head(head, table, _LIMITS)
    second = resolve(
        _view(sample.label), dialect.endpoint(again.method, again.path, again.query), again, again.path
    )
    assert second.version == version, f"{second.version} is read in {head!r}"
    assert second.request_field_lines == lines, "written otherwise the second time"


# --- responses and documents --------------------------------------------------------------------------------


def documents(data: bytes) -> None:
    sample, first, path, lines, body = _parts(data)
    dialect = sample.dialect
    status = int(first) if re.fullmatch("[1-5][0-9][0-9]", first) else 200
    headers = folded_headers(lines)
    _is_probed(sample, ProbeResponse(status, headers, body), path)
    for method in METHODS[:2]:
        endpoint = dialect.endpoint(method, path, "")
        served = dialect.read_response(endpoint, status, headers)
        assert served.advertisement is None or served.advertisement.versions
        assert served.version_refusal is VersionRefusal.NO or status >= 300
        for negotiated in (None, sample.versions[2]):
            written = dialect.write_response(
                BackendResponse(endpoint, status, served, negotiated, sample.offered)
            )
            render(written)
            names = [normalize_name(name) for name, _ in written]
            assert len(set(names)) == len(names)
            assert set(names) <= dialect.owned_response
        named = dialect.read_refusal(status, body)
        assert named is None or named.versions
        if not endpoint.document:
            continue
        rewritten = dialect.rewrite_document(endpoint, body, sample.offered, _LINKS)
        if rewritten is not None:
            assert not any(_is_of_backend(link) for link in _links(json.loads(rewritten))), (
                "a backend is shown"
            )
            again = dialect.rewrite_document(endpoint, rewritten, sample.offered, _LINKS)
            assert again is not None, "what is sent is no such document"


def _links(value: object) -> Iterator[str]:
    """Every `href` in a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "href" and isinstance(inner, str):
                yield inner
            yield from _links(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _links(inner)


def _is_of_backend(link: str) -> bool:
    return link == _LINKS.backend or link.startswith(f"{_LINKS.backend}/")


def _is_probed(sample: DialectSample, response: ProbeResponse, path: str) -> None:
    """Each step gets the same response. It ends, with versions or with a reason."""
    for own in (None, path if path.startswith("/") else None):
        responses: tuple[ProbeResponse, ...] = ()
        step = sample.dialect.probe(responses, own)
        while isinstance(step, ProbeRequest):
            assert len(responses) < 4, "too many requests"
            assert step.path.startswith("/")
            responses = (*responses, response)
            step = sample.dialect.probe(responses, own)
        if isinstance(step, ProbeFault):
            assert step.reason in PROBE_FAILURES
            assert step.detail.isprintable()
        else:
            assert isinstance(step, Advertisement)
            assert step.versions or step.legacy
