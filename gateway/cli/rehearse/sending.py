"""Requests of a rehearsal: read from a file, and sent to one backend at two versions.

Only safe methods are sent, with the headers that were given: no credential comes from a file. Nothing passes
through a gateway, so no usage counts them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, final

from gateway.cli.rehearse.comparison import Answer, Comparison, Result, judge
from gateway.controlplane.probe_client import ProbeClient, default_host
from gateway.controlplane.probe_connection import ProbeConnection
from gateway.controlplane.resolver import Resolver
from gateway.core.decision.operations import possible_methods
from gateway.core.dialect import ProbeFault, ProbeResponse
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.service import Service
from gateway.core.http.message import HOP_BY_HOP, SAFE_METHODS, Header, as_mapping, normalize_name, render
from gateway.core.usage.operations import operation_of
from gateway.core.versions.version import Version
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import read_described, refusal_sentence
from gateway.errors import AdminError, FramingError
from gateway.settings import Settings
from gateway.telemetry.access_log import MAX_VALUE, redacted

LONGEST: Final = 5.0
"""Seconds within which an answer must be whole to be compared."""
LARGEST: Final = 256 * 1024
"""Most bytes of a body that is compared."""
OF_ONE_OPERATION: Final = 5
"""Most requests of one operation that are sent of a log, the last ones: a log may name a million objects."""
_FIELD: Final = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|[^ "]+)')
_TEXT_LINE: Final = re.compile(rf"[0-9-]{{10}}T[0-9:.]{{12}}Z(?:{_FIELD.pattern})+")
"""Line of an access log in text. Values have quotes where they would be ambiguous without."""
_METHODS: Final = {"x-http-method", "x-http-method-override", "x-method-override"}
"""Headers that make a request unsafe, for some servers also if no configuration says so."""
_NOT_SENT: Final = HOP_BY_HOP | _METHODS | {"accept-encoding", "content-length"}


@final
class SafeRequest(NamedTuple):
    """A request for a service. `local`: path and query as the API itself sees them."""

    method: str
    local: str
    operation: str


def read_requests(lines: Iterable[str], service: Service, settings: Settings) -> list[SafeRequest]:
    """Read lines `METHOD PATH`, or the successful ones of an access log. Raises `AdminError` for a line that
    is neither, or cannot be sent; what a log has besides is left out."""
    found: defaultdict[object, dict[SafeRequest, None]] = defaultdict(dict)
    prefix = service.match.prefix
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line[0] == "#":
            continue
        method, _, target = line.partition(" ")
        is_logged = line[0] == "{" or _TEXT_LINE.fullmatch(line) is not None
        try:
            if is_logged:
                entry = _logged(line)
                method, target, fits = entry["method"], entry["target"], entry["service"] == service.name
                if not fits or not 200 <= int(entry["status"]) < 400 or len(target) >= MAX_VALUE:
                    continue
            path, _, query = target.partition("?")
            if is_logged and redacted(query) == query:
                query = ""  # its values are not known
            _check(method, path, query, service, settings)
        except FramingError as refusal:
            if not is_logged:
                raise AdminError(f"line {number} of the requests: {refusal_sentence(refusal)}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise AdminError(f"line {number} of the requests is not of a skewgate access log") from None
        else:
            local = path[len(prefix) :] or "/"
            operation = operation_of(service, method, local)
            request = SafeRequest(method, f"{local}?{query}" if query else local, operation)
            of_one = found[operation if is_logged else request]
            of_one.pop(request, None)
            of_one[request] = None
    return [each for of_one in found.values() for each in [*of_one][-OF_ONE_OPERATION:]]


def _logged(line: str) -> Mapping[str, Any]:
    """Read a line of an access log, in JSON or in text."""
    if line[0] == "{":
        found: Mapping[str, Any] = json.loads(line)
        return found
    return {name: json.loads(text) if text[0] == '"' else text for name, text in _FIELD.findall(line)}


def _check(method: str, path: str, query: str, service: Service, settings: Settings) -> None:
    """Raise `FramingError` for a request that must not be sent."""
    prefix, target = service.match.prefix, f"{path}?{query}"
    if not target.isascii() or not target.isprintable() or " " in target:
        raise FramingError("target", detail="the path has a character that HTTP does not allow")
    head = read_described(method, target, (), NameTable.for_requests(frozenset()), settings.limits)
    if not {*possible_methods(head, (), service.dialect.method_parameter)}.issubset(SAFE_METHODS):
        raise FramingError("method", detail=f"only {', '.join(sorted(SAFE_METHODS))} are sent")
    if path != prefix and not path.startswith(f"{prefix}/"):
        raise FramingError("target", detail=f"the path is not below {service.match.path}")


@final
@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Sends requests to one backend at two versions, with these headers, at most `rate` in a second."""

    service: Service
    backend: Backend
    older: Version
    newer: Version
    headers: Sequence[Header]
    rate: float

    async def comparisons(self, requests: Iterable[SafeRequest]) -> list[Comparison]:
        """Send all requests, one after the other, and return the comparison of each."""
        async with Resolver() as resolver:
            resolver.retarget((self.service,))
            client = ProbeClient(resolver.resolve)
            return [await self._compared(client, each) for each in requests]

    async def _compared(self, client: ProbeClient, request: SafeRequest) -> Comparison:
        """Send a request twice at the older version and once at the newer one; if these differ, once more at
        the older one, because a clock may have moved on meanwhile."""
        answers = [await self._send(client, request, self.older)]
        if isinstance(answers[0], str):
            return Comparison(Result.NOT_COMPARED, answers[0])
        answers.append(await self._send(client, request, self.older))
        last = await self._send(client, request, self.newer)
        if judge(answers, last).differences:
            answers.append(await self._send(client, request, self.older))
        return judge(answers, last)

    async def _send(self, client: ProbeClient, request: SafeRequest, version: Version) -> Answer:
        service, backend, headers, dialect = self.service, self.backend, self.headers, self.service.dialect
        path, _, query = request.local.partition("?")
        endpoint = dialect.endpoint(request.method, path, query)
        if endpoint.answered or not endpoint.negotiated:
            return "no version is negotiated there"
        local, prefix = request.local, "" if service.match.strip_prefix else service.match.prefix
        if dialect.target_has_version:
            local = dialect.write_target(endpoint, local, version)
        # A header that names another method would make the request unsafe.
        left_out = dialect.owned_request | _NOT_SENT | {*dialect.method_override}
        has_host = any(normalize_name(name) == "host" for name, _ in headers)
        lines = [
            *([] if has_host else [("Host", default_host(backend))]),
            *(each for each in headers if normalize_name(each[0]) not in left_out),
            *dialect.write_request(endpoint, version, as_mapping(headers)),
            *(("Accept-Encoding", "identity"), ("Connection", "close")),
        ]
        start = f"{request.method} {backend.path}{prefix}{local} HTTP/1.1\r\n"
        head = start.encode() + render(lines) + b"\r\n"
        await asyncio.sleep(1 / self.rate)
        try:
            async with asyncio.timeout(LONGEST):
                make = partial(ProbeConnection, head, LARGEST, bodiless=request.method == "HEAD")
                found = await client.exchange(make, service, backend)
        except TimeoutError:
            return f"slower than {LONGEST:g} s"
        if isinstance(found, ProbeFault):
            return "larger than 256 KiB" if found.reason == "too_large" else found.detail
        served = dialect.read_response(endpoint, found.status, found.headers).version
        if found.status < 400 and served not in {None, version}:
            return f"executed at {dialect.scheme.format(served or version)} instead"
        names = {*map(normalize_name, found.headers)} - dialect.owned_response - HOP_BY_HOP
        return ProbeResponse(found.status, dict.fromkeys(names - {"content-length"}, ""), found.body)
