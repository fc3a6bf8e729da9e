"""The dialect `custom`: any other API, as its operator describes it in the configuration.

The options become an `ApiDescription` once, with which this dialect works. It knows no API by its name. It
has no legacy backends: the versions of a backend that cannot advertise them are declared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar, Self
from urllib.parse import unquote

from gateway.core.dialect import (
    NO_HEADERS,
    Advertisement,
    BackendResponse,
    ConfigurationRules,
    DefaultKind,
    DefaultVersion,
    Dialect,
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
    VersionRefusal,
)
from gateway.core.http.json_body import read_json
from gateway.core.http.message import Header as HeaderLine
from gateway.core.http.message import Response, all_values, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.custom.codec import rewrite
from gateway.dialects.custom.json_path import dump
from gateway.dialects.custom.locations import LONGEST_TEXT, HeaderLocation, PathLocation, agreed
from gateway.dialects.custom.option_reader import ApiDescription, read_api
from gateway.dialects.custom.options import CustomOptions
from gateway.dialects.custom.probes import why_none, with_probed_paths
from gateway.dialects.custom.spellings import comparable, without_suffix

RESOURCE = Endpoint("resource")
UNVERSIONED = Endpoint("unversioned", negotiated=False)
_DOCUMENT_METHODS = frozenset({"GET", "HEAD"})
"""Methods that read a document of versions. Others at its path are ordinary operations."""

_WORD = re.compile(r"[A-Za-z][A-Za-z_-]{0,63}", re.ASCII)
"""Pattern for a path segment that is certainly no version."""

_MALFORMED_PREFIX = "!"
"""Prefix that marks the version in a request's target (`Endpoint.version_in_target`) as malformed."""


def _document(path: str) -> Endpoint:
    return Endpoint(f"document {path}", negotiated=False, document=True, versioned_only=True)


class Custom(Dialect):
    """The dialect of an API that its operator describes."""

    name = "custom"
    Options: ClassVar[type] = CustomOptions
    default_version = DefaultVersion(DefaultKind.MINIMUM)

    def __init__(self, api: ApiDescription) -> None:
        self._api = api
        self.scheme = api.scheme
        self.version_match = api.match
        self.vary: tuple[str, ...] = tuple(
            dict.fromkeys(name for location in api.in_headers for name in location.names)
        )
        self.owned_request = frozenset(map(normalize_name, self.vary))
        self.method_override = api.method_override
        self.reads = self.owned_request | frozenset(api.method_override)
        self.owned_response = frozenset(map(normalize_name, api.response_codec.names))
        self.target_has_version = bool(api.in_target)
        self.configuration_rules = ConfigurationRules(
            missing_option=""
            if api.advertisement_codec.has_versions or api.response_codec.advertises
            else "custom.learn: {path: /versions, ...}",
            option_paths=api.options.paths,
            warnings=api.warnings,
            notes=api.notes,
            says_default=True,
        )
        self._path = next((each for each in api.in_target if isinstance(each, PathLocation)), None)
        self._sends_header = any(location.sent for location in api.in_headers)
        self._sent_in_target = tuple(location for location in api.in_target if location.sent)
        self._suffixes = api.suffixes
        # A server that takes another spelling for such a path must not show one backend's own range there.
        self._documents = {comparable(path, self._suffixes): _document(path) for path, _ in api.documents}
        self._versioned_documents = {
            plain: self._documents[plain]
            for plain in (comparable(path, self._suffixes) for path in api.versioned_documents)
        }
        # Exact, unlike documents: a look-alike may be another resource, where a server reads a version.
        self._unversioned = frozenset(api.options.unversioned)
        self._prefixes = tuple(path + "/" for path in self._unversioned if path != "/")
        self._has_known_paths = bool(self._unversioned or self._documents)
        self.direct_paths = self._direct_paths()

    @classmethod
    def configured(cls, options: object) -> Self:
        """The dialect of one service, made from its options. Raises `OptionsError` with every mistake."""
        assert isinstance(options, CustomOptions)
        return cls(with_probed_paths(read_api(options)))

    def _direct_paths(self) -> tuple[DirectPaths, ...]:
        """Paths that an engine may send past the gateway: if headers suffice, all that are negotiated."""
        if self._api.in_target or not all(isinstance(one, HeaderLocation) for one in self._api.in_headers):
            return ()
        known = (*self._documents, *(path.lower() for path in self._unversioned))
        besides = {f"/{path.lstrip('/').partition('/')[0].partition('.')[0]}" for path in known} - {"/"}
        return (DirectPaths("/", besides=tuple(sorted(besides))),)

    # -- 1. the request

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        """The endpoint of a request: a document, a path without versions, or a resource with its version."""
        if self._has_known_paths:
            plain = comparable(path, self._suffixes)
            if plain in self._documents and method in _DOCUMENT_METHODS:
                return self._documents[plain]
            if self._unversioned and self._is_unversioned(unquote(path) if "%" in path else path):
                return UNVERSIONED
        locations = self._api.in_target
        if not locations:
            return RESOURCE
        if len(locations) == 1:
            requested = locations[0].read(path, query)
        else:
            requested = agreed(location.read(path, query) for location in locations)
        if requested.kind is not RequestedKind.MALFORMED and not self._reaches_backends(path):
            return UNVERSIONED
        version_in_target = self._version_in_target(requested)
        if requested.kind is RequestedKind.MALFORMED and self._is_probed(method, path, query):
            return UNVERSIONED
        if self._versioned_documents and self._path is not None and method in _DOCUMENT_METHODS:
            without_version = self._path.without_version(path)
            document = self._versioned_documents.get(comparable(without_version, self._suffixes))
            if document is not None:
                return document._replace(negotiated=True, version_in_target=version_in_target)
        return (
            RESOURCE
            if version_in_target is None
            else Endpoint("resource", version_in_target=version_in_target)
        )

    def _is_unversioned(self, path: str) -> bool:
        """Whether a decoded path is one of those without versions. A suffix at its end does not count."""
        suffix = next((each for each in self._suffixes if path.endswith(each)), "")
        plain = path.removesuffix(suffix)
        return plain in self._unversioned or plain.startswith(self._prefixes)

    def _is_probed(self, method: str, path: str, query: str) -> bool:
        """Whether probes request exactly this target, without anything else that looks like a version."""
        others = (location for location in self._api.in_target if location is not self._path)
        return (
            path in self._api.probed_paths
            and method in _DOCUMENT_METHODS
            and all(location.read(path, query).kind is RequestedKind.NONE for location in others)
        )

    def _version_in_target(self, requested: RequestedVersion) -> str | None:
        """The version in a request's target as a short text: clients choose it, and it is in a cache key."""
        match requested.kind:
            case RequestedKind.NONE:
                return None
            case RequestedKind.EXACT:
                assert requested.version is not None
                return self.scheme.format(requested.version)
            case RequestedKind.LATEST:
                return requested.text
            case _:
                return _MALFORMED_PREFIX + requested.text[:LONGEST_TEXT]

    def _reaches_backends(self, path: str) -> bool:
        """Whether a version could be sent to backends in a request with this path."""
        return self._sends_header or any(location.covers(path) for location in self._sent_in_target)

    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        """The version on which all places in a request agree that hold one. Two that differ are malformed."""
        api = self._api
        all_requested = [location.read(headers) for location in api.in_headers]
        if endpoint.version_in_target is not None:
            all_requested.insert(api.target_rank, self._read_in_target(endpoint.version_in_target))
        return agreed(all_requested)

    def _read_in_target(self, text: str) -> RequestedVersion:
        if text.startswith(_MALFORMED_PREFIX):
            return RequestedVersion(RequestedKind.MALFORMED, text=text.removeprefix(_MALFORMED_PREFIX))
        return self._api.syntax.read(text)

    def write_request(
        self, endpoint: Endpoint, version: Version, headers: Mapping[str, str] = NO_HEADERS
    ) -> tuple[HeaderLine, ...]:
        """The request headers with the version, where backends read it; the other headers lose it."""
        return self._lines(headers, self.scheme.format(version))

    def without_version(self, headers: Mapping[str, str]) -> tuple[HeaderLine, ...]:
        """`Accept` and `Content-Type` of a request without the parameter that holds the version."""
        return self._lines(headers, None)

    def _lines(self, headers: Mapping[str, str], text: str | None) -> tuple[HeaderLine, ...]:
        return tuple(
            line
            for location in self._api.in_headers
            for line in location.write(headers, text if location.sent else None)
        )

    def operation_path(self, path: str) -> str:
        """The path of a request without the version's segment and without a suffix."""
        plain = path if self._path is None else self._path.without_version(path)
        return without_suffix(plain, self._suffixes) if self._suffixes else plain

    def document_path(self, path: str) -> str:
        return comparable(path, self._suffixes)

    def write_target(self, endpoint: Endpoint, target: str, version: Version) -> str:
        """The request target with the version in every part that backends read; the other parts lose it."""
        path, question_mark, query = target.partition("?")
        ending = "" if query else question_mark  # a `?` without a query stays
        text = self.scheme.format(version)
        for location in self._api.in_target:
            path, query = location.write(path, query, text if location.sent else None)
        return f"{path}?{query}" if query else path + ending

    # -- 2. responses made by the gateway

    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        """The response that refuses a version: as the operator wrote it, with the offer in range headers."""
        options = self._api.options.refusal
        status = options.malformed_status if refusal.version is None else options.status
        hint = "" if refusal.version is not None else self._unversioned_hint(endpoint)
        response = self._api.error_bodies.write_refusal(refusal, status, hint)
        return response.with_headers(*self._api.response_codec.write(None, refusal.offered))

    def _unversioned_hint(self, endpoint: Endpoint) -> str:
        """A hint on how to let a path pass that has a word where a version would be."""
        text = (endpoint.version_in_target or "").removeprefix(_MALFORMED_PREFIX)
        if self._path is None or not self._path.prefix or _WORD.fullmatch(text) is None:
            return ""
        listed = f"unversioned: [{self._path.prefix}/{text}]"
        return f" If this path has no version, the configuration of the gateway must say so: {listed}."

    def error_response(self, error: GatewayError) -> Response:
        """The response to an error but a refusal, as the operator wrote it, with the offer if known."""
        range_lines = self._api.response_codec.write(None, error.offered)
        return self._api.error_bodies.write_error(error).with_headers(*range_lines)

    def refuse_operation(self, missing: MissingOperation) -> Response:
        """The response for a missing operation, with the served version: otherwise a 404 could look like a
        refusal of the version."""
        lines = self._api.response_codec.write(missing.version, missing.offered)
        return self._api.error_bodies.write_error(missing.error).with_headers(*lines)

    # -- 3. the backend's response

    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        """Served version and range of a backend's response. With a refusal's status it refuses the version if
        it has the range but lacks the served version of the API, or if its body says so."""
        api, codec = self._api, self._api.response_codec
        advertisement = codec.read_advertisement(headers)
        refusal = VersionRefusal.NO
        if endpoint.negotiated and status == api.options.refusal.status:
            if (
                advertisement is not None
                and codec.served
                and not all_values(headers, normalize_name(codec.served))
            ):
                refusal = VersionRefusal.YES
            elif api.refusal_codec.has_versions:
                refusal = VersionRefusal.READ_BODY
        return Served(codec.read_served(headers), advertisement, refusal, codec.has_range(headers))

    def read_refusal(self, status: int, body: bytes) -> Advertisement | None:
        """The versions in the body of a backend's refusal, where the options name them."""
        versions = self._api.refusal_codec.read(read_json(body))
        return Advertisement(versions) if versions else None

    def write_response(self, response: BackendResponse) -> tuple[HeaderLine, ...]:
        """The headers with served version and offer, as far as the backend sent version and range. If clients
        must see the served version, the negotiated one stands in for it."""
        api, served, final = self._api, response.served, response.status >= 200
        version = served.version
        if version is None and final and (response.legacy or api.served_always):
            version = response.negotiated
        with_range = served.has_range or (final and (response.legacy or api.options.reply.always))
        return api.response_codec.write(version, response.offered if with_range else None)

    def rewrite_document(
        self, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        codecs = [
            codec
            for path, codec in self._api.documents
            if self._documents[comparable(path, self._suffixes)].name == endpoint.name
        ]
        document = read_json(body)
        return dump(document) if rewrite(document, codecs, offered, links) else None

    # -- 4. probes

    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        """The probe of a backend: one request, for a document of versions or for headers of the response."""
        api, learn = self._api, self._api.options.learn
        if not answers:
            return ProbeRequest(path or learn.path, (("Accept", learn.content_type),))
        answer = answers[0]
        if answer.status not in learn.statuses:
            expected = ", ".join(map(str, learn.statuses))
            return ProbeFault("status", f"answered {answer.status} where {expected} was expected")
        if not api.advertisement_codec.has_versions:
            return api.response_codec.read_advertisement(answer.headers) or ProbeFault(
                "range", "the version headers of the answer do not show which versions are served"
            )
        kinds = {
            line.partition(";")[0].strip().lower() for line in all_values(answer.headers, "content-type")
        }
        if kinds != {learn.content_type}:
            return ProbeFault("document", f"the answer is not of the type {learn.content_type}")
        versions = api.advertisement_codec.read(read_json(answer.body))
        if not versions:
            return ProbeFault("range", why_none(api, read_json(answer.body)))
        return Advertisement(versions)
