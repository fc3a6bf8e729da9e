"""Composes the head of a request for one member, and that of a response for the client.

Every field that a dialect owns was taken out when a head was read, and is written anew: the negotiated
version as this member needs it, what was served under the offer. All other fields pass as the bytes in which
they came, except those that the service is configured to change. Values in, bytes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.decision.decision import DOCUMENT_METHODS
from gateway.dataplane.documents.buffered import request_whole_document
from gateway.dataplane.http1.fields import NO_BODY
from gateway.dataplane.http1.request_ids import id_lines
from gateway.dataplane.local_responses import answers

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.decision.response import ResponseRewrite
    from gateway.core.fleet.backend import Member
    from gateway.dataplane.http1.forwarding import Peer
    from gateway.dataplane.http1.request_head import RequestHead
    from gateway.dataplane.http1.response_head import ResponseHead


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
    """Request head for `member` (stop 7 of 8). `path`: without the route's prefix. `request_id`: or empty."""
    prefix = resolution.prefix
    target = request.target
    if prefix or member.backend.path or resolution.target_has_version:
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
        peer.certificate_line,
        request.max_forwards_lines() if request.max_forwards else b"",
        request_id_lines,
        resolution.legacy_request_field_lines if member.legacy else resolution.request_field_lines,
        end,
    )
    return b"".join(parts)  # in half the time of a format


def _rewritten_target(request: RequestHead, resolution: Resolution, member: Member, local: str) -> bytes:
    """Request target without the route's prefix, with the base path of the backend, and with the negotiated
    version if the dialect has it in the target. All other bytes stay."""
    if request.target == b"*":  # the whole server: no path
        return request.target
    query = f"?{request.query}" if b"?" in request.target else ""
    if not resolution.target_has_version or resolution.version is None:
        path = local if resolution.prefix else request.path
        return (member.backend.path + path + query).encode("ascii")
    # The dialect gets the API's own path, even where backends see the prefix before it.
    service = resolution.view.service
    prefix = "" if resolution.prefix else service.match.prefix
    target = service.dialect.write_target(resolution.endpoint, local + query, resolution.version)
    if request.path == prefix and target[:2] in {"/", "/?"}:
        target = target[1:]  # a local path always begins with "/", so `Route.local` added one: remove it
    return (member.backend.path + prefix + target).encode("ascii")


CHUNKED: bytes = b"Transfer-Encoding: chunked\r\n"


def framing_line(response: ResponseHead) -> bytes:
    """Field line that frames the content for HTTP/1.1 clients: a length, `CHUNKED`, or nothing."""
    if response.length >= 0:
        return b"Content-Length: %d\r\n" % response.length if response.status != 204 else b""
    return CHUNKED if response.framing != NO_BODY else b""


def compose_downstream_head(
    response: ResponseHead,
    rewrite: ResponseRewrite,
    *,
    location: bytes,
    framing: bytes,
    connection: bytes,
    piece: bytes,
) -> bytes:
    """Response head and framed content (`piece`) for the client (stop 8 of 8). Lines are whole, or empty."""
    fields = response.passthrough
    if rewrite.edits is not None:
        fields = rewrite.edits.edit(fields)
    parts = (
        response.line,
        fields,
        b"\r\n",
        b"" if response.has_date else answers.date_line(),
        rewrite.lines,
        location,
        framing,
        connection,
        b"\r\n",
        piece,
    )
    return b"".join(parts)  # in half the time of a format
