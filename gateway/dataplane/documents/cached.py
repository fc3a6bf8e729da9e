"""Cached discovery documents, for the time when no backend can be reached (stale-if-error, RFC 5861;
semantics, Responding).

The cache has what the backend sent. The client's document is made from it each time, with the present offer
and links that this client can follow. While a backend can be reached, nothing is answered from here.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias, final

from gateway.core.decision.decision import DOCUMENT_METHODS, DocumentKey, NegotiationResult, document_key
from gateway.core.decision.response import vary_lines
from gateway.core.dialect import BackendResponse, Endpoint, Links, Served
from gateway.core.fleet.probed_document import CREDENTIALS, ProbedDocument
from gateway.core.http.message import Header, Response, all_values, as_mapping, fields_named
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Version
from gateway.dataplane.http1.fields import OWS
from gateway.dataplane.local_responses.answers import LocalAnswer
from gateway.dataplane.local_responses.proxy_status import LocalReason

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.fleet.backend import Backend, Member
    from gateway.dataplane.documents.rewrite_cache import RewriteCache
    from gateway.dataplane.http1.request_head import RequestHead
    from gateway.dataplane.http1.response_head import ResponseHead

MAX_DOCUMENTS: Final = 64
MAX_SIZE: Final = 2 * 1024 * 1024
"""Maximum bytes of all cached documents. Real ones have some kilobytes, but clients choose the targets."""
MAX_TARGET: Final = 512
"""Maximum characters of a cached document's target."""

_CREDENTIALS: Final = fields_named(CREDENTIALS)
_PERSONAL: Final = fields_named({"set-cookie", "cache-control"})
_FOR_ONE_CLIENT: Final = re.compile(rb"(?:^|[\s,])(?:no-store|private)(?:$|[\s,=])", re.IGNORECASE)
_ABOUT_CONTENT: Final = fields_named({"content-type", "content-language"})

_PLAIN_HOST: Final = re.compile(r"[A-Za-z0-9._~:\[\]-]+")
"""Pattern of Hosts with which a document is cached. Other characters may be escaped in a document (`&` as
`\\u0026`) and not be found by `_repeats_host`; no real server has one."""

_Key: TypeAlias = tuple[str, Endpoint, str]
"""Key of a cached document: service, endpoint and target."""


@final
@dataclass(frozen=True, slots=True)
class CachedDocument:
    """A discovery document as a backend sent it, and what its links were made from."""

    scheme_id: tuple[object, ...]
    """Scheme of the document's service (`Service.scheme_id`): another dialect would not understand it."""
    backend: Backend
    legacy: bool
    host: str
    """`Host` of the request that fetched the document."""
    public_base: str
    """Base URL under which the client that fetched the document reached the gateway."""
    status: int
    served: Served
    version: Version | None
    """Negotiated version of the document's request. What it lists depends on that (Ironic's `/v1`)."""
    vary: tuple[str, ...]
    fields: tuple[Header, ...]
    """Fields about the document's content. No others are repeated: they were about another request."""
    body: bytes

    def response(
        self, resolution: Resolution, host: str, public_base: str, rewrites: RewriteCache
    ) -> Response | None:
        """Response with this cached document to a client that uses `public_base`; None: not for this one."""
        service, endpoint, offered = resolution.view.service, resolution.endpoint, resolution.offered
        dialect = service.dialect
        assert offered is not None, "a cached document is used only while something is on offer"
        links = Links(self.backend.origin, self.host, self.public_base, moved_to=public_base)
        body = rewrites.rewrite(service, endpoint, self.body, offered, links)
        if body is None or self._repeats_host(body, host, public_base):
            return None
        served, version = self.served, self.shown_version(offered)
        if version is None and served.version == self.version:
            served = replace(served, version=None, text="")
        written = dialect.write_response(
            BackendResponse(endpoint, self.status, served, version, offered, legacy=self.legacy)
        )
        vary = vary_lines(self.vary, service.vary, separately=dialect.vary_separately)
        response = Response(
            self.status, (*written, *vary, *service.announcement(version), *self.fields), body
        )
        edits = resolution.response_edits
        response = response if edits is None else edits.edit_response(response)
        return response.with_headers(*service.naming.private, *resolution.bridged_header)

    def shown_version(self, offered: VersionSet) -> Version | None:
        """Version that clients are shown for this document; None: it had none, or none that is on offer."""
        return self.version if self.version is not None and self.version in offered else None

    def version_text(self, resolution: Resolution) -> str:
        """Version that clients are shown for this document, in the dialect's spelling; empty: none."""
        offered = resolution.offered
        version = None if offered is None else self.shown_version(offered)
        return "" if version is None else resolution.view.service.dialect.scheme.format(version)

    def _repeats_host(self, body: bytes, host: str, public_base: str) -> bool:
        """Whether the document shows the first client's Host, or its name for it, to another client. A
        backend may repeat it outside its links or with another port, and clients choose it. A name without a
        dot or a port is an ordinary word."""
        ours = {form for one in (host, _authority(public_base)) for form in _forms(one)}
        chosen = {form for one in (self.host, _authority(self.public_base)) for form in _forms(one)}
        text = body.lower()
        return any(form.encode() in text for form in chosen - ours if re.search("[.:]", form))


@final
class CachedDocuments:
    """Cached discovery documents of one worker (LRU). Contains the keys that can be answered (`decide`)."""

    def __init__(self) -> None:
        self._documents: OrderedDict[_Key, CachedDocument] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._documents)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, DocumentKey) and self.find(key) is not None

    def find(self, key: DocumentKey) -> CachedDocument | None:
        """Cached document for `key`: a client's, else a probe's. A legacy backend's only as a last choice."""
        fetched = self._fetched(key)
        return fetched if fetched is not None and not fetched.legacy else _probed(key) or fetched

    def _fetched(self, key: DocumentKey) -> CachedDocument | None:
        """Document that a client fetched, if its backend and a dialect that reads it are still configured."""
        cache_key = (key.service.name, key.endpoint, key.target)
        cached = self._documents.get(cache_key)
        if cached is None:
            return None
        if cached.scheme_id != key.service.scheme_id or cached.backend not in key.service.backends:
            self._drop(cache_key)
            return None
        self._documents.move_to_end(cache_key)
        return cached

    def answer(
        self,
        key: DocumentKey,
        resolution: Resolution,
        host: str,
        public_base: str,
        rewrites: RewriteCache,
    ) -> LocalAnswer | None:
        """Answer to a request for the cached document of `key`; None: there is none its client may see."""
        cached = self.find(key)
        response = None if cached is None else cached.response(resolution, host, public_base, rewrites)
        if cached is None or response is None:
            return None
        return LocalAnswer(
            response,
            LocalReason.KNOWN_DOCUMENT,
            result=NegotiationResult.BRIDGED if resolution.bridged else NegotiationResult.SERVED,
            version=cached.version_text(resolution),
        )

    def keep(self, key: DocumentKey, cached: CachedDocument) -> None:
        """Cache a document (LRU, bounded). A legacy backend's never replaces a newer backend's."""
        cache_key = (key.service.name, key.endpoint, key.target)
        before = self._fetched(key)
        if before is not None:
            if cached.legacy and not before.legacy:
                return
            self._drop(cache_key)
        if len(key.target) > MAX_TARGET:
            return
        self._documents[cache_key] = cached
        self._size += len(cached.body)
        while len(self._documents) > MAX_DOCUMENTS or self._size > MAX_SIZE:
            self._drop(next(iter(self._documents)))

    def _drop(self, cache_key: _Key) -> None:
        self._size -= len(self._documents.pop(cache_key).body)


def _probed(key: DocumentKey) -> CachedDocument | None:
    """Document that a probe has read: that of the member with the highest version, a legacy one's last."""
    service, members = key.service, () if key.members is None else key.members.all
    able = [member for member in members if member.document is not None and _is_at(key, member.document)]
    chosen = [member for member in able if not member.legacy] or (able if key.from_legacy else [])
    if not chosen:
        return None
    member = max(chosen, key=_highest)
    document = member.document
    assert document is not None, "those without one are left out"
    headers = as_mapping(document.fields)
    served = service.dialect.read_response(key.endpoint, document.status, headers)
    return CachedDocument(
        scheme_id=service.scheme_id,
        backend=member.backend,
        legacy=member.legacy,
        host=document.host,
        public_base=member.backend.origin,
        status=document.status,
        served=served,
        version=served.version,
        vary=all_values(headers, "vary"),
        fields=tuple(("Content-Type", value) for value in all_values(headers, "content-type")),
        body=document.body,
    )


def _highest(member: Member) -> Version:
    versions = NO_VERSIONS if member.advertisement is None else member.advertisement.versions
    return versions.highest if versions else Version(0)


def _is_at(key: DocumentKey, document: ProbedDocument) -> bool:
    dialect = key.service.dialect
    same = dialect.document_path(document.path) == key.target
    return same and dialect.endpoint("GET", document.path, "") == key.endpoint


def _authority(base: str) -> str:
    """Authority (host and port) in a public base URL such as `https://api.example/metal`."""
    return base.partition("//")[2].partition("/")[0]


def _forms(authority: str) -> tuple[str, str]:
    """An authority (host and port) and its host alone, in lower case."""
    text = authority.lower()
    return text, re.sub(r":[0-9]*\Z", "", text)


def key_of_request(resolution: Resolution, request: RequestHead, path: str) -> DocumentKey | None:
    """Key of the cached document that a request asks for, or None. `path`: without the route's prefix."""
    if (
        resolution.offered is None
        or not resolution.rewrites_document
        or request.method not in DOCUMENT_METHODS
    ):
        return None
    return document_key(resolution.view, resolution.endpoint, path, request.query)


def document_to_keep(
    resolution: Resolution,
    member: Member,
    request: RequestHead,
    response: ResponseHead,
    *,
    served: Served,
    public_base: str,
    body: bytes,
) -> CachedDocument | None:
    """The document to cache, from a rewritable response; None: it may be for this client alone. RFC 9111 3
    and 3.5: nothing from a request with credentials, nothing with `no-store` or `private`. `no-cache` does
    not matter: clients get the present offer. Without a Host the links name no server."""
    if request.method != "GET" or not request.host or _CREDENTIALS.search(request.passthrough):
        return None
    if not (_PLAIN_HOST.fullmatch(request.host) and _PLAIN_HOST.fullmatch(_authority(public_base))):
        return None
    for name, value in _PERSONAL.findall(response.passthrough):
        if name.lower() == b"set-cookie" or _FOR_ONE_CLIENT.search(value):
            return None
    vary = all_values(as_mapping(response.selected_fields), "vary")
    if "*" in vary:
        return None
    return CachedDocument(
        scheme_id=resolution.view.service.scheme_id,
        backend=member.backend,
        legacy=member.legacy,
        host=request.host,
        public_base=public_base,
        status=response.status,
        served=served,
        version=resolution.version,
        vary=vary,
        fields=tuple(
            (name.decode(), value.strip(OWS).decode("latin-1"))
            for name, value in _ABOUT_CONTENT.findall(response.passthrough)
        ),
        body=body,
    )
