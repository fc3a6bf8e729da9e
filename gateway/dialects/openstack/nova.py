"""Nova (service type `compute`), all releases to 2026.2: two version headers, in requests and in responses.

The gateway behaves like releases from 14 (Newton): the last of several wins, the standard header beats Nova's
own, `latest` counts in lower case only, and an empty value is malformed. Backends always get both headers
with a number: releases before 14 read only their own, and accept only one value there.

Versions have a meaning below `/v2.1` only. Everywhere else Nova ignores them, so the gateway removes them, in
both directions. There are no range headers: the range is in documents and in the text of a 406.

The dialect must not take an echo for the version that was executed (a 406 echoes the version that it
refuses), nor the lack of an echo for a legacy backend (400, 401 and the 404 of routing never have one).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import unquote

from gateway.core.dialect import (
    Advertisement,
    BackendResponse,
    DirectPaths,
    Endpoint,
    GatewayError,
    Links,
    MissingOperation,
    ProbeFault,
    ProbeRequest,
    ProbeResponse,
    ProbeStep,
    Refusal,
    RequestedVersion,
    Served,
)
from gateway.core.http.message import Header, Response, agreed_text, all_values, normalize_name
from gateway.core.http.request_ids import RequestIds
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.microversion import (
    ACCEPT_JSON,
    BAD_REQUEST,
    MALFORMED,
    NOT_FOUND,
    REQUEST_ID,
    STANDARD,
    STANDARD_FOLDED,
    UNSUPPORTED,
    Document,
    Latest,
    MicroversionDialect,
    dump_document,
    load_document,
    objects,
    parse_microversion,
    parse_requested,
    read_legacy,
    read_range,
    read_range_values,
    read_standard,
    refusal_in_body,
    refusal_text,
    release_table,
    version_entries,
    write_ranges,
    write_standard,
)
from gateway.dialects.openstack.service_origin import probed_document

SERVICE_TYPE = "compute"
_OWN_TYPES = frozenset({SERVICE_TYPE})
NOVA_HEADER = "X-OpenStack-Nova-API-Version"
NOVA_FOLDED = normalize_name(NOVA_HEADER)
_CONTENT_JSON: Header = ("Content-Type", "application/json; charset=UTF-8")

ROOT = Endpoint("root", negotiated=False, document=True, versioned_only=True)
V2_1 = Endpoint("v2.1", document=True, versioned_only=True)
# Its resource layer adds both headers to everything that it answers, in all releases since Kilo.
RESOURCE = Endpoint("resource", versioned_only=True, served_always=True)
# A layer in front of it answers the preflight of CORS.
PREFLIGHT = Endpoint("resource", versioned_only=True)
# The API from before microversions: the one part that legacy members have. Newer members have it, too.
V2 = Endpoint("v2", negotiated=False, document=True)
LEGACY = Endpoint("legacy", negotiated=False)
# A mount until Kilo only. Later servers answer 300 below it, with links that must be rewritten.
V1_1 = Endpoint("v1.1", negotiated=False, document=True)
BELOW_V1_1 = V1_1._replace(choices=True)
# Nova answers 300 to a path below no mount, unless a media type with `;version=2.1` selects the API. Headers
# do not decide what an endpoint is, so the version is removed there. `write_response` still says what was
# executed.
CHOICES = Endpoint("choices", negotiated=False, document=True, versioned_only=True, choices=True)

# By the first segment: the mount's own document, and everything below it.
_MOUNTS = {"v2.1": (V2_1, RESOURCE), "v2": (V2, LEGACY), "v1.1": (V1_1, BELOW_V1_1), "": (ROOT, ROOT)}

_REFUSED_VERSION = re.compile(
    r"Version ([0-9]{1,6}\.[0-9]{1,6}) is not supported by the API\. "
    r"Minimum is ([0-9]{1,6}\.[0-9]{1,6}) and maximum is ([0-9]{1,6}\.[0-9]{1,6})\."
)

_FAULT_NAMES: Mapping[int, str] = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}
"""Key in the body of a Nova error by status; for 406 and every other status it is `computeFault`."""

_MISSING: Mapping[int, str] = {400: BAD_REQUEST, 404: NOT_FOUND}

# Responses to a probe of `/` that say that nothing is there, and nothing about versions: Nova may be behind a
# prefix under which only the mounts exist.
_NO_ROOT = frozenset({401, 403, 404, 405, 410})

RELEASES = release_table(
    {
        "2.3": "kilo 2015.1",
        "2.12": "liberty 12",
        "2.25": "mitaka 13",
        "2.38": "newton 14",
        "2.42": "ocata 15",
        "2.53": "pike 16",
        "2.60": "queens 17",
        "2.65": "rocky 18",
        "2.72": "stein 19",
        "2.79": "train 20",
        "2.87": "ussuri 21 victoria 22",
        "2.88": "wallaby 23",
        "2.90": "xena 24 yoga 25",
        "2.93": "zed 26",
        "2.95": "antelope 2023.1 27 bobcat 2023.2 28",
        "2.96": "caracal 2024.1 29 dalmatian 2024.2 30",
        "2.100": "epoxy 2025.1 31 flamingo 2025.2 32",
        "2.103": "gazpacho 2026.1 33",
        "2.104": "2026.2 34",
    }
)
"""The highest version of each Nova release. A Nova server cannot be pinned; a ceiling here pins the fleet."""


class Nova(MicroversionDialect):
    """The dialect of OpenStack Compute."""

    name = "nova"

    reads = frozenset({STANDARD_FOLDED, NOVA_FOLDED})
    owned_request = reads
    owned_response = reads
    vary: tuple[str, ...] = (STANDARD, NOVA_HEADER)
    vary_separately = True
    # v2.0 is another API beside the microversions, not the lowest of them: it has no version for the offer.
    written_for: Version | None = Version(2, 1)
    legacy_versions = VersionSet()
    releases = RELEASES
    direct_paths: tuple[DirectPaths, ...] = (DirectPaths("/v2.1/"),)
    request_ids: RequestIds = RequestIds(REQUEST_ID, (REQUEST_ID, "X-Compute-Request-Id"))

    # -- 1. the request

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        """The endpoint of a request by its first segment, for every method: Nova sends documents even for
        POST. Repeated slashes count as one, because some servers in front of Nova merge them."""
        plain = unquote(path) if "%" in path else path
        first, _, below = plain.lstrip("/").partition("/")
        mount = _MOUNTS.get(first)
        if mount is None:
            return CHOICES
        endpoint = mount[1] if below.strip("/") else mount[0]
        return PREFLIGHT if method == "OPTIONS" and endpoint is RESOURCE else endpoint

    def operation_path(self, path: str) -> str:
        """The path of an operation without `.json`, and without `.xml`, which routers read until Ocata."""
        return super().operation_path(path.rstrip("/").removesuffix(".xml"))

    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        """The requested version, from the standard header or else from Nova's own. Empty is malformed."""
        text = read_standard(headers, _OWN_TYPES)
        if text is None:
            text = read_legacy(headers, (NOVA_FOLDED,))
        return parse_requested(text, parse_microversion, Latest.EXACT)

    def version_headers(self, version: Version) -> tuple[Header, ...]:
        return _version_headers(self.scheme.format(version))

    # -- 2. local responses

    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        """The response that refuses a version: 406 that echoes it and names the range; 400 if malformed."""
        if refusal.version is None:
            return _fault(400, MALFORMED.format(text=refusal.requested.text))
        message = refusal.text or refusal_text(UNSUPPORTED, refusal.version, refusal.offered)
        return _fault(406, message, _version_headers(self.scheme.format(refusal.version)))

    def error_response(self, error: GatewayError) -> Response:
        """An error response in Nova's shape. It names no range, because Nova has no headers for one."""
        return _fault(error.status, error.detail)

    def refuse_operation(self, missing: MissingOperation) -> Response:
        """The response for a missing operation: 404, with an echo as the only sign of a version."""
        status = missing.status or 404
        return _fault(status, _MISSING[status], _version_headers(self.scheme.format(missing.version)))

    # -- 3. the backend's response

    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        """The version that a response echoes. A 406 executed nothing; only its body says what it is about."""
        version = _read_echoes(headers)
        return Served(
            version=None if status == 406 else version,
            version_refusal=refusal_in_body(endpoint, status),
            text="" if version is None else self.scheme.format(version),
        )

    def read_refusal(self, status: int, body: bytes) -> Advertisement | None:
        """The range in the text of a backend's refusal. It must not contain the refused version."""
        fault = (load_document(body) or {}).get("computeFault")
        message = fault.get("message") if isinstance(fault, dict) else None
        match = _REFUSED_VERSION.fullmatch(message) if isinstance(message, str) else None
        if status != 406 or match is None:
            return None
        advertisement, refused = read_range(match[2], match[3]), self.scheme.parse(match[1])
        if advertisement is None or refused is None or refused in advertisement.versions:
            return None
        return advertisement

    def write_response(self, response: BackendResponse) -> tuple[Header, ...]:
        """Both version headers for a client if the backend sent one at least, and never below `/v2`.
        Without an echo the backend may have executed nothing."""
        text = response.served.text
        return _version_headers(text) if text and response.endpoint not in (V2, LEGACY) else ()

    def rewrite_document(
        self, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        """A discovery document with the offer: a list, one version, or 300 choices. Only v2.1 has a range."""
        document = load_document(body) if endpoint.document else None
        if document is None or not write_ranges(document, offered):
            return None
        if version_entries(document) is None and objects(document.get("choices")) is None:
            return None
        return dump_document(document, links)

    # -- 4. probes

    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        """The probe: `GET /`, else `GET /v2.1/`, which needs a token until 20 (Train): `probe.headers` may
        carry one. A legacy server lists v2.0 and no range of v2.1."""
        if not answers:
            return ProbeRequest(path or "/", ACCEPT_JSON)
        answer = answers[-1]
        if path is None and len(answers) == 1 and answer.status in _NO_ROOT:
            return ProbeRequest("/v2.1/", ACCEPT_JSON)
        if answer.status == 401:
            return ProbeFault("unauthorized", "needs a token to show its versions: see probe.headers")
        document = probed_document(answer, _OWN_TYPES)
        if isinstance(document, ProbeFault):
            return document
        entries = version_entries(document) or []
        current = [entry for entry in entries if entry.get("id") == "v2.1"]
        if len(current) == 1 and not _is_experiment(current[0]):
            return read_range_values(current[0].get("min_version"), current[0].get("version")) or ProbeFault(
                "range", "the versions of v2.1 do not make a range from a minimum up to a maximum"
            )
        if len(current) > 1 or all(entry.get("id") != "v2.0" for entry in entries):
            return ProbeFault("document", "not a document with the versions of Nova")
        return Advertisement(self.legacy_versions, legacy=True)


def _is_experiment(entry: Document) -> bool:
    """Whether the entry v2.1 in a document has no range: before Kilo it was an experiment."""
    return all(entry.get(key) in (None, "") for key in ("min_version", "version"))


def _version_headers(text: str) -> tuple[Header, Header]:
    return (write_standard(SERVICE_TYPE, text), (NOVA_HEADER, text))


def _read_echoes(headers: Mapping[str, str]) -> Version | None:
    """The version on which all version headers of a response agree; None: there is none, or they differ."""
    standard, own = all_values(headers, STANDARD_FOLDED), all_values(headers, NOVA_FOLDED)
    versions = {parse_microversion(agreed_text(own))} if own else set()
    if standard:
        service, _, text = agreed_text(standard).partition(" ")
        versions.add(parse_microversion(text) if service == SERVICE_TYPE else None)
    return versions.pop() if len(versions) == 1 else None


def _fault(status: int, message: str, headers: tuple[Header, ...] = ()) -> Response:
    body = {_FAULT_NAMES.get(status, "computeFault"): {"code": status, "message": message}}
    return Response(status, (*headers, _CONTENT_JSON), json.dumps(body).encode("ascii"))
