"""Responses that are buffered whole before the client gets anything: discovery documents, and refusals that
only the body shows. Also `Location`, the one link in a head.

The dialect knows what a document means. Here are the conditions for buffering one (semantics, Responding) and
the size limits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from gateway.core.dialect import Advertisement, Links, VersionRefusal
from gateway.core.http.message import as_mapping
from gateway.dataplane.http1.fields import NO_BODY
from gateway.dataplane.http1.names import fields_named

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.decision.response import ResponseRewrite
    from gateway.core.fleet.backend import Backend, Member
    from gateway.dataplane.http1.heads import RequestReader, ResponseReader

MAX_DOCUMENT: Final = 1024 * 1024
"""Bytes of a document: far above every real one. A larger one passes through."""
MAX_REFUSAL: Final = 64 * 1024
"""Bytes of a body that may refuse a version: real ones have some hundred. A larger one passes through."""
DOCUMENT_STATUSES: Final = frozenset({200, 300})

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
_VALIDATORS: Final = fields_named(
    {"etag", "last-modified", "content-md5", "digest", "content-digest", "repr-digest"}
)
_ENCODED: Final = re.compile(rb"\r\ncontent-encoding:[ \t]*(?!identity[ \t]*\r)", re.IGNORECASE)
_JSON: Final = re.compile(rb"\r\ncontent-type:[^\r;]*json", re.IGNORECASE)


def request_whole_document(fields: bytes) -> bytes:
    """Change the field lines of a request so that the response can be rewritten: whole and not encoded."""
    return _CONDITIONAL.sub(b"", fields) + b"Accept-Encoding: identity\r\n"


def must_buffer(resolution: Resolution, response: ResponseReader, rewrite: ResponseRewrite) -> bool:
    """Whether this response must be buffered whole."""
    if rewrite.served.version_refusal is VersionRefusal.READ_BODY:
        return response.framing != NO_BODY and not _ENCODED.search(response.passthrough)
    return (
        resolution.endpoint.document
        and not resolution.view.offer.transparent
        and response.status in DOCUMENT_STATUSES
        and not _ENCODED.search(response.passthrough)
        and _JSON.search(response.passthrough) is not None
    )


@final
class BufferedResponse:
    """A response while its content is collected."""

    def __init__(
        self, resolution: Resolution, member: Member, response: ResponseReader, rewrite: ResponseRewrite
    ) -> None:
        self.response = response
        self.rewrite = rewrite
        self._resolution = resolution
        self._member = member
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    @property
    def body(self) -> bytes:
        """The content that has come so far."""
        return b"".join(self._pieces)

    @property
    def too_large(self) -> bool:
        """Too large to be a document or a refusal: forward it as it is."""
        return self._size > (
            MAX_REFUSAL if self.rewrite.served.version_refusal is VersionRefusal.READ_BODY else MAX_DOCUMENT
        )

    def refusal_advertisement(self) -> Advertisement | None:
        """The range in the body if it refuses the version of the request; None if it does not."""
        if self.rewrite.served.version_refusal is not VersionRefusal.READ_BODY:
            return None
        dialect = self._resolution.view.service.dialect
        return dialect.read_refusal(
            self.response.status, as_mapping(self.response.selected_fields), self.body
        )

    def rewritten_body(self, request: RequestReader, public_base: str) -> bytes | None:
        """The document with the range of the offer and with links that the client can follow; None if it is
        not such a document.

        Fields that validate the bytes of the backend (`ETag` and others) are removed.
        """
        resolution = self._resolution
        if not resolution.rewrites_document or resolution.offered is None or self.too_large:
            return None
        if request.method == "HEAD":
            self.response.remove_fields(_VALIDATORS)
            self.response.length = -1  # the length of the rewritten document is unknown
            return None
        links = Links(self._member.backend.url, request.host, public_base)
        dialect = resolution.view.service.dialect
        body = dialect.rewrite_document(resolution.endpoint, self.body, resolution.offered, links)
        if body is not None:
            self.response.remove_fields(_VALIDATORS)
        return body


def location_lines(
    response: ResponseReader, backend: Backend, request: RequestReader, public_base: str
) -> bytes:
    """The lines `Location` and `Content-Location`, as the client can follow them.

    A value is rewritten if it names the authority of the backend. It is also rewritten if it names the
    authority of the client's request or none, and its path lacks the prefix that was removed. Links to third
    parties stay.
    """
    links = Links(backend.url, request.host, public_base)
    return b"".join(
        b"%b: %b\r\n" % (name, links.rewrite(value.decode("latin-1")).encode("latin-1"))
        for name, value in response.location
    )
