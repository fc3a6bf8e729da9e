"""Request ids, by which a request is found in the logs of the gateway and of the servers (semantics,
Sending).

A request has one id: the well-formed one in the field of its API, else one in `X-Request-Id` or
`X-Openstack-Request-Id`, else one that is made. The backend, the log and the gateway's own responses get the
same one. It differs for every request, so it must never be a part of what is cached. The ids in a backend's
response pass as they came; one that was made here for an earlier request shows that the connection is out of
step.
"""

from __future__ import annotations

from itertools import count
from random import getrandbits
from typing import TYPE_CHECKING, Final, TypeAlias, final

from gateway.core.http.request_ids import OPENSTACK_IDS, PLAIN_IDS
from gateway.dataplane.http1.matchers import match_function

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.dialect import Dialect
    from gateway.core.http.message import Response
    from gateway.core.http.patterns import Pattern
    from gateway.core.http.request_ids import RequestIds
    from gateway.dataplane.http1.matchers import MatchFunction
    from gateway.dataplane.http1.request_head import RequestHead
    from gateway.telemetry.request_record import RequestRecord

PLAIN_NAME: Final = PLAIN_IDS.normalized_header


@final
class RequestIdSource:
    """Makes the request ids of one worker: a UUID of version 4 behind the prefix of the API. The first half
    is random for the worker, the rest counts from a random number: ids are no secrets, and counting costs a
    third of drawing. Each worker makes its own source, after it was forked."""

    def __init__(self) -> None:
        digits = f"{getrandbits(72):018x}"
        self._worker = f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-a{digits[15:]}-"
        self._numbers = count(getrandbits(40))
        self.mark = self._worker.encode()
        """Mark in every request id that this worker makes, and in no other."""
        self._matches: dict[Pattern, MatchFunction] = {}
        """Functions that match the ids of an API, by their form."""

    def of(self, resolution: Resolution, request: RequestHead) -> str:
        """Id of a request. Empty in a transparent service whose client sent none: nothing is added there."""
        ids, fields = resolution.request_ids, request.request_ids
        if fields:
            name, _, value = fields[0]
            if len(fields) == 1 and name == ids.normalized_header:  # as of nearly every client
                found = (self._matches.get(ids.form) or self._new_match(ids.form))(value)
                if found is not None and found[0] == len(value):
                    return value.decode("ascii")
            else:
                given = _given(request, ids)
                if given:
                    return given
        if resolution.view.offer.transparent:
            return ""
        return f"{ids.prefix}{self._worker}{next(self._numbers):012x}"

    def _new_match(self, form: Pattern) -> MatchFunction:
        found = self._matches[form] = match_function(form, (), ())
        return found

    def name_in(
        self, response: Response, dialect: Dialect | None, request: RequestHead, record: RequestRecord
    ) -> Response:
        """A local response with the id of its request in the API's own field, and in `X-Request-Id` if it
        came there. `dialect`: None without a service."""
        ids = PLAIN_IDS if dialect is None else dialect.request_ids
        request_id = record.request_id
        if not request_id:
            made = f"{ids.prefix}{self._worker}{next(self._numbers):012x}"
            request_id = record.request_id = _given(request, ids) or made
        record.response_id = request_id.encode()
        if dialect is None:
            return response.with_headers((PLAIN_IDS.request_header, request_id))
        response = dialect.write_request_id(response, request_id)
        if request.request_ids and ids is not PLAIN_IDS and (plain := _valid(request, PLAIN_IDS)):
            return response.with_headers((PLAIN_IDS.request_header, plain))
        return response


def is_made(request: RequestHead, request_id: str) -> bool:
    """Whether the gateway has made the id of a request: no field that came with it has this value."""
    made = request_id.encode()
    for _, _, value in request.request_ids:  # noqa: SIM110 - hot path: a generator takes three times as long
        if value == made:
            return False
    return True


def id_lines(request: RequestHead, resolution: Resolution, request_id: str) -> bytes:
    """Request-id lines for the backend, of a request with some id field: a well-formed id passes, a malformed
    one is replaced. Fields that are no request ids of this API pass as they came, as does everything in a
    transparent service."""
    ids, fields = resolution.request_ids, request.request_ids
    transparent = resolution.view.offer.transparent
    if len(fields) == 1 and fields[0][0] == ids.normalized_header and not transparent:  # as nearly always
        return ids.line_start + request_id.encode() + b"\r\n"
    lines, edits = b"", resolution.request_edits
    written: tuple[str, str] = (ids.normalized_header, PLAIN_NAME)
    if transparent:
        written = ("", "")
    elif _valid(request, ids) or not _given(request, ids):
        lines = ids.line_start + request_id.encode() + b"\r\n"
    if not (lines and ids is PLAIN_IDS) and written[1] and request.has_request_id(PLAIN_NAME):
        plain = _valid(request, PLAIN_IDS) or request_id
        lines += PLAIN_IDS.line_start + plain.encode() + b"\r\n"
    others = request.request_id_lines(but=written)
    if edits is not None and others:
        others = edits.without(b"\r\n" + others)[2:]
    return lines + others


def _given(request: RequestHead, ids: RequestIds) -> str:
    """Well-formed id that came with the request; empty: none."""
    return _valid(request, ids) or _valid(request, PLAIN_IDS) or _valid(request, OPENSTACK_IDS)


def _valid(request: RequestHead, ids: RequestIds) -> str:
    """Request id in the field of `ids`, if it is well-formed; else empty."""
    given = request.request_id(ids.normalized_header)
    return given if given and ids.is_valid(given) else ""


MAX_SENT_IDS: Final = 8
"""Number of request ids remembered for each backend connection."""

SentIds: TypeAlias = list[tuple[str, int]]
"""Request ids made here for the last requests of one connection, each with the hash of its path."""


def is_misplaced(
    fields: bytes, mark: bytes, ids: RequestIds, request_id: str, path: str, sent: SentIds
) -> bool:
    """Whether a response to the request with this id and path is for an earlier one with another path.
    `fields`: the lines of its head, each with the CRLF before it. `mark`: a part of every id in `sent`."""
    if fields.count(mark) == 1 and fields.find(request_id.encode()) >= 0:  # as nearly always
        return False
    found = _ids_in(fields, ids)
    if not found or request_id in found:
        return False
    path_hash = hash(path)
    return any(sent_id in found and sent_hash != path_hash for sent_id, sent_hash in sent)


def _ids_in(fields: bytes, ids: RequestIds) -> list[str]:
    """Values of the fields in which servers of this API name the id of a request."""
    names = {ids.request_header.lower(), *map(str.lower, ids.response_headers)}
    found = []
    for line in fields.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() in names:
            found.append(value.strip(" \t"))
    return found
