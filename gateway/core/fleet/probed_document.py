"""Discovery document of a member that a probe got: clients get it while no backend can be reached.

Each member has at most one. It is replaced when the member's advertisement changes, and not whenever its
bytes do: some documents hold the time. The data plane rewrites it for clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

from gateway.core.dialect import Dialect, ProbeResponse
from gateway.core.http.message import Header, all_values

MAX_SIZE: Final = 16 * 1024
"""Most bytes of a document. Real ones have some kilobytes, and each member may have one."""

DOCUMENT_STATUSES: Final = frozenset({200, 203, 300})

CREDENTIALS: Final = frozenset({"authorization", "cookie", "x-auth-token", "x-service-token", "x-api-key"})
"""Headers of a request whose response is never kept for others (RFC 9111 3.5)."""

_JSON: Final = re.compile(r"[\w!#$&^.+-]+/(?:[\w!#$&^.+-]+\+)?json", re.ASCII | re.IGNORECASE)
_FOR_ONE_CLIENT: Final = re.compile(r"(?:^|[\s,])(?:no-store|private)(?:$|[\s,=])", re.ASCII | re.IGNORECASE)


@final
@dataclass(frozen=True, slots=True)
class ProbedDocument:
    """Discovery document as one probe got it. It may still turn out not to be rewritable."""

    path: str
    """Local path of the document, as the probe wrote it."""
    host: str
    status: int
    fields: tuple[Header, ...]
    """Header lines: `Vary`, `Content-Type` and those that the dialect owns, with normalized names."""
    body: bytes


def probed_document(
    dialect: Dialect, path: str | None, host: str, sent: Iterable[Header], response: ProbeResponse
) -> ProbedDocument | None:
    """The document in the response to a probe of the local `path` (None: clients cannot reach it); None: the
    response is no document that others may see. `sent`: the operator's own headers of probes."""
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
