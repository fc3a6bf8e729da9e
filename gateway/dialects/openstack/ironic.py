"""Ironic (service type `baremetal`), Juno to 2026.2: two version headers in requests, three in responses.

The gateway behaves like releases from 25.0: an empty value is absence, the last of several wins, the standard
header beats Ironic's own, and `latest` counts in any case. Backends always get both headers: releases before
25.0 do not read the standard one and would silently execute at 1.1. They always get a number, never `latest`:
releases from 25.0 crash on `latest` when the path ends in `.json`.

The dialect must not treat every 406 as a version refusal. Ironic also answers 406 when a feature is newer
than the requested version, after it has accepted that version. The served version on the response is the
difference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

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
    VersionRefusal,
)
from gateway.core.http.message import Header, Response, agreed_text, all_values, normalize_name
from gateway.core.http.request_ids import RequestIds
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.microversion import (
    ACCEPT_JSON,
    CONTENT_JSON,
    NO_RANGE_IN_HEADERS,
    REQUEST_ID,
    STANDARD,
    STANDARD_FOLDED,
    UNSUPPORTED_MINOR,
    Document,
    Latest,
    MicroversionDialect,
    dump_document,
    load_document,
    objects,
    parse_requested,
    read_legacy,
    read_range,
    read_standard,
    refusal_text,
    release_table,
    without_json,
    write_range_headers,
    write_ranges,
    write_standard,
)
from gateway.dialects.openstack.service_origin import probed_document

SERVICE_TYPE = "baremetal"
_OWN_TYPES = frozenset({SERVICE_TYPE})
VERSION_HEADER = "X-OpenStack-Ironic-API-Version"
RANGE_HEADERS = ("X-OpenStack-Ironic-API-Minimum-Version", "X-OpenStack-Ironic-API-Maximum-Version")
VERSION_FOLDED = normalize_name(VERSION_HEADER)
MINIMUM_FOLDED, MAXIMUM_FOLDED = map(normalize_name, RANGE_HEADERS)

# `/` is not negotiated before 26.1.0, and a version header does nothing but harm there. So it is removed.
ROOT = Endpoint("root", negotiated=False, document=True, versioned_only=True)
V1 = Endpoint("v1", document=True, versioned_only=True)
# Its router sets the headers of every successful response below `/v1`, in all releases since Kilo.
RESOURCE = Endpoint("resource", served_always=True)
# What a layer in front of the router may answer: `/healthcheck` (its path is configurable, and Ironic looks
# up any other first segment below `/v1`), and a preflight of CORS, which is never a document either.
UNCERTAIN = Endpoint("resource")

# By path without trailing slashes and without `.json`, which Ironic ignores.
_ENDPOINTS = {"": ROOT, "/v1": V1}

# Statuses with which newer servers send no version headers. They come from keystonemiddleware (401), routing
# (405), the JSON guard (413), or something in front of the API (502, 504). Responses with 400 and 404 exist
# with and without; most of them come from the API itself, which sends the headers.
_STATUSES_WITHOUT_VERSIONS = frozenset({401, 405, 413, 502, 504})

_UNSUPPORTED_MAJOR = (
    "Mutually exclusive versions requested. Version {version} requested but not supported by this service. "
    "The supported version range is: [{lowest}, {highest}]."
)

RELEASES = release_table(
    {
        "1.6": "kilo 2015.1",
        "1.11": "4.0 4.1",
        "1.14": "liberty 4.2 4.3",
        "1.16": "mitaka 5.0 5.1",
        "1.17": "6.0",
        "1.22": "newton 6.1 6.2 6.3",
        "1.31": "ocata 7.0 8.0",
        "1.34": "pike 9.0 9.1",
        "1.35": "9.2",
        "1.36": "10.0",
        "1.38": "queens 10.1",
        "1.43": "11.0",
        "1.46": "rocky 11.1",
        "1.49": "12.0",
        "1.56": "stein 12.1",
        "1.58": "train 12.2 13.0",
        "1.61": "14.0",
        "1.65": "ussuri 15.0",
        "1.67": "15.1 15.2",
        "1.68": "victoria 16.0 16.1",
        "1.69": "16.2",
        "1.72": "wallaby 17.0 17.1",
        "1.74": "18.0",
        "1.75": "18.1",
        "1.78": "xena 18.2 yoga 19.0 20.0 20.1 20.2",
        "1.79": "21.0",
        "1.80": "zed 21.1 21.2",
        "1.81": "21.3",
        "1.82": "antelope 2023.1 21.4",
        "1.83": "22.0",
        "1.86": "22.1",
        "1.87": "bobcat 2023.2 23.0",
        "1.88": "23.1",
        "1.89": "24.0",
        "1.90": "caracal 2024.1 24.1",
        "1.91": "25.0 26.0",
        "1.93": "dalmatian 2024.2 26.1",
        "1.94": "27.0",
        "1.95": "28.0",
        "1.96": "epoxy 2025.1 29.0",
        "1.99": "30.0 31.0",
        "1.101": "flamingo 2025.2 32.0",
        "1.104": "33.0",
        "1.109": "34.0",
        "1.111": "gazpacho 2026.1 35.0",
        "1.112": "36.0 37.0",
        "1.113": "38.0",
        "1.115": "2026.2 39.0",
    }
)
"""The highest version of each Ironic release. Before 10.0 no server could be pinned; a ceiling can do it."""


class Ironic(MicroversionDialect):
    """The dialect of OpenStack Bare Metal."""

    name = "ironic"

    reads = frozenset({STANDARD_FOLDED, VERSION_FOLDED})
    owned_request = reads
    owned_response = frozenset({VERSION_FOLDED, MINIMUM_FOLDED, MAXIMUM_FOLDED})
    vary: tuple[str, ...] = (STANDARD, VERSION_HEADER)
    written_for: Version | None = Version(1, 1)
    legacy_versions = VersionSet.only(Version(1, 1))
    releases = RELEASES
    # Every python-ironicclient that retries, and Nova's driver with it, raise TypeError at a `Retry-After`.
    # Without one they wait 2 s and retry.
    retry_after = False
    # The second name is the one that Ironic sent before it had the middleware of all services.
    direct_paths: tuple[DirectPaths, ...] = (DirectPaths("/v1/"),)
    request_ids: RequestIds = RequestIds(REQUEST_ID, (REQUEST_ID, "Openstack-Request-Id"))

    # -- 1. the request

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        """The endpoint of a request: `/`, `/v1`, or a resource."""
        if method == "OPTIONS":
            return UNCERTAIN
        if path[:4] == "/v1/" and path[4:5].isalnum():  # nearly every request: nothing to remove before that
            return RESOURCE
        plain = without_json(path)
        return RESOURCE if plain.startswith("/v1/") else _ENDPOINTS.get(plain, UNCERTAIN)

    def operation_path(self, path: str) -> str:
        """The path of an operation without `.json` and with `/v1`, below which Ironic looks up every path."""
        plain = super().operation_path(path)
        first = plain.lstrip("/").partition("/")[0]
        return plain if first in {"", "v1"} else f"/v1{plain}"

    def document_path(self, path: str) -> str:
        return without_json(path) or "/"

    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        """The requested version: from the standard header if it names `baremetal`, else from Ironic's own."""
        text = read_standard(headers, _OWN_TYPES)
        if text is None:
            text = read_legacy(headers, (VERSION_FOLDED,)) or None
        return parse_requested(text, self.scheme.parse, Latest.ANY_CASE)

    def version_headers(self, version: Version) -> tuple[Header, ...]:
        """Both version headers for a backend. Ironic's own is first, because every release reads it."""
        text = self.scheme.format(version)
        return ((VERSION_HEADER, text), write_standard(SERVICE_TYPE, text))

    # -- 2. local responses

    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        """The response that refuses a version: 406 with Ironic's text; no range for a malformed version."""
        if refusal.version is None:
            return _error(406, "Not Acceptable", f"Invalid value for {VERSION_HEADER} header", None)
        offered = refusal.offered
        same_major = refusal.version.major == offered.lowest.major
        template = UNSUPPORTED_MINOR if same_major else _UNSUPPORTED_MAJOR
        text = refusal.text or refusal_text(template, refusal.version, offered)
        return _error(406, "Not Acceptable", text, offered)

    def error_response(self, error: GatewayError) -> Response:
        """An error response in Ironic's shape, with the range once it is known."""
        return _error(error.status, error.title, error.detail, error.offered)

    def refuse_operation(self, missing: MissingOperation) -> Response:
        """The response for a missing operation: 404 from inside the API, with all three headers and the text
        of the newest release."""
        status = missing.status or 404
        inner = {
            "faultcode": "Client",
            "faultstring": "The API is not supported for this version",
            "debuginfo": None,
        }
        served = (VERSION_HEADER, self.scheme.format(missing.version))
        return _wrapped(status, inner, (*write_range_headers(RANGE_HEADERS, missing.offered), served))

    # -- 3. the backend's response

    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        """The versions in a backend's response. A refusal is a 406 with range but *no* served version."""
        served = all_values(headers, VERSION_FOLDED)
        lowest = all_values(headers, MINIMUM_FOLDED)
        highest = all_values(headers, MAXIMUM_FOLDED)
        refused = status == 406 and endpoint.negotiated and bool(lowest and highest) and not served
        return Served(
            version=self.scheme.parse(agreed_text(served)),
            advertisement=read_range(agreed_text(lowest), agreed_text(highest)),
            version_refusal=VersionRefusal.YES if refused else VersionRefusal.NO,
            has_range=bool(lowest or highest),
        )

    def write_response(self, response: BackendResponse) -> tuple[Header, ...]:
        """The headers with served version and offer, as far as the backend sent version and range. A legacy
        backend's response gets all three headers, unless a newer one sends none at that status."""
        version, has_range, status = response.served.version, response.served.has_range, response.status
        if response.legacy and version is None and not has_range:
            if response.negotiated is None or status < 200 or status in _STATUSES_WITHOUT_VERSIONS:
                return ()
            version, has_range = response.negotiated, True
        echo = () if version is None else ((VERSION_HEADER, self.scheme.format(version)),)
        return (*write_range_headers(RANGE_HEADERS, response.offered), *echo) if has_range else echo

    def rewrite_document(
        self, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        """A discovery document with the offer. `/` before 4.3 keeps its shape. `/v1` before 12.0 has no range
        and gets one, so that clients find it everywhere in a mixed fleet."""
        document = load_document(body)
        if document is None or not _is_document(endpoint, document) or not write_ranges(document, offered):
            return None
        if endpoint == V1 and not document.get("version"):
            document["version"] = self._version_object(document, offered, links)
        return dump_document(document, links)

    def _version_object(self, document: Document, offered: VersionSet, links: Links) -> Document:
        """The offer as servers from 12.0 write it into `/v1`, with the link that `document` has to itself."""
        listed = objects(document.get("links")) or []
        own = next((link["href"] for link in listed if link.get("rel") == "self" and "href" in link), None)
        return {
            "id": "v1",
            "links": [{"href": f"{links.backend}/v1/" if own is None else own, "rel": "self"}],
            "status": "CURRENT",
            "min_version": self.scheme.format(offered.lowest),
            "version": self.scheme.format(offered.highest),
        }

    # -- 4. probes

    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        """The probe: `GET /v1`, which is public and has had the range in its headers since Kilo. Only there
        does the lack of headers mean a legacy server (Juno and older): `/` has them since 26.1.0 only."""
        if not answers:
            return ProbeRequest(path or "/v1", ACCEPT_JSON)
        answer = answers[0]
        document = probed_document(answer, _OWN_TYPES)
        if isinstance(document, ProbeFault):
            return document
        served = self.read_response(V1, answer.status, answer.headers)
        if served.has_range:
            return served.advertisement or NO_RANGE_IN_HEADERS
        if document.get("id") != "v1":
            return ProbeFault("document", "neither version headers nor the document of Ironic's v1")
        if "version" in document:
            # Since 12.0 the range is in both. To believe in a legacy server would hold the offer at 1.1.
            return ProbeFault(
                "range", "the document has a range, but the headers have none: something removes them"
            )
        return Advertisement(self.legacy_versions, legacy=True)


def _is_document(endpoint: Endpoint, document: Document) -> bool:
    """Whether a document is what its path has: the list of versions at `/`, or the version at `/v1`."""
    if endpoint == V1:
        return document.get("id") == "v1"
    present = [document[key] for key in ("versions", "default_version") if key in document]
    entries = [entry for value in present for entry in (value if isinstance(value, list) else [value])]
    return endpoint == ROOT and bool(present) and objects(entries) is not None


def _error(status: int, title: str, description: str, offered: VersionSet | None) -> Response:
    inner = {"code": status, "title": title, "description": description}
    headers = () if offered is None else write_range_headers(RANGE_HEADERS, offered)
    return _wrapped(status, inner, headers)


def _wrapped(status: int, inner: Mapping[str, object], headers: tuple[Header, ...]) -> Response:
    """An error response in Ironic's form: a JSON object in a JSON string in a JSON object."""
    body = json.dumps({"error_message": json.dumps(inner)})
    return Response(status, (*headers, CONTENT_JSON), body.encode("ascii"))
