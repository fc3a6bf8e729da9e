"""Replies that are read whole before the client gets anything: discovery documents, and refusals that only a
body can tell. And `Location`, the one link in a head.

What a document means is the dialect's; here are the conditions under which one is held at all (design section
2, Replying), and the bounds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from gateway.core.dialect import Advert, Links, Refused
from gateway.core.message import as_mapping
from gateway.dataplane.fields import NO_BODY
from gateway.dataplane.names import fields_named

if TYPE_CHECKING:
    from gateway.core.backend import Backend, Member
    from gateway.core.decision import Resolution
    from gateway.core.replying import Marking
    from gateway.dataplane.http1 import ReplyReader, RequestReader

MAX_DOCUMENT: Final = 1024 * 1024
MAX_REFUSAL: Final = 64 * 1024
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


def prepare(tail: bytes) -> bytes:
    """The fields of a request for a document in a form that can be rewritten: whole and not encoded."""
    return _CONDITIONAL.sub(b"", tail) + b"Accept-Encoding: identity\r\n"


def holds(resolution: Resolution, reply: ReplyReader, marking: Marking) -> bool:
    """Whether this reply must be read whole."""
    if marking.served.refused is Refused.READ_BODY:
        return reply.framing != NO_BODY and not _ENCODED.search(reply.kept)
    return (
        resolution.place.document
        and not resolution.view.offer.transparent
        and reply.status in DOCUMENT_STATUSES
        and not _ENCODED.search(reply.kept)
        and _JSON.search(reply.kept) is not None
    )


@final
class HeldReply:
    """A reply whose body is being collected."""

    def __init__(self, resolution: Resolution, member: Member, reply: ReplyReader, marking: Marking) -> None:
        self.reply = reply
        self.marking = marking
        self._resolution = resolution
        self._member = member
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    @property
    def body(self) -> bytes:
        """What has come so far."""
        return b"".join(self._pieces)

    @property
    def too_large(self) -> bool:
        """True: it is no document or refusal of ours; pass it on as it is."""
        return self._size > (
            MAX_REFUSAL if self.marking.served.refused is Refused.READ_BODY else MAX_DOCUMENT
        )

    def refusal(self) -> Advert | None:
        """The range that the body names when it refuses the request's version."""
        if self.marking.served.refused is not Refused.READ_BODY:
            return None
        dialect = self._resolution.view.service.dialect
        return dialect.read_refusal(self.reply.status, as_mapping(self.reply.pairs), self.body)

    def rewritten(self, request: RequestReader, public: str) -> bytes | None:
        """The document with the offer's range and links that the client can follow; None: not such a
        document.

        Its validators spoke of the backend's bytes, so they go.
        """
        resolution = self._resolution
        if not resolution.rewrites_document or resolution.bounds is None or self.too_large:
            return None
        if request.method == "HEAD":
            self.reply.drop(_VALIDATORS)
            self.reply.length = -1  # of a document that is rewritten it is not known
            return None
        links = Links(self._member.backend.url, request.host, public)
        dialect = resolution.view.service.dialect
        body = dialect.rewrite_document(resolution.place, self.body, resolution.bounds, links)
        if body is not None:
            self.reply.drop(_VALIDATORS)
        return body


def location_lines(reply: ReplyReader, backend: Backend, request: RequestReader, public: str) -> bytes:
    """`Location` and its kin, rewritten where they name the backend's authority or, at the client's own or
    with none, a path that lacks the prefix which was taken off; those to third parties stay."""
    links = Links(backend.url, request.host, public)
    return b"".join(
        b"%b: %b\r\n" % (name, links.rewrite(value.decode("latin-1")).encode("latin-1"))
        for name, value in reply.location
    )
