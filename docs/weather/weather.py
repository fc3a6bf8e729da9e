"""The weather service: a whole number in `X-Weather-Version`, the server's range beside it in every response.

Pure: the same arguments give the same answer. Nothing that came from the network makes it raise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from gateway.core.dialect import (
    NO_HEADERS,
    NO_VERSION_REQUESTED,
    Advertisement,
    BackendResponse,
    DefaultKind,
    DefaultVersion,
    Dialect,
    Endpoint,
    GatewayError,
    Links,
    ProbeFault,
    ProbeRequest,
    ProbeResponse,
    ProbeStep,
    Refusal,
    RequestedKind,
    RequestedVersion,
    Served,
    VersionRefusal,
)
from gateway.core.http.json_body import read_json
from gateway.core.http.message import Header, Response, all_values, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme, Version, WholeNumber

NAME = "X-Weather-Version"
RANGE = "X-Weather-Range"

VERSIONS = Endpoint("versions", negotiated=False, document=True, versioned_only=True)
FORECAST = Endpoint("forecast")


class Weather(Dialect):
    """The weather service, with and without versions."""

    name = "weather"

    scheme: Scheme = WholeNumber()
    reads = frozenset({normalize_name(NAME)})
    owned_request = frozenset({normalize_name(NAME)})
    owned_response = frozenset({normalize_name(NAME), normalize_name(RANGE)})
    vary: tuple[str, ...] = (NAME,)
    default_version = DefaultVersion(DefaultKind.MINIMUM)
    legacy_versions = VersionSet.only(Version(1))

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        """The one document, or a forecast."""
        return VERSIONS if path == "/versions" else FORECAST

    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        """A whole number. Two lines with different values are malformed."""
        lines = all_values(headers, NAME)
        if not lines:
            return NO_VERSION_REQUESTED
        version = self.scheme.parse(_single(lines))
        if version is None:
            return RequestedVersion(RequestedKind.MALFORMED, text=lines[0])
        return RequestedVersion(RequestedKind.EXACT, version, lines[0])

    def write_request(
        self, endpoint: Endpoint, version: Version, headers: Mapping[str, str] = NO_HEADERS
    ) -> tuple[Header, ...]:
        """The negotiated version. A legacy server is sent none."""
        return ((NAME, self.scheme.format(version)),) if endpoint.negotiated else ()

    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        """406 with the range, or 400 for a text that is not a version."""
        if refusal.version is None:
            return _text(400, "not a version")
        offered = refusal.offered
        lowest, highest = map(self.scheme.format, (offered.lowest, offered.highest))
        return _text(406, refusal.text or f"not between {lowest} and {highest}", _range(offered))

    def error_response(self, error: GatewayError) -> Response:
        """Any other error, with the range once there is an offer."""
        headers = () if error.offered is None else (_range(error.offered),)
        return _text(error.status, error.detail, *headers)

    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        """The served version, and the server's own range."""
        served, ranges = all_values(headers, NAME), all_values(headers, RANGE)
        refused = status == 406 and endpoint.negotiated and bool(ranges) and not served
        return Served(
            version=self.scheme.parse(_single(served)),
            advertisement=_advertisement(*_single(ranges).split("-", 1)),
            version_refusal=VersionRefusal.YES if refused else VersionRefusal.NO,
            has_range=bool(ranges),
        )

    def write_response(self, response: BackendResponse) -> tuple[Header, ...]:
        """The served version as the server sent it, and the offer instead of the server's range.

        For a legacy server: what a server with versions would have sent.
        """
        version, has_range = response.served.version, response.served.has_range
        if response.legacy and version is None and response.negotiated is not None and response.status >= 200:
            version, has_range = response.negotiated, True
        lines = () if version is None else ((NAME, self.scheme.format(version)),)
        return (*lines, _range(response.offered)) if has_range else lines

    def rewrite_document(
        self, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        """The offer instead of the server's range."""
        document = _document(body) if endpoint == VERSIONS else None
        if document is None:
            return None
        document |= {"oldest": offered.lowest[0], "newest": offered.highest[0]}
        return json.dumps(document).encode()

    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        """`GET /versions`; 404 is a legacy server."""
        if not answers:
            return ProbeRequest(path or "/versions")
        answer = answers[0]
        if answer.status == 404:
            return Advertisement(self.legacy_versions, legacy=True)
        if answer.status != 200:
            return ProbeFault("status", f"answered {answer.status} where 200 was expected")
        document = _document(answer.body)
        if document is None:
            return ProbeFault("document", "not the document of the weather service")
        advertisement = _advertisement(str(document.get("oldest")), str(document.get("newest")))
        return advertisement or ProbeFault("range", "the oldest and the newest version do not make a range")


def _single(lines: tuple[str, ...]) -> str:
    """The value of all lines; the empty text, which is not a version, where they differ."""
    return lines[0] if len(set(lines)) == 1 else ""


def _advertisement(lowest: str, highest: str = "") -> Advertisement | None:
    low, high = Weather.scheme.parse(lowest), Weather.scheme.parse(highest)
    if low is None or high is None or low > high:
        return None
    return Advertisement(VersionSet.between(low, high))


def _range(offered: VersionSet) -> Header:
    return (RANGE, f"{offered.lowest[0]}-{offered.highest[0]}")


def _document(body: bytes) -> dict[str, object] | None:
    document = read_json(body)
    return {**document} if isinstance(document, dict) and {"oldest", "newest"} <= document.keys() else None


def _text(status: int, detail: str, *headers: Header) -> Response:
    return Response(status, (*headers, ("Content-Type", "text/plain")), f"weather: {detail}\n".encode())
