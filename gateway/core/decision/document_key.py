"""The key of a known document: one that a backend gave before, to a client or to a probe."""

from __future__ import annotations

from typing import NamedTuple, final

from gateway.core.dialect import Endpoint
from gateway.core.fleet.pool import Pool
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView


@final
class DocumentKey(NamedTuple):
    """Which document, and whose."""

    service: Service
    endpoint: Endpoint
    target: str
    """The local path in the dialect's one spelling, and the query as it came."""
    pool: Pool | None = None
    """The members whose probes may have read it; None: none of them."""
    from_legacy: bool = True
    """False: what a probe of a legacy member read does not count, because such a member can be asked."""


def document_key(
    view: ServiceView, endpoint: Endpoint, path: str, query: str, *, forwardable: bool = False
) -> DocumentKey:
    """The key of the document at the local `path`. `forwardable`: some member may give it now."""
    plain = view.service.dialect.document_path(path)
    target = f"{plain}?{query}" if query else plain
    return DocumentKey(view.service, endpoint, target, view.pool, from_legacy=not forwardable)
