"""THE HOT PATH: one request, from its complete head to the last byte of its response.

      client                         gateway                              backend
        |  --- 1 request ----->  client connection: head complete            |
        |                        2 take the current snapshot                 |
        |                        3 route  4 read requested version           |
        |                        5 negotiate  6 select a member              |
        |                          (3 to 6: one pure call, `decide`)         |
        |                        7 write the head anew  ---- request ------> |
        |                        8 rewrite the head     <--- response ------ |
        |  <-- response -------    and hand out one RequestRecord            |

The same numbers mark the code: 1 in `client_connection`, 2, 7 and 8 here, 3 to 6 in `core.decision.decision`;
the record of 8 is handed out in `recovery`. This module makes no routing or version decision. `recovery`
writes local responses, retries and ends every exchange.

A request that finds an idle backend connection needs no coroutine and no timer of its own: only callbacks of
the two connections. Their deadlines are compared with `Context.now`, a clock that advances in coarse steps.
"""

from __future__ import annotations

from random import getrandbits
from time import monotonic
from typing import TYPE_CHECKING, Final, final

from gateway.core.decision.decision import (
    DOCUMENT_METHODS,
    Answer,
    AnswerKnown,
    Decision,
    DocumentKey,
    Forward,
    Unrouted,
    decide,
)
from gateway.core.decision.response import ResponseRewrite, rewrite_head
from gateway.core.decision.selection import RANDOM_BITS
from gateway.core.dialect import VersionRefusal
from gateway.core.fleet.fleet import Fact, PassiveObservation, ServedVersionMissing, VersionMismatch
from gateway.dataplane import local_response
from gateway.dataplane.documents import BufferedResponse, location_lines, must_buffer, request_whole_document
from gateway.dataplane.failures import IDEMPOTENT, Failure
from gateway.dataplane.http1.chunked import LAST_CHUNK, encode_chunk
from gateway.dataplane.http1.fields import NO_BODY
from gateway.dataplane.recovery import BaseExchange
from gateway.dataplane.request_body import RequestBody

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Member
    from gateway.dataplane.backend_connection import BackendConnection
    from gateway.dataplane.client_connection import ClientConnection
    from gateway.dataplane.http1.heads import RequestReader, ResponseReader


MAX_MISMATCH_PATH: Final = 128
"""Characters of the path that a `VersionMismatch` keeps: clients choose it."""


@final
class Exchange(BaseExchange):
    """One request and its response. It is its own `RequestRecord`."""

    _pending_member: Member | None = None
    """The member that was selected while the request body is still awaited."""
    _buffered: BufferedResponse | None = None
    """The response while its content is collected."""
    _sent_at = 0.0
    """Monotonic seconds, when the request head was written. Facts from the response have this time: the
    backend may have composed it soon after. So a slow response never replaces what a later probe found."""
    _chunked = False
    """The response to the client is chunked."""

    def __init__(self, downstream: ClientConnection, request: RequestReader) -> None:
        self.downstream = downstream
        self.context = downstream.context
        self.request = request
        self.method = request.method
        self._started = monotonic()

    @property
    def target(self) -> str:
        return self.request.target.decode("ascii")

    @property
    def client(self) -> str:
        return self.downstream.peer.client_address(self.request)

    # -- stops 2 to 6

    def begin(self) -> None:
        """The head is complete: decide what happens to the request, and do it."""
        context = self.context
        if self.request.field_section.framing != NO_BODY:
            self.body_received = False
            self._request_body = RequestBody(self.request.field_section, context.limits)
        decision = self._decide()
        if type(decision) is not Forward:
            self._respond_decision(decision)
            return
        context.in_flight_by_service[self.service] += 1
        self._counted_in_flight = True
        if self._request_body is None:
            self._dispatch(decision.member)
        else:
            self._await_body(self._request_body, decision.member)

    def _decide(self) -> Decision:
        request, context = self.request, self.context
        decision = decide(  # 3 to 6
            context.snapshots.current,  # 2: taken anew when a version refusal leads here again
            request,
            request.host,
            context.in_flight_by_member,
            getrandbits(RANDOM_BITS),
            context.decision_cache,
            throttled=context.rate_limiter,
            known_documents=context.known_documents,
        )
        if type(decision) is AnswerKnown and self._known_response(*decision) is None:
            # It is not for this client. A legacy backend may still give one.
            decision = decide(
                context.snapshots.current,
                request,
                request.host,
                context.in_flight_by_member,
                getrandbits(RANDOM_BITS),
                context.decision_cache,
            )
        if type(decision) is not Unrouted:
            resolution = self._resolution = decision.resolution
            self.service = resolution.service
            self.version = resolution.version_text
            self.result = resolution.result
            self.requested = resolution.requested_kind
            ids = resolution.request_ids
            if ids is not None and not self.request_id:
                self.request_id = context.request_ids.of(resolution, ids, request.field_section)
            if type(decision) is Forward:
                self._path = decision.path
                self._methods = decision.methods
            elif type(decision) is Answer and resolution.endpoint.rate_limited:
                context.rate_limiter.take(resolution.service)
        return decision

    def _await_body(self, request_body: RequestBody, member: Member) -> None:
        """Answer `Expect: 100-continue`, then wait for a small body and send it whole; stream a large one."""
        self.downstream.deadline = self.context.now + self.context.timeouts.client_body_idle
        if request_body.too_large:
            self._fail(Failure.BODY_TOO_LARGE)
            return
        if self.request.expects_continue:
            self.context.send(self.downstream.transport, local_response.CONTINUE)
        self._pending_member = member
        if request_body.streams:
            self._dispatch(member)

    # -- stop 7: to the backend

    def _dispatch(self, member: Member) -> None:
        """Get a connection to `member`. The request is written as soon as there is one."""
        self._pending_member = None
        self._member = member
        self.backend = member.backend.name
        self.attempts += 1
        self.context.in_flight_by_member[member.key] += 1
        pool = self.downstream.worker.pool(member)
        connection = (
            None
            if self._new_connection_only
            else pool.acquire(verify=not IDEMPOTENT.issuperset(self._methods))
        )
        self._reused = connection is not None
        if connection is not None:
            self.on_connection(connection)
            return
        self.wants_connection = True
        if not self.body_received:
            self.downstream.pause_reading()
        pool.connect(self)

    def on_connection(self, connection: BackendConnection) -> None:
        """7: write the head, and the part of the body that has arrived."""
        request_body, context = self._request_body, self.context
        self.wants_connection = False
        self._connection = connection
        self._sent_at = monotonic()
        connection.start(
            self, context.response_names(self._resolution.view), is_head_request=self.method == "HEAD"
        )
        # Writes are collected: the response before this one may fill the buffer after this request has begun.
        if self.downstream.congested:
            connection.pause_reading()
        if request_body is None:
            context.send(connection.transport, self._compose_head(b"\r\n"))
            return
        context.send(
            connection.transport,
            self._compose_head(request_body.framing_line() + b"\r\n") + request_body.data_to_send(),
        )
        if not self.body_received:
            self.downstream.resume_reading()

    def _compose_head(self, end: bytes) -> bytes:
        """7: the head for the backend, which ends with `end`.

        Every field that a dialect owns was taken out when the head was read. The negotiated version is in
        `request_field_lines`, as this member needs it.
        """
        request, resolution, member = self.request, self._resolution, self._member
        assert member is not None
        prefix = resolution.prefix
        target = request.target
        if prefix or member.backend.path or resolution.target_writer is not None:
            target = self._rewritten_target(member)
        fields = self.downstream.peer.upstream_fields(request, member.backend, prefix)
        if resolution.rewrites_document and self.method in DOCUMENT_METHODS:
            fields = request_whole_document(fields)
        request_field_lines = (
            resolution.legacy_request_field_lines if member.legacy else resolution.request_field_lines
        )
        ids = resolution.request_ids
        if ids is not None and self.request_id and not request.field_section.request_ids:
            request_id_lines = ids.line_start + self.request_id.encode() + b"\r\n"
        else:
            request_id_lines = self._received_request_id_lines()
        return b"%b %b HTTP/1.1%b%b%b%b" % (
            request.method.encode(),
            target,
            fields,
            request_id_lines,
            request_field_lines,
            end,
        )

    def _received_request_id_lines(self) -> bytes:
        """The field with the id of this request; fields that are no request ids of this API as they came."""
        ids, section = self._resolution.request_ids, self.request.field_section
        if ids is None or not self.request_id:
            return section.request_id_lines()
        line = ids.line_start + self.request_id.encode() + b"\r\n"
        return line + section.request_id_lines(but=ids.normalized_header)

    def _rewritten_target(self, member: Member) -> bytes:
        """The target without the prefix of the route and with the base path of the backend.

        Where the dialect has its version in the target, the negotiated one is written. All other bytes stay.
        """
        request, resolution = self.request, self._resolution
        if request.target == b"*":  # the whole server: no path
            return request.target
        query = f"?{request.query}" if b"?" in request.target else ""
        writer = resolution.target_writer
        if writer is None or resolution.version is None:
            path = self._path if resolution.prefix else request.path
            return (member.backend.path + path + query).encode("ascii")
        # The dialect gets the API's own path, even where backends see the prefix before it.
        prefix = "" if resolution.prefix else resolution.view.service.match.prefix
        target = writer.write_target(resolution.endpoint, self._path + query, resolution.version)
        if request.path == prefix and target[:2] in {"/", "/?"}:
            target = target[1:]  # a local path always begins with "/", so `Route.local` added one: remove it
        return (member.backend.path + prefix + target).encode("ascii")

    def on_request_body(self, data: bytes) -> bytes:
        """Take body bytes from the client; returns the bytes after the body. Raises `FramingError`."""
        request_body = self._request_body
        assert request_body is not None
        rest = request_body.feed(data)
        self.body_received = request_body.done
        if request_body.too_large:
            self._fail(Failure.BODY_TOO_LARGE)
        elif self._connection is not None:
            piece = request_body.data_to_send()
            if piece:
                self._connection.deadline = self.context.now + self.context.timeouts.backend_head
                self.context.send(self._connection.transport, piece)
        elif self._pending_member is not None and (request_body.done or request_body.streams):
            self._dispatch_after_body(self._pending_member)
        return rest

    def _dispatch_after_body(self, member: Member) -> None:
        """The body is complete, or streams from now on. If the service has changed meanwhile, select again:
        the member may be drained now, or may no longer serve the version."""
        if self.context.snapshots.current.views.get(self.service) is self._resolution.view:
            self._dispatch(member)
        elif (other := self._reselect()) is not None:
            self._dispatch(other)
        else:
            # No backend refused it: no member serves the version any more, and the client gets the same 503.
            self._respond_failure(Failure.VERSION_REFUSED)

    # -- stop 8: back to the client

    def on_response(self, response: ResponseReader, piece: bytes, *, done: bool) -> None:
        """8: the response head is complete, and `piece` of its content has come."""
        member, resolution, context = self._member, self._resolution, self.context
        assert member is not None
        self.backend_seconds = monotonic() - self._sent_at
        key = (resolution, member.key, response.status, response.selected)
        rewrite = context.response_cache.get(key)
        if rewrite is None:
            rewrite = rewrite_head(resolution, member, response.status, response.selected_fields)
            context.cache_response(key, rewrite)
        if done:
            self._connection = None
        if rewrite.plain and not resolution.rewrites_document:
            self._forward_response(response, rewrite, piece, done=done)
        else:
            self._on_special_response(response, rewrite, piece, done=done)

    def _on_special_response(
        self, response: ResponseReader, rewrite: ResponseRewrite, piece: bytes, *, done: bool
    ) -> None:
        """Report what the response shows of the backend's versions. Then handle a version refusal, buffer the
        response, or forward it."""
        context = self.context
        if rewrite.fact is not None:
            context.observe(self.service, self.backend, PassiveObservation(rewrite.fact, self._sent_at))
        if rewrite.mismatch or rewrite.served_missing:
            self._report_served_version(rewrite)
            if rewrite.served_missing and self._on_version_unknown():
                return
            self.version = rewrite.served_text
        if rewrite.served.version_refusal is VersionRefusal.YES:
            self._on_version_refused()
        elif must_buffer(self._resolution, response, rewrite):
            assert self._member is not None
            self._buffered = BufferedResponse(
                self._resolution, self._member, response, rewrite, max_document=context.limits.document
            )
            self._buffer_response(piece, done=done)
        else:
            self._forward_response(response, rewrite, piece, done=done)

    def _report_served_version(self, rewrite: ResponseRewrite) -> None:
        """The response names another served version than the negotiated one, or none where it must."""
        context, version = self.context, self._resolution.version
        assert version is not None, "without a negotiated version there is nothing to contradict"
        context.metrics.version_mismatch(self.service, self.backend)
        fact: Fact = (
            VersionMismatch(version, self._sent_at, _first_segments(self._path))
            if rewrite.mismatch
            else ServedVersionMissing(self._sent_at)
        )
        context.observe(self.service, self.backend, fact)

    def _forward_response(
        self, response: ResponseReader, rewrite: ResponseRewrite, piece: bytes, *, done: bool
    ) -> None:
        """8: write the head with its owned fields rewritten, and the content as it comes."""
        status, downstream = response.status, self.downstream
        self.status = status
        self._response_started = True
        if self._holds_retry_budget:
            self._release_retry()
        close = not self.body_received or downstream.must_close()
        framing = b""
        if response.length >= 0:
            if status != 204:
                framing = b"Content-Length: %d\r\n" % response.length
        elif response.framing != NO_BODY:
            if self.request.minor:
                framing = b"Transfer-Encoding: chunked\r\n"
                self._chunked = True
            else:
                close = True
        if close:
            self._keep_alive = False
        self.bytes_out = len(piece)
        if self._chunked:
            piece = encode_chunk(piece) + LAST_CHUNK if done else encode_chunk(piece)
        location = self._location_lines(response) if response.location else b""
        self.context.send(
            downstream.transport,
            b"%b%b%b%b%b%b\r\n%b"
            % (
                response.line,
                response.passthrough,
                rewrite.lines,
                location,
                framing,
                downstream.connection_line(close=close),
                piece,
            ),
        )
        if done:
            self._end()

    def on_response_body(self, piece: bytes, *, done: bool) -> None:
        """More content of the response."""
        if done:
            self._connection = None
        if self._buffered is not None:
            self._buffer_response(piece, done=done)
            return
        self.bytes_out += len(piece)
        if self._chunked:
            piece = encode_chunk(piece) + LAST_CHUNK if done else encode_chunk(piece)
        if piece:
            self.context.send(self.downstream.transport, piece)
        if done:
            self._end()

    def _buffer_response(self, piece: bytes, *, done: bool) -> None:
        """Collect a discovery document, or what may be a version refusal, before the client gets anything."""
        buffered = self._buffered
        assert buffered is not None
        buffered.add(piece)
        if not done and not buffered.too_large:
            return
        self._buffered = None
        buffered.join()
        advertisement = buffered.refusal_advertisement() if done else None
        if advertisement is not None:
            self.context.observe(self.service, self.backend, PassiveObservation(advertisement, self._sent_at))
            self._on_version_refused()
            return
        if not buffered.may_refuse and not self._rewrite_document(buffered):
            self._fail(Failure.BAD_DOCUMENT)
            return
        self._forward_response(buffered.response, buffered.rewrite, buffered.body, done=done)

    def _rewrite_document(self, buffered: BufferedResponse) -> bool:
        """Make a discovery document the one for the client, and keep it; False: it cannot be shown."""
        public_base = self.downstream.peer.public_base(self.request, self._resolution.prefix)
        if not buffered.rewrite_document(self.request, public_base):
            return False
        if buffered.known_document is not None:
            key = DocumentKey.of(self._resolution, self._path, self.request.query)
            self.context.known_documents.keep(key, buffered.known_document)
        return True

    def _location_lines(self, response: ResponseReader) -> bytes:
        assert self._member is not None
        public_base = self.downstream.peer.public_base(self.request, self._resolution.prefix)
        return location_lines(response, self._member.backend, self.request, public_base)


def _first_segments(path: str) -> str:
    """`/v1/nodes` of `/v1/nodes/1`: one odd resource is not taken for the whole API (semantics, Knowing)."""
    segments = [segment for segment in path.split("/") if segment]
    return f"/{'/'.join(segments[:2])}"[:MAX_MISMATCH_PATH]
