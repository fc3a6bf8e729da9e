"""The discovery document that a probe got from a member: clients are answered from it while no backend can be
reached and no client has fetched it before.

Each member has at most one. It is replaced when the member's advertisement is another one, and not whenever
its bytes are: some documents hold the time. What clients get is made of it by the data plane.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

from gateway.core.dialect import Dialect, ProbeResponse
from gateway.core.http.message import Header, all_values

MAX_SIZE: Final = 16 * 1024
"""Bytes of a body. Real ones have some kilobytes, and each member may have one."""

DOCUMENT_STATUSES: Final = frozenset({200, 203, 300})
"""Statuses of a response that may be a document."""

CREDENTIALS: Final = frozenset({"authorization", "cookie", "x-auth-token", "x-service-token", "x-api-key"})
"""Nothing is kept for others of a request with one of these (RFC 9111 3.5)."""

_JSON: Final = re.compile(r"[\w!#$&^.+-]+/(?:[\w!#$&^.+-]+\+)?json", re.ASCII | re.IGNORECASE)
_FOR_ONE_CLIENT: Final = re.compile(r"(?:^|[\s,])(?:no-store|private)(?:$|[\s,=])", re.ASCII | re.IGNORECASE)


@final
@dataclass(frozen=True, slots=True)
class ProbedDocument:
    """What one probe brought. Whether it can be rewritten, nobody has tried yet."""

    path: str
    """The local one, as the probe wrote it."""
    host: str
    """The Host that the backend saw."""
    status: int
    fields: tuple[Header, ...]
    """Names normalized: `Vary`, `Content-Type`, and the headers that the dialect owns."""
    body: bytes


def probed_document(
    dialect: Dialect, path: str | None, host: str, sent: Iterable[Header], response: ProbeResponse
) -> ProbedDocument | None:
    """The document in the response to a probe of the local `path` (None: no client gets there); None: it is
    none that others may see. `sent`: the operator's own headers of probes."""
    headers = response.headers
    types = all_values(headers, "content-type")
    if (
        path is None
        or response.status not in DOCUMENT_STATUSES
        or len(response.body) > MAX_SIZE
        or not dialect.endpoint("GET", path, "").document
        or len(types) != 1
        or _JSON.fullmatch(types[0].partition(";")[0].strip()) is None
        or any(name.lower() in CREDENTIALS for name, _ in sent)
        or all_values(headers, "set-cookie")
        or any(_FOR_ONE_CLIENT.search(value) for value in all_values(headers, "cache-control"))
        or any("*" in value for value in all_values(headers, "vary"))
    ):
        return None
    fields = tuple(
        (name, value)
        for name in ("vary", *sorted(dialect.owned_response))
        for value in all_values(headers, name)
    )
    return ProbedDocument(path, host, response.status, (("content-type", types[0]), *fields), response.body)
