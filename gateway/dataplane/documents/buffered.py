"""Responses buffered whole before the client gets anything: discovery documents, and refusals that only the
body shows. Also `Location`, the one link in a head.

The dialect knows what a document means. This module has the conditions under which a response is one
(semantics, Responding), and the size limits. Any other content in place of a document is 502, so that no
client sees one backend's own range.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, final

from gateway.core.dialect import Advertisement, Links, VersionRefusal
from gateway.core.http.message import fields_named
from gateway.dataplane.documents.cached import CachedDocument, document_to_keep
from gateway.dataplane.http1.fields import BY_LENGTH, NO_BODY, OWS

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.decision.response import ResponseRewrite
    from gateway.core.fleet.backend import Backend, Member
    from gateway.dataplane.documents.rewrite_cache import RewriteCache
    from gateway.dataplane.http1.request_head import RequestHead
    from gateway.dataplane.http1.response_head import ResponseHead

MAX_REFUSAL: Final = 64 * 1024
"""Maximum bytes of a body that may refuse a version. Real ones have some hundred; a larger one passes."""
DOCUMENT_STATUSES: Final = frozenset({200, 203, 300})

_CONDITIONAL: Final = fields_named(
    {
        "accept-encoding",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "range",
    }
)
_ABOUT_BYTES: Final = fields_named(
    {
        "accept-ranges",
        "age",
        "content-digest",
        "content-encoding",
        "content-md5",
        "content-range",
        "digest",
        "etag",
        "last-modified",
        "repr-digest",
    }
)
"""Response fields about the backend's bytes, removed from a rewritten document: the client gets others."""
_CODINGS: Final = fields_named({"content-encoding"})
_TYPES: Final = fields_named({"content-type"})
_JSON: Final = re.compile(rb"[\w!#$&^.+-]+/(?:[\w!#$&^.+-]+\+)?json", re.IGNORECASE)
_CHARSET: Final = re.compile(
    rb"(\r\ncontent-type:[^\r]*?)(?<![ \t])[ \t]*+;[ \t]*+charset[ \t]*+="
    rb"[ \t]*+(?:\"[^\"\r]*+\"|[^;\"\r]*[^;\" \t\r])?",
    re.IGNORECASE,
)
"""Pattern of a charset, which JSON does not have (RFC 8259 11): a rewritten document is UTF-8 in any case.
Blanks are read once, not again from each of them (threats R-B12)."""
_WINDOWS: Final = {b"gzip": (31,), b"x-gzip": (31,), b"deflate": (15, -15)}
"""zlib's `wbits` by content coding. Some servers send deflate without zlib's frame (RFC 9110 8.4.1.2)."""


def request_whole_document(fields: bytes) -> bytes:
    """Change the field lines of a GET or HEAD so that its response can be rewritten: whole, not encoded."""
    return _CONDITIONAL.sub(b"", fields) + b"\r\nAccept-Encoding: identity"


def must_buffer(resolution: Resolution, response: ResponseHead, rewrite: ResponseRewrite) -> bool:
    """Whether a response may refuse the version or be a document, which errors and redirects are not."""
    if rewrite.served.version_refusal is VersionRefusal.READ_BODY:
        return response.framing != NO_BODY
    success = 200 <= response.status < 300 and not resolution.endpoint.choices
    return resolution.rewrites_document and (success or response.status == 300)


@final
class BufferedResponse:
    """A response whose content is being collected. `max_document`: `limits.document`."""

    body = b""
    """Body of the response for the client, once the response is complete."""
    cached_document: CachedDocument | None = None
    """The discovery document to cache, as the backend sent it; set once the client's was made from it."""

    def __init__(
        self,
        resolution: Resolution,
        member: Member,
        response: ResponseHead,
        rewrite: ResponseRewrite,
        *,
        max_document: int,
    ) -> None:
        self.response = response
        self.rewrite = rewrite
        self.may_refuse = rewrite.served.version_refusal is VersionRefusal.READ_BODY
        """Whether the response may refuse the version; otherwise a discovery document is expected."""
        self._resolution = resolution
        self._member = member
        self._pieces: list[bytes] = []
        self._size = 0
        if self.may_refuse:
            self._limit = MAX_REFUSAL
        else:
            self._limit = max_document if _may_be_document(response) else 0

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    @property
    def too_large(self) -> bool:
        """Whether the response exceeds its size limit, which is 0 for what cannot be a document."""
        known = self.response.length if self.response.framing == BY_LENGTH else 0
        return max(self._size, known) > self._limit

    def join(self) -> None:
        """Join the collected pieces of content into `body`."""
        self.body = b"".join(self._pieces)

    def refusal_advertisement(self) -> Advertisement | None:
        """Version range in a body that refuses the version; None: it does not refuse, or cannot be read."""
        if not self.may_refuse or self.too_large:
            return None
        body = decoded(_codings(self.response), self.body)
        if body is None:
            return None
        dialect = self._resolution.view.service.dialect
        return dialect.read_refusal(self.response.status, body)

    def rewrite_document(self, request: RequestHead, public_base: str, rewrites: RewriteCache) -> bool:
        """Rewrite the discovery document with the offer and the client's links. False: it cannot be shown."""
        response, resolution = self.response, self._resolution
        if request.method == "HEAD":
            self._describe(-1)  # the length of the rewritten document is not known
            return True
        if not self._size and not self.too_large:
            # Nothing is shown: 204, a preflight request of CORS. But a GET with 200 promises a document.
            return request.method != "GET" or response.status not in DOCUMENT_STATUSES
        if self.too_large or resolution.offered is None:
            return False
        links = Links(self._member.backend.origin, request.host, public_base)
        endpoint, offered, service = resolution.endpoint, resolution.offered, resolution.view.service
        body = rewrites.rewrite(service, endpoint, self.body, offered, links)
        if body is None:
            return False
        self._describe(len(body))
        self.cached_document = document_to_keep(
            resolution,
            self._member,
            request,
            self.response,
            served=self.rewrite.served,
            public_base=public_base,
            body=self.body,
        )
        self.body = body
        return True

    def _describe(self, length: int) -> None:
        """Make the response fields describe a document of `length` bytes (-1: unknown), not the backend's."""
        fields = _CHARSET.sub(rb"\1", _ABOUT_BYTES.sub(b"", self.response.passthrough))
        self.response = self.response.with_content(length, fields)


def _may_be_document(response: ResponseHead) -> bool:
    """Whether a response head allows a discovery document: JSON of the right status, not encoded."""
    types = [value for _, value in _TYPES.findall(response.passthrough)]
    return (
        response.status in DOCUMENT_STATUSES
        and not _codings(response)
        and len(types) == 1
        and _JSON.fullmatch(types[0].partition(b";")[0].strip(OWS)) is not None
    )


def _codings(response: ResponseHead) -> list[bytes]:
    """Content codings of a response in the order in which they were applied, without `identity`."""
    lines = (value for _, value in _CODINGS.findall(response.passthrough))
    codings = (item.strip(OWS).lower() for line in lines for item in line.split(b","))
    return [coding for coding in codings if coding not in (b"", b"identity")]


def decoded(codings: list[bytes], body: bytes) -> bytes | None:
    """Decode a response body; None if it cannot be read. Bounded, so that a small body cannot become a large
    one (threats B19): one coding, and at most as much as a body without one may have."""
    if len(codings) != 1:
        return None if codings else body
    for wbits in _WINDOWS.get(codings[0], ()):
        decompressor = zlib.decompressobj(wbits)
        try:
            plain = decompressor.decompress(body, MAX_REFUSAL + 1)
        except zlib.error:
            continue
        if decompressor.eof and not decompressor.unused_data and len(plain) <= MAX_REFUSAL:
            return plain
    return None


def location_lines(response: ResponseHead, backend: Backend, request: RequestHead, public_base: str) -> bytes:
    """The lines `Location` and `Content-Location`, as the client can follow them. A value is rewritten if it
    names the authority of the backend, or if it names the client's or none and its path lacks the removed
    prefix. Links to third parties stay."""
    links = Links(backend.origin, request.host, public_base)
    return b"".join(
        b"%b: %b\r\n" % (name, links.rewrite(value.decode("latin-1")).encode("latin-1"))
        for name, value in response.location
    )
