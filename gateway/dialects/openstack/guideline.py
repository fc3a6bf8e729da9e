"""The dialect `openstack`: every service with microversions that has no dialect of its own.

It follows the API-SIG guideline. Departures of a service are data in `services`: one profile a service, in
which options of the configuration replace single values. A request may name several services in one header.
Each service of the gateway reads its own item, and its backends get one line with that item alone. The line
is always written, because Cinder answers 400 to a header that does not name it. No service outside the data
may be known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Self
from urllib.parse import unquote

from gateway.core.dialect import (
    Advertisement,
    BackendResponse,
    DefaultVersion,
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
    RequestedKind,
    RequestedVersion,
    Served,
)
from gateway.core.http.message import Header, Response, agreed_text, all_values, normalize_name
from gateway.core.http.request_ids import PLAIN_IDS, RequestIds
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.microversion import (
    ACCEPT_JSON,
    BAD_REQUEST,
    CONTENT_JSON,
    NO_RANGE_IN_HEADERS,
    NOT_FOUND,
    RANGE_KEYS,
    REQUEST_ID,
    STANDARD,
    STANDARD_FOLDED,
    Document,
    MicroversionDialect,
    dump_document,
    is_json,
    load_document,
    parse_microversion,
    parse_requested,
    read_legacy,
    read_range,
    read_range_values,
    read_standard,
    refusal_in_body,
    refusal_text,
    version_entries,
    write_range_headers,
    write_ranges,
    write_standard,
)
from gateway.dialects.openstack.service_origin import OWN_DIALECTS, is_cinder, origin, probed_document
from gateway.dialects.openstack.services import HOW_TO_NAME_IT, OpenStackOptions, ServiceProfile, read_options

ROOT = Endpoint("root", negotiated=False, document=True, versioned_only=True)
NEGOTIATED_ROOT = Endpoint("root", document=True, versioned_only=True)
VERSION = Endpoint("version", document=True, versioned_only=True)
RESOURCE = Endpoint("resource")
ECHOING_RESOURCE = Endpoint("resource", served_always=True)
UNVERSIONED_DOCUMENT = Endpoint("unversioned", negotiated=False, document=True)
UNVERSIONED = Endpoint("unversioned", negotiated=False)

NOTHING_SERVED = Served()
ITEM_MISSING = RequestedVersion(RequestedKind.MALFORMED)
"""Result for a version header that does not name the service: Cinder refuses that without a reason."""

_VERSION_PATH = re.compile(r"/v[0-9]{1,3}(?:\.[0-9]{1,3})?/?", re.ASCII)
_RANGE_IN_TEXT = re.compile(
    r"(?:Minimum is |supported range is |supported version range is: \[)'?([0-9]{1,6}\.[0-9]{1,6})'?"
    r"(?: and maximum is | to |, )'?([0-9]{1,6}\.[0-9]{1,6})",
    re.ASCII,
)
_FAULT_NAMES = {400: "badRequest", 404: "itemNotFound", 413: "overLimit", 503: "serviceUnavailable"}
_MISSING = {
    400: ("Bad Request", "This operation does not exist in the requested API version."),
    404: ("Not Found", NOT_FOUND),
}


class OpenStack(MicroversionDialect):
    """The dialect of any OpenStack service with microversions."""

    name = "openstack"
    Options: ClassVar[type] = OpenStackOptions

    def __init__(self, service_type: str, profile: ServiceProfile) -> None:
        self.service_type = service_type
        self.profile = profile
        self._types = frozenset(profile.service_types)
        self._own_types = self._types | {service_type}
        self._legacy_headers = tuple(normalize_name(name) for name in profile.legacy_headers)
        self._echo_headers = tuple(normalize_name(name) for name in profile.echo_headers)
        self._range_headers = tuple(normalize_name(name) for name in profile.range_headers or ())
        self._mounts = _mounts(profile)
        self._parse = self.scheme.parse if profile.zero_major else parse_microversion
        standard = (STANDARD,) if profile.service_types else ()
        self.reads = frozenset({*self._legacy_headers, *map(normalize_name, standard)})
        # The standard header is removed even where it is not read: it is for other services then.
        self.owned_request = self.reads | {STANDARD_FOLDED}
        self.owned_response = frozenset({*self._echo_headers, *self._range_headers})
        self.vary = (*standard, *profile.legacy_headers)
        self.default_version = DefaultVersion(profile.default_version)
        self.releases = profile.releases
        self.retry_after = profile.retry_after
        ids = profile.request_id_headers
        self.request_ids = RequestIds(REQUEST_ID, ids) if ids else PLAIN_IDS
        self.direct_paths = _direct_paths(profile)

    @classmethod
    def configured(cls, options: object) -> Self:
        """The dialect of one service, made from its options. Raises `ValueError` if these do not fit."""
        assert isinstance(options, OpenStackOptions)
        return cls(*read_options(options))

    @classmethod
    def recognize(cls, answer: ProbeResponse) -> Mapping[str, str] | ProbeFault | None:
        """The service type that the response to a probe names. A list of versions without one is a fault."""
        document = load_document(answer.body)
        if document is None or answer.status not in (200, 300) or not is_json(answer.headers):
            return None
        found = origin(answer.headers, document)
        if found is not None:
            return None if found.service_type in OWN_DIALECTS else {"service_type": found.service_type}
        if is_cinder(document):
            return {"service_type": "volume"}
        ranges = [_entry_range(entry, RANGE_KEYS[1:]) for entry in _entries(document)]
        if not any(ranges):
            return None
        return ProbeFault("document", f"does not say which service of OpenStack it is: {HOW_TO_NAME_IT}")

    # -- 1. the request

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        """The endpoint of a request: `/`, `/vN`, a resource, or a mount without versions."""
        plain = unquote(path) if "%" in path else path
        first, _, below = plain.lstrip("/").partition("/")
        mount = self._mounts.get(first)
        if mount is None:
            return VERSION if _VERSION_PATH.fullmatch(plain) else RESOURCE
        endpoint = mount[1] if below.strip("/") else mount[0]
        # A layer in front of the API answers the preflight of CORS.
        return RESOURCE if method == "OPTIONS" and endpoint is ECHOING_RESOURCE else endpoint

    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        """The requested version, from the standard header or else from the service's own. Empty is absent."""
        text = None
        if self._types:
            first = self.profile.first_item_counts
            text = self._first_item(headers) if first else read_standard(headers, self._types)
        if text is None:
            text = read_legacy(headers, self._legacy_headers) or None
        if text is None and self._types and self.profile.item_required and STANDARD_FOLDED in headers:
            return ITEM_MISSING
        return parse_requested(text, self._parse, self.profile.latest)

    def _first_item(self, headers: Mapping[str, str]) -> str | None:
        """The version text of the first header item that contains the service type: Cinder's rule."""
        for line in all_values(headers, STANDARD_FOLDED):
            for item in line.split(","):
                words = item.split(maxsplit=1)
                if len(words) == 2 and any(service_type in item for service_type in self._types):
                    return item.strip()[len(words[0]) :].strip(" \t")
        return None

    def version_headers(self, version: Version) -> tuple[Header, ...]:
        text = self.scheme.format(version)
        own = tuple((name, text) for name in self.profile.legacy_headers)
        return (*own, write_standard(self.profile.service_types[0], text)) if self._types else own

    # -- 2. local responses

    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        """The response that refuses a version: 406 with the range, or the service's to a malformed one."""
        profile, offered = self.profile, refusal.offered
        refused_code, malformed_code = profile.error_codes or ("", "")
        if refusal.version is None:
            text = refusal.requested.text
            detail = profile.malformed_text.format(text=text, why=_why_malformed(text))
            if refusal.requested == ITEM_MISSING:
                detail = BAD_REQUEST
            return self._error(
                profile.malformed_status,
                profile.malformed_title,
                detail,
                code=malformed_code,
                header_range=offered if profile.range_on_malformed else None,
            )
        response = self._error(
            406,
            profile.refused_title,
            refusal.text or refusal_text(profile.refused_text, refusal.version, offered),
            code=refused_code,
            header_range=offered,
            body_range=offered,
        )
        if not profile.echoes_refused_version:
            return response
        return response.with_headers(*self._write_echoes(refusal.version))

    def error_response(self, error: GatewayError) -> Response:
        """An error response in the service's shape, with the range where its errors carry one."""
        return self._error(error.status, error.title, error.detail, header_range=error.offered)

    def refuse_operation(self, missing: MissingOperation) -> Response:
        """The response for a missing operation: 404 with the served version, which was accepted."""
        status = missing.status or 404
        title, detail = _MISSING[status]
        response = self._error(status, title, detail, header_range=missing.offered)
        return response.with_headers(*self._write_echoes(missing.version))

    def _error(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        code: str = "",
        header_range: VersionSet | None,
        body_range: VersionSet | None = None,
    ) -> Response:
        """An error response in the profile's shape, with the range where it has headers or keys for it."""
        body: dict[str, object]
        if self.profile.error_shape == "fault":
            body = {_FAULT_NAMES.get(status, "computeFault"): {"code": status, "message": detail}}
        elif self.profile.error_shape == "message":
            body = {"error": {"message": detail}}
        else:
            error: dict[str, object] = {"status": status, "title": title, "detail": detail}
            if self.profile.error_codes is not None:
                error |= {"code": f"{self.service_type}.{code}" if code else "", "links": []}
            if body_range is not None:
                error["max_version"] = self.scheme.format(body_range.highest)
                error["min_version"] = self.scheme.format(body_range.lowest)
            body = {"errors": [error]}
        headers = (*self._write_range(header_range), CONTENT_JSON)
        return Response(status, headers, json.dumps(body).encode("ascii"))

    def _write_range(self, offered: VersionSet | None) -> tuple[Header, ...]:
        names = self.profile.range_headers
        return () if names is None or offered is None else write_range_headers(names, offered)

    def _write_echoes(self, version: Version) -> tuple[Header, ...]:
        text = self.scheme.format(version)
        standard = f"{(*self.profile.service_types, self.service_type)[0]} {text}"
        return tuple(
            (name, standard if normalize_name(name) == STANDARD_FOLDED else text)
            for name in self.profile.echo_headers
        )

    def write_request_id(self, response: Response, request_id: str) -> Response:
        """The response with a request id in its headers and in each error of a list, before the range."""
        named = super().write_request_id(response, request_id)
        document = load_document(response.body) if self.profile.request_id_in_errors else None
        if document is None or not isinstance(document.get("errors"), list):
            return named
        errors = [
            {
                **{key: value for key, value in error.items() if key not in RANGE_KEYS},
                "request_id": request_id,
                **{key: value for key, value in error.items() if key in RANGE_KEYS},
            }
            for error in _errors(document)
        ]
        return replace(named, body=json.dumps({"errors": errors}).encode("ascii"))

    # -- 3. the backend's response

    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        """Served version and range in a backend's response. Only the body says what a 406 is about."""
        if endpoint.mount is not None:
            return NOTHING_SERVED
        lowest, highest = self._range_lines(headers)
        version = self._read_echoes(headers)
        return Served(
            version=version,
            advertisement=read_range(agreed_text(lowest), agreed_text(highest)),
            version_refusal=refusal_in_body(endpoint, status),
            has_range=bool(lowest or highest),
            # At `/` nothing is executed: Cinder until 18 names 3.0 there, whatever the request says.
            repeated=version if endpoint == NEGOTIATED_ROOT else None,
        )

    def _range_lines(self, headers: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if not self._range_headers:
            return (), ()
        lowest, highest = self._range_headers
        return all_values(headers, lowest), all_values(headers, highest)

    def _read_echoes(self, headers: Mapping[str, str]) -> Version | None:
        """The served version in the first header that has one. An item for another service does not count."""
        for name in self._echo_headers:
            text = agreed_text(all_values(headers, name))
            if name == STANDARD_FOLDED:
                service, _, text = text.partition(" ")
                if service.lower() not in (self._types or {self.service_type}):
                    continue
            version = self.scheme.parse(text)
            if version is not None:
                return version
        return None

    def read_refusal(self, status: int, body: bytes) -> Advertisement | None:
        """The range in the body of a backend's refusal, in the keys of the guideline or in its text."""
        for error in _errors(load_document(body) or {}):
            advertisement = _entry_range(error, ("max_version",))
            if advertisement is not None:
                return advertisement
            for key in ("message", "detail"):
                text = error.get(key)
                found = _RANGE_IN_TEXT.search(text) if isinstance(text, str) else None
                if found is not None:
                    return read_range(found[1], found[2])
        return None

    def write_response(self, response: BackendResponse) -> tuple[Header, ...]:
        """The headers with served version and offer, as far as the backend sent version and range. A
        successful response of a legacy backend gets both."""
        version, has_range = response.served.version, response.served.has_range
        succeeded = 200 <= response.status < 400
        if response.legacy and succeeded and version is None and response.negotiated is not None:
            version, has_range = response.negotiated, True
        echoes = () if version is None else self._write_echoes(version)
        return (*self._write_range(response.offered), *echoes) if has_range else echoes

    def rewrite_document(
        self, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        """The discovery document with the offer: a list of versions, or one version (Magnum's `/v1`)."""
        document = load_document(body)
        entries = [] if document is None else _entries(document)
        if document is None or not write_ranges(document, offered):
            return None
        if not entries and (endpoint != VERSION or self.profile.index_key not in document):
            return None
        for entry in entries if self.profile.id_is_maximum else ():
            name = entry.get("id")
            if not isinstance(name, str):
                return None
            if self.scheme.parse(name):
                entry["id"] = self.scheme.format(offered.highest)
        return dump_document(document, links)

    # -- 4. probes

    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        """The probe: `GET /`. Range headers count, otherwise the entry with the highest range. Entries
        without any range are those of a legacy server, which has no version for the offer."""
        if not answers:
            return ProbeRequest(path or "/", ACCEPT_JSON)
        answer = answers[0]
        document = probed_document(answer, self._own_types, statuses=(200, 300), expected="200 or 300")
        if isinstance(document, ProbeFault):
            return document
        served = self.read_response(RESOURCE, answer.status, answer.headers)
        if served.has_range:
            return served.advertisement or NO_RANGE_IN_HEADERS
        entries = _entries(document)
        if not entries:
            return ProbeFault("document", "not a list of versions of an OpenStack API")
        keys = self.profile.maximum_keys
        advertised = [found for found in (_entry_range(entry, keys) for entry in entries) if found]
        mounts = self._listed_mounts(entries) if path in (None, "/") else None
        if advertised:
            return replace(max(advertised, key=lambda found: found.versions.highest), mounts=mounts)
        if any(entry.get(key) not in (None, "") for entry in entries for key in ("min_version", *keys)):
            return ProbeFault("range", "no version in the document has a valid range")
        if not all(isinstance(entry.get("id"), str) for entry in entries):
            return ProbeFault("document", "not a list of versions of an OpenStack API")
        return Advertisement(self.legacy_versions, legacy=True, mounts=mounts)

    def _listed_mounts(self, entries: list[Document]) -> frozenset[str] | None:
        """The first path segments without versions in the list at a server's root; None: its API has none."""
        listed = {str(entry.get("id")).partition(".")[0] for entry in entries}
        return self.profile.unversioned_mounts & listed if self.profile.unversioned_mounts else None


def _mounts(profile: ServiceProfile) -> Mapping[str, tuple[Endpoint, Endpoint]]:
    """Endpoints by a path's first segment: one for the path of that segment alone, one for all below it."""
    root = NEGOTIATED_ROOT if profile.root_negotiated else ROOT
    mounts = {"": (root, root)}
    for name in profile.unversioned_mounts:
        mounts[name] = (UNVERSIONED_DOCUMENT._replace(mount=name), UNVERSIONED._replace(mount=name))
    for name in profile.echoing_mounts:
        own = VERSION if _VERSION_PATH.fullmatch(f"/{name}") else ECHOING_RESOURCE
        mounts[name] = (own, ECHOING_RESOURCE)
    return mounts


def _direct_paths(profile: ServiceProfile) -> tuple[DirectPaths, ...]:
    """Paths that an engine may send past the gateway: below mounts, or where no segment may be a version."""
    mounts = [name for name in sorted(profile.echoing_mounts) if name.startswith("v")]
    if mounts:
        return tuple(DirectPaths(f"/{name}/") for name in mounts)
    versions = () if profile.unversioned_mounts else (DirectPaths("/v1/"), DirectPaths("/v2/"))
    besides = tuple(f"/{name.lower()}" for name in sorted(profile.unversioned_mounts))
    return (DirectPaths("/", "A-Za-uw-z0-9_", besides), *versions)


def _why_malformed(text: str) -> str:
    """The reason that Placement gives for a malformed version: Python's error about the first bad part."""
    parts = text.split(".", 1)
    for part in parts:
        if re.fullmatch(r"0|[1-9][0-9]{0,5}", part, re.ASCII) is None:
            return f"invalid literal for int() with base 10: {part!r}"
    return "Version.__new__() missing 1 required positional argument: 'minor'"


def _entries(document: Document) -> list[Document]:
    """The entries of versions in a discovery document; empty: it is no such document."""
    versions = document.get("versions")
    # Keystone has its list in `values`.
    unwrapped = {**document, "versions": versions.get("values")} if isinstance(versions, dict) else document
    entries = version_entries(unwrapped)
    if entries is not None:
        return entries
    return [document] if isinstance(document.get("id"), str) and "links" in document else []


def _errors(document: Document) -> list[Document]:
    """The errors in the body of a response, of any shape: a list of errors, or one under any name."""
    listed = document.get("errors")
    candidates = listed if isinstance(listed, list) else document.values()
    return [candidate for candidate in candidates if isinstance(candidate, dict)]


def _entry_range(entry: Document, maximum_keys: tuple[str, ...]) -> Advertisement | None:
    """The range in an entry or an error. The first of the maximum's keys that is not empty counts."""
    highest = next((entry[key] for key in maximum_keys if entry.get(key)), None)
    return read_range_values(entry.get("min_version"), highest)
