"""Senlin (service type `clustering`), Mitaka to 2023.2: one header, which many responses lack.

`OpenStack-API-Version: clustering X.Y` is the only header that Senlin reads. Only responses of a resource
controller carry a served version: errors do not, successes that are raised like errors do not, and neither
does `/v1` without a slash. So the versions of a backend are learned from the document at `/` and from the
text of a refusal.

The dialect must not take a 400 `MethodVersionNotFound` for a refusal of the version. The backend has accepted
the version, and refuses one method; its response is passed on unchanged.
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
from gateway.core.http.message import Header, Response, agreed_text, all_values
from gateway.core.http.request_ids import RequestIds
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.microversion import (
    ACCEPT_JSON,
    BAD_REQUEST,
    CONTENT_JSON,
    MICROVERSION,
    NOT_FOUND,
    REQUEST_ID,
    STANDARD,
    STANDARD_FOLDED,
    Document,
    Latest,
    MicroversionDialect,
    dump_document,
    load_document,
    parse_microversion,
    parse_requested,
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

SERVICE_TYPE = "clustering"
_OWN_TYPES = frozenset({SERVICE_TYPE})
ACCEPT = "accept"

# The list of versions, whatever the headers say. Its status is 300.
ROOT = Endpoint("root", negotiated=False, document=True, versioned_only=True)
# Senlin negotiates before it makes this document. Only with a slash at the end it names the served version.
V1 = Endpoint("v1", document=True, versioned_only=True)
# What controllers answer: they name the served version on every success.
RESOURCE = Endpoint("resource", served_always=True)
# Some successes are raised like errors, and those never have the header: 204 after most DELETEs, and
# whatever changes a receiver or an action. `_method` in a query replaces the method. A preflight of CORS does
# not reach the API.
UNCERTAIN = Endpoint("resource")
# Any other path is 404, or the list again (300) for a client that accepts `*/*`, unless a media type of
# `Accept` selects the API.
CHOICES = Endpoint("choices", document=True, versioned_only=True, choices=True)

_MOUNTS = frozenset({"v1", "v1.0", "v1."})  # as the pattern of Senlin's middleware has it
_UNCERTAIN_METHODS = frozenset({"DELETE", "OPTIONS"})
_UNCERTAIN_RESOURCES = frozenset({"receivers", "actions"})

_DOUBLED_V1 = re.compile(r"/v1(?:\.0)?/v1/?\Z")
_REFUSED_RANGE = re.compile(r"Minimum is '([0-9.]{1,20})' and maximum is '([0-9.]{1,20})'", re.ASCII)
_ZERO_QUALITY = re.compile(r"q=0(?:\.0*)?\Z", re.IGNORECASE)

_UNSUPPORTED = (
    "Version '{version}' is not supported by the API. Minimum is '{lowest}' and maximum is '{highest}'."
)
_TEXT: Header = ("Content-Type", "text/plain; charset=UTF-8")

RELEASES = release_table(
    {
        "1.2": "newton 2.0",
        "1.5": "ocata 3.0",
        "1.7": "pike 4.0",
        "1.9": "queens 5.0",
        "1.10": "rocky 6.0",
        "1.12": "stein 7.0 train 8.0",
        "1.14": "ussuri 9.0 victoria 10.0 wallaby 11.0 xena 12.0 yoga 13.0 zed 14.0 antelope 2023.1 15.0 "
        "bobcat 2023.2 16.0",
    }
)
"""The highest version of each Senlin release. Mitaka (1.0) does not know versions."""


class Senlin(MicroversionDialect):
    """The dialect of OpenStack Clustering."""

    name = "senlin"

    reads = frozenset({STANDARD_FOLDED, ACCEPT})
    owned_request = frozenset({STANDARD_FOLDED})
    owned_response = frozenset({STANDARD_FOLDED})
    vary: tuple[str, ...] = (STANDARD,)
    written_for: Version | None = Version(1, 0)
    legacy_versions = VersionSet.only(Version(1, 0))
    releases = RELEASES
    direct_paths: tuple[DirectPaths, ...] = (DirectPaths("/v1/"),)
    request_ids: RequestIds = RequestIds(REQUEST_ID, (REQUEST_ID,))

    # -- 1. the request

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        """The endpoint of a request by its first segment: empty or `versions` is the list, `v1` the API."""
        plain = unquote(path) if "%" in path else path
        mount, _, below = plain[1:].partition("/")
        if mount not in _MOUNTS:
            return ROOT if mount in ("", "versions") else CHOICES
        if not below:
            return V1
        if "_method" in query or method in _UNCERTAIN_METHODS:
            return UNCERTAIN
        return UNCERTAIN if method != "GET" and below.partition("/")[0] in _UNCERTAIN_RESOURCES else RESOURCE

    def operation_path(self, path: str) -> str:
        """The path of an operation without `.json`, always with `/v1`, even if only `Accept` names that."""
        plain = super().operation_path(path)
        mount, slash, below = plain[1:].partition("/")
        return f"/v1{slash}{below}" if mount in _MOUNTS else f"/v1{plain}"

    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        """The requested version: the last item that names `clustering`. Senlin has no header of its own."""
        text = read_standard(headers, _OWN_TYPES)
        return parse_requested(text, parse_microversion, Latest.ANY_CASE)

    def version_headers(self, version: Version) -> tuple[Header, ...]:
        return (_version_header(version),)

    # -- 2. local responses

    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        """The response that refuses a version, without version headers: 406, or 400 if it is malformed."""
        if refusal.version is None:
            return _malformed(refusal.requested.text, as_json=_accepts_json(headers))
        message = refusal.text or refusal_text(_UNSUPPORTED, refusal.version, refusal.offered)
        return _error(406, "Not Acceptable", message, "InvalidGlobalAPIVersion", BAD_REQUEST)

    def error_response(self, error: GatewayError) -> Response:
        return _error(error.status, error.title, error.detail, error.title.replace(" ", ""), error.detail)

    def refuse_operation(self, missing: MissingOperation) -> Response:
        """The response for a missing operation: 400 as Senlin sends it, or 404 as its guide says."""
        message = f"API version '{self.scheme.format(missing.version)}' is not supported on this method."
        if missing.status == 404:
            return _error(404, "Not Found", message, "MethodVersionNotFound", NOT_FOUND)
        return _error(400, "Bad Request", message, "MethodVersionNotFound", BAD_REQUEST)

    # -- 3. the backend's response

    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        """The served version in a backend's response, if any. Only the body says what a 406 is about."""
        service, _, text = agreed_text(all_values(headers, STANDARD_FOLDED)).partition(" ")
        return Served(
            version=self.scheme.parse(text) if service.lower() == SERVICE_TYPE else None,
            version_refusal=refusal_in_body(endpoint, status),
        )

    def read_refusal(self, status: int, body: bytes) -> Advertisement | None:
        """The range in the message of an `InvalidGlobalAPIVersion`, which is how Senlin refuses a version."""
        document = load_document(body)
        error = document.get("error") if document is not None else None
        if not isinstance(error, dict) or error.get("type") != "InvalidGlobalAPIVersion":
            return None
        message = error.get("message")
        found = _REFUSED_RANGE.search(message) if isinstance(message, str) else None
        return read_range(found[1], found[2]) if found is not None else None

    def write_response(self, response: BackendResponse) -> tuple[Header, ...]:
        """The header with the served version as the backend sent it, or as a newer one would have sent it."""
        version = response.served.version
        if version is None and response.legacy and 200 <= response.status < 400:
            version = response.negotiated
        return () if version is None else (_version_header(version),)

    def rewrite_document(
        self, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        """The discovery document with the offer, and with self links that lead somewhere: from 9.0 on that of
        `/v1` ends in `/v1/v1`."""
        document = load_document(body)
        entries = None if document is None else version_entries(document)
        if document is None or entries is None or not write_ranges(document, offered):
            return None
        for entry in entries if endpoint == V1 else ():
            _correct_self_links(entry)
        return dump_document(document, links)

    # -- 4. probes

    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        """The probe: `GET /`, which is public. An entry without the keys of a range is that of Mitaka."""
        if not answers:
            return ProbeRequest(path or "/", ACCEPT_JSON)
        document = probed_document(answers[0], _OWN_TYPES, statuses=(200, 300), expected="300")
        if isinstance(document, ProbeFault):
            return document
        entries = version_entries(document) or []
        own = [entry for entry in entries if entry.get("id") == "1.0"]
        if len(own) != 1:
            return ProbeFault("document", "not the list of versions of a Senlin API")
        if own[0].keys().isdisjoint(("min_version", "max_version")):
            return Advertisement(self.legacy_versions, legacy=True)
        return read_range_values(own[0].get("min_version"), own[0].get("max_version")) or ProbeFault(
            "range", "the versions in the document do not make a range from a minimum up to a maximum"
        )


def _version_header(version: Version) -> Header:
    return write_standard(SERVICE_TYPE, MICROVERSION.format(version))


def _correct_self_links(entry: Document) -> None:
    """Remove the second `/v1` from the self links of a document's entry, in place."""
    links = entry.get("links")
    for link in links if isinstance(links, list) else ():
        if isinstance(link, dict) and link.get("rel") == "self" and isinstance(link.get("href"), str):
            link["href"] = _DOUBLED_V1.sub("/v1", link["href"])


def _accepts_json(headers: Mapping[str, str]) -> bool:
    """Whether a request's `Accept` names JSON. Neither `*/*` nor an absent header does."""
    for line in all_values(headers, ACCEPT):
        for item in line.split(","):
            media_type, *parameters = (part.strip() for part in item.split(";"))
            if media_type.lower() == "application/json" and not any(map(_ZERO_QUALITY.match, parameters)):
                return True
    return False


def _malformed(text: str, *, as_json: bool) -> Response:
    """A 400 response as the framework below Senlin sends it, in one of its two shapes."""
    fault = f"API Version String '{text}' is of invalid format. It must be of format 'major.minor'."
    if as_json:
        body = {
            "message": f"{BAD_REQUEST}<br /><br />\n{fault}\n\n",
            "code": "400 Bad Request",
            "title": "Bad Request",
        }
        return Response(400, (CONTENT_JSON,), json.dumps(body).encode("ascii"))
    return Response(400, (_TEXT,), f"400 Bad Request\n\n{BAD_REQUEST}\n\n {fault}  ".encode())


def _error(status: int, title: str, message: str, kind: str, explanation: str) -> Response:
    body = {
        "code": status,
        "error": {"code": status, "message": message, "type": kind},
        "explanation": explanation,
        "title": title,
    }
    return Response(status, (CONTENT_JSON,), json.dumps(body).encode("ascii"))
