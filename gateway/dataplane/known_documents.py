"""Discovery documents that backends gave before: what the gateway answers from while none of them can be
reached (semantics, Responding).

Kept is what the backend sent. What a client gets is made from it anew each time: the present offer, and links
that this client can follow. It is no HTTP cache: while a backend can be reached, nothing is answered from
here. Decides nothing: `core.decision.decision` does.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias, final

from gateway.core.decision.decision import DocumentKey
from gateway.core.decision.response import vary_lines
from gateway.core.dialect import Endpoint, Links, Served
from gateway.core.http.message import Header, Response, all_values, as_mapping
from gateway.dataplane.http1.fields import OWS
from gateway.dataplane.http1.names import fields_named

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.fleet.backend import Backend, Member
    from gateway.dataplane.http1.heads import RequestReader, ResponseReader

MAX_DOCUMENTS: Final = 64
MAX_SIZE: Final = 2 * 1024 * 1024
"""Bytes of all documents. Real ones have some kilobytes. Clients choose the targets, so both are bounded."""
MAX_TARGET: Final = 512
"""Characters of a target: no real one of a document is longer."""

_CREDENTIALS: Final = fields_named(
    {"authorization", "cookie", "x-auth-token", "x-service-token", "x-api-key"}
)
_PERSONAL: Final = fields_named({"set-cookie", "cache-control"})
_FOR_ONE_CLIENT: Final = re.compile(rb"(?:^|[\s,])(?:no-store|private)(?:$|[\s,=])", re.IGNORECASE)
_ABOUT_CONTENT: Final = fields_named({"content-type", "content-language"})

_Place: TypeAlias = tuple[str, Endpoint, str]
"""Service, endpoint and target."""


@final
@dataclass(frozen=True, slots=True)
class KnownDocument:
    """A document as a backend gave it, and what its links were made from."""

    scheme_id: tuple[object, ...]
    """`Service.scheme_id`: another dialect would not understand it."""
    backend: Backend
    legacy: bool
    host: str
    """The Host of the request."""
    public_base: str
    """Under which its client reached the gateway."""
    status: int
    served: Served
    names_negotiated: bool
    """It named the negotiated version of its request as served. Some servers name a constant (Cinder)."""
    vary: tuple[str, ...]
    """The backend's own."""
    fields: tuple[Header, ...]
    """Those about the content. No other is repeated: they were about another request."""
    body: bytes

    def response(self, resolution: Resolution, host: str, public_base: str) -> Response | None:
        """The document for a client that reached the gateway under `public_base`; None if it cannot be shown
        to this one."""
        dialect, endpoint, offered = resolution.view.service.dialect, resolution.endpoint, resolution.offered
        assert offered is not None, "a known document is used only while something is on offer"
        links = Links(self.backend.url, self.host, self.public_base, moved_to=public_base)
        body = dialect.rewrite_document(endpoint, self.body, offered, links)
        if body is None or self._repeats_host(body, host, public_base):
            return None
        served, version = self.served, resolution.version
        if self.names_negotiated:
            served = replace(served, version=version, text=served.text and resolution.version_text)
        written = dialect.write_response(endpoint, self.status, served, version, offered, legacy=self.legacy)
        vary = vary_lines(self.vary, dialect.vary, separately=dialect.vary_separately)
        return Response(self.status, (*written, *vary, *self.fields), body)

    def _repeats_host(self, body: bytes, host: str, public_base: str) -> bool:
        """Whether the Host of the first client is shown to another one. A backend may repeat it outside its
        links, and clients choose it. A name without a dot or a port is an ordinary word."""
        chosen = self.host.lower()
        if chosen == host.lower() or not re.search("[.:]", chosen) or chosen in public_base.lower():
            return False
        return chosen.encode() in body.lower()


@final
class KnownDocuments:
    """The documents of one worker, the least recently used ones dropped first. Contains the keys of those
    that can be answered, as `decide` expects it."""

    def __init__(self) -> None:
        self._documents: OrderedDict[_Place, KnownDocument] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._documents)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, DocumentKey) and self.find(key) is not None

    def find(self, key: DocumentKey) -> KnownDocument | None:
        """The document of `key`, if its backend is still configured, with a dialect that reads it."""
        place = (key.service.name, key.endpoint, key.target)
        known = self._documents.get(place)
        if known is None:
            return None
        if known.scheme_id != key.service.scheme_id or known.backend not in key.service.backends:
            self._drop(place)
            return None
        self._documents.move_to_end(place)
        return known

    def keep(self, key: DocumentKey, known: KnownDocument) -> None:
        """Keep `known`, and drop those that were not used for longest beyond the bounds."""
        place = (key.service.name, key.endpoint, key.target)
        if place in self._documents:
            self._drop(place)
        if len(key.target) > MAX_TARGET:
            return
        self._documents[place] = known
        self._size += len(known.body)
        while len(self._documents) > MAX_DOCUMENTS or self._size > MAX_SIZE:
            self._drop(next(iter(self._documents)))

    def _drop(self, place: _Place) -> None:
        self._size -= len(self._documents.pop(place).body)


def document_to_keep(
    resolution: Resolution,
    member: Member,
    request: RequestReader,
    response: ResponseReader,
    *,
    served: Served,
    public_base: str,
    body: bytes,
) -> KnownDocument | None:
    """What is kept of a document that could be rewritten; None: it may be for this client alone.

    RFC 9111 3 and 3.5: nothing of a request with credentials, nothing that is not to be stored or private.
    `no-cache` does not matter: clients get the present offer.
    """
    if request.method != "GET" or _CREDENTIALS.search(request.field_section.passthrough):
        return None
    for name, value in _PERSONAL.findall(response.passthrough):
        if name.lower() == b"set-cookie" or _FOR_ONE_CLIENT.search(value):
            return None
    vary = all_values(as_mapping(response.selected_fields), "vary")
    if "*" in vary:
        return None
    return KnownDocument(
        resolution.view.service.scheme_id,
        member.backend,
        member.legacy,
        request.host,
        public_base,
        response.status,
        served,
        served.version is not None and served.version == resolution.version,
        vary,
        tuple(
            (name.decode(), value.strip(OWS).decode("latin-1"))
            for name, value in _ABOUT_CONTENT.findall(response.passthrough)
        ),
        body,
    )
