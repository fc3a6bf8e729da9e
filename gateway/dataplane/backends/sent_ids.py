"""Whether a response is for an earlier request of its connection, which shows that both have come apart.

An id that this gateway has made for that request shows it, in a field in which servers of this API name the
id of the request to which they respond. The same path again is no sign: servers cache, and replay idempotent
responses. Values in, values out; bounded, since each connection keeps some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from gateway.core.http.request_ids import RequestIds

MAX_SENT_IDS: Final = 8
"""Requests that are remembered for each connection."""

SentIds: TypeAlias = list[tuple[str, int]]
"""Ids that this gateway has made for the last requests of one connection, each with the hash of the path
of its request: a client may send one of some kilobytes."""


def is_misplaced(
    fields: bytes, mark: bytes, ids: RequestIds, request_id: str, path: str, sent: SentIds
) -> bool:
    """Whether a response to the request with this id and path is for an earlier one with another path.

    `fields`: the lines of its head, each with the CRLF before it. `mark`: a part of every id in `sent`.
    """
    if fields.count(mark) == 1 and fields.find(request_id.encode()) >= 0:  # as nearly always
        return False
    found = _ids_in(fields, ids)
    if not found or request_id in found:
        return False
    path_hash = hash(path)
    return any(sent_id in found and sent_hash != path_hash for sent_id, sent_hash in sent)


def _ids_in(fields: bytes, ids: RequestIds) -> list[str]:
    """The values of those fields in which servers of this API name the id of a request."""
    names = {ids.request_header.lower(), *map(str.lower, ids.response_headers)}
    found = []
    for line in fields.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() in names:
            found.append(value.strip(" \t"))
    return found
