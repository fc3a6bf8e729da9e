"""The head of a request as one member gets it. Values in, bytes out: nothing is sent or decided here.

Every field that a dialect owns was taken out when the head was read. The negotiated version is written as
this member needs it. All other fields pass as the bytes in which they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.decision.decision import DOCUMENT_METHODS
from gateway.dataplane.documents import request_whole_document

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.fleet.backend import Member
    from gateway.dataplane.forwarding import Peer
    from gateway.dataplane.http1.heads import RequestHead


def compose_upstream_head(
    request: RequestHead,
    peer: Peer,
    resolution: Resolution,
    member: Member,
    *,
    path: str,
    request_id: str,
    end: bytes,
) -> bytes:
    """Stop 7: the head for `member`, which ends with `end`.

    `path`: the local one. `request_id`: empty where the API has none.
    """
    prefix = resolution.prefix
    target = request.target
    if prefix or member.backend.path or resolution.target_writer is not None:
        target = _rewritten_target(request, resolution, member, path)
    fields = peer.upstream_fields(request, member.backend, prefix)
    if resolution.rewrites_document and request.method in DOCUMENT_METHODS:
        fields = request_whole_document(fields)
    ids = resolution.request_ids
    if ids is not None and request_id and not request.field_section.request_ids:
        request_id_lines = ids.line_start + request_id.encode() + b"\r\n"
    else:
        request_id_lines = _received_request_id_lines(request, resolution, request_id)
    return b"%b %b HTTP/1.1%b%b%b%b" % (
        request.method.encode(),
        target,
        fields,
        request_id_lines,
        resolution.legacy_request_field_lines if member.legacy else resolution.request_field_lines,
        end,
    )


def _received_request_id_lines(request: RequestHead, resolution: Resolution, request_id: str) -> bytes:
    """The field with the id of this request; fields that are no request ids of this API as they came."""
    ids, section = resolution.request_ids, request.field_section
    if ids is None or not request_id:
        return section.request_id_lines()
    line = ids.line_start + request_id.encode() + b"\r\n"
    return line + section.request_id_lines(but=ids.normalized_header)


def _rewritten_target(request: RequestHead, resolution: Resolution, member: Member, local: str) -> bytes:
    """The target without the prefix of the route and with the base path of the backend.

    Where the dialect has its version in the target, the negotiated one is written. All other bytes stay.
    """
    if request.target == b"*":  # the whole server: no path
        return request.target
    query = f"?{request.query}" if b"?" in request.target else ""
    writer = resolution.target_writer
    if writer is None or resolution.version is None:
        path = local if resolution.prefix else request.path
        return (member.backend.path + path + query).encode("ascii")
    # The dialect gets the API's own path, even where backends see the prefix before it.
    prefix = "" if resolution.prefix else resolution.view.service.match.prefix
    target = writer.write_target(resolution.endpoint, local + query, resolution.version)
    if request.path == prefix and target[:2] in {"/", "/?"}:
        target = target[1:]  # a local path always begins with "/", so `Route.local` added one: remove it
    return (member.backend.path + prefix + target).encode("ascii")
