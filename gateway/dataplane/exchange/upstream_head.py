"""The head of a request as one member gets it. Values in, bytes out: nothing is sent or decided here.

Every field that a dialect owns was taken out when the head was read. The negotiated version is written as
this member needs it. All other fields pass as the bytes in which they came, but for those that the service is
configured to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.decision.decision import DOCUMENT_METHODS
from gateway.dataplane.documents.buffered import request_whole_document
from gateway.dataplane.http1.request_ids import id_lines

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.fleet.backend import Member
    from gateway.dataplane.http1.forwarding import Peer
    from gateway.dataplane.http1.request_head import RequestHead


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

    `path`: the local one. `request_id`: empty where none is to be sent.
    """
    prefix = resolution.prefix
    target = request.target
    if prefix or member.backend.path or resolution.target_writer is not None:
        target = _rewritten_target(request, resolution, member, path)
    fields, edits = request.passthrough, resolution.request_edits
    if edits is not None:  # before a document is asked for, so that none of them changes how it is encoded
        fields = edits.edit(fields)
    if resolution.rewrites_document and request.method in DOCUMENT_METHODS:
        fields = request_whole_document(fields)
    if request.request_ids:
        request_id_lines = id_lines(request, resolution, request_id)
    elif request_id:
        request_id_lines = resolution.request_ids.line_start + request_id.encode() + b"\r\n"
    else:
        request_id_lines = b""
    parts = (
        request.method.encode(),
        b" ",
        target,
        b" HTTP/1.1",
        fields,
        b"\r\n",
        peer.lines(request, member.backend, prefix),
        request.max_forwards_lines() if request.max_forwards else b"",
        request_id_lines,
        resolution.legacy_request_field_lines if member.legacy else resolution.request_field_lines,
        end,
    )
    return b"".join(parts)  # in half the time of a format


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
