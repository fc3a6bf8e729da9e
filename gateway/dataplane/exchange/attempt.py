"""One attempt: the request on its way to one member, and what that member responds.

An exchange has one attempt at a time, and a new one for every member or connection that it tries. An attempt
gets or makes a connection, sends the request (stop 7), and reads what the response shows of the member's
versions (the first half of stop 8). The exchange decides whether something is sent again and what the client
gets. After its end an attempt ignores everything that still arrives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gateway.core.decision.decision import document_key
from gateway.core.decision.response import ResponseRewrite, rewrite_head
from gateway.core.dialect import VersionRefusal
from gateway.core.fleet.fleet import Fact, PassiveObservation, ServedVersionMissing, VersionMismatch
from gateway.dataplane.backends.connection import ResponseReceiver
from gateway.dataplane.documents.buffered import BufferedResponse, must_buffer
from gateway.dataplane.exchange.heads import compose_upstream_head
from gateway.dataplane.exchange.tunnel import TunnelOwner, agreed_protocol, switched_head
from gateway.dataplane.http1.request_ids import MAX_SENT_IDS, is_made, is_misplaced
from gateway.dataplane.local_responses.failures import Failure
from gateway.telemetry.series.backend import OfBackend

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Member
    from gateway.dataplane.backends.connection import BackendConnection
    from gateway.dataplane.http1.request_body import RequestBody
    from gateway.dataplane.http1.request_ids import SentIds
    from gateway.dataplane.http1.response_head import ResponseHead

MAX_MISMATCH_PATH: Final = 128
"""Maximum characters of the request path in a `VersionMismatch`: clients choose it."""


class AttemptOwner(TunnelOwner):
    """Interface of an exchange, as its attempts use it."""

    __slots__ = ()

    path: str
    """Request path without the prefix of the route."""

    def on_sent(self) -> None:
        """Note that the request was sent on a new connection."""
        raise NotImplementedError

    def on_failure(self, failure: Failure) -> None:
        """Handle the failure of an attempt: no whole final response will come."""
        raise NotImplementedError

    def on_version_refused(self) -> None:
        """Handle a backend's refusal of the API version. Nothing was executed."""
        raise NotImplementedError

    def on_version_unknown(self) -> bool:
        """Handle a response that lacks the served API version. True: the request is sent elsewhere."""
        raise NotImplementedError

    def forward_interim(self, response: ResponseHead) -> None:
        """Pass an interim response to the client."""
        raise NotImplementedError

    def forward_response(
        self, response: ResponseHead, rewrite: ResponseRewrite, piece: bytes, *, done: bool
    ) -> None:
        """Pass the response head and the first piece of its content to the client."""
        raise NotImplementedError

    def forward_body(self, piece: bytes, *, done: bool) -> None:
        """Pass a further piece of the response's content to the client."""
        raise NotImplementedError

    def begin_tunnel(self, connection: BackendConnection, head: bytes, rest: bytes) -> None:
        """Begin a tunnel: the backend has switched to a requested protocol. `head`: of the 101 for the
        client; `rest`: what came behind it."""
        raise NotImplementedError


@final
class Attempt(ResponseReceiver):
    """A request's attempt at one member, in `Context.in_flight_by_member` from `begin` to `end`."""

    __slots__ = ("_began", "_buffered", "_owner", "connection", "ended", "member", "reused", "sent_at")

    def __init__(self, owner: AttemptOwner, member: Member) -> None:
        self._owner = owner
        self.member = member
        self.reused = False
        """Whether the request was sent on a connection that was idle in the pool."""
        self.sent_at = 0.0
        """Monotonic seconds at which the request head was written. Facts from the response are dated so, as
        the backend may have composed it soon after: a slow response never replaces a later probe."""
        self._began = 0.0
        """Time at which a new backend connection was requested; 0: one was idle, or nothing is traced."""
        self.ended = False
        self.connection: BackendConnection | None = None
        """Backend connection; None while it is being made, and after the response has ended."""
        self._buffered: BufferedResponse | None = None

    # -- stop 7: to the backend

    def begin(self, *, new_connection: bool) -> bool:
        """Send the request on an idle connection, unless `new_connection`; False: one is being made."""
        owner, member = self._owner, self.member
        body = owner.body
        owner.context.in_flight_by_member[member.key] += 1
        pool = owner.downstream.pools.of(member)
        connection = None if new_connection else pool.acquire(verify=body is not None and body.streams)
        if connection is None:
            if owner.context.tracing is not None:
                self._began = owner.context.clock()
            pool.connect(self, owner.resolution.view.service)
            return False
        self.reused = True
        self._send(connection)
        return True

    def on_connection(self, connection: BackendConnection) -> None:
        body = self._owner.body
        if body is not None and body.streams and connection.readable():
            # What is sent of the body is not held any more: check before anything is taken of it.
            connection.abandon()
            self.on_failure(Failure.NOT_SENT)
            return
        if self._owner.request.upgrade:
            connection.use_once()
        self._send(connection)
        self._owner.on_sent()

    def _send(self, connection: BackendConnection) -> None:
        """Write the request head, and the part of the body that has arrived (stop 7 of 8)."""
        owner, body = self._owner, self._owner.body
        context, request, resolution = owner.context, owner.request, owner.resolution
        self.connection = connection
        self.sent_at = context.clock()
        view = resolution.view
        reader = context.response_reader(view)
        connection.start(self, reader, view.service, body, is_head_request=request.method == "HEAD")
        request_id = owner.record.request_id
        if request_id and is_made(request, request_id):
            sent_ids = connection.sent_ids
            if len(sent_ids) >= MAX_SENT_IDS:
                del sent_ids[0]
            sent_ids.append((request_id, hash(request.path)))
        # Writes are collected: the response before this one may fill the buffer after this request has begun.
        if owner.downstream.congested:
            connection.pause_reading()
        tracing, end = context.tracing, b""
        if tracing is not None and not request.trace and resolution.request_edits is None:
            end = tracing.head_end(owner.record)
        traced = end or b"\r\n"
        head = compose_upstream_head(
            request,
            owner.downstream.peer,
            resolution,
            self.member,
            path=owner.path,
            request_id=request_id,
            end=traced if body is None else body.framing_line() + traced,
        )
        if tracing is not None and not end:
            head = tracing.send(
                head,
                owner.record,
                self.member.backend,
                self._began or self.sent_at,
                resolution.request_edits,
            )
        if body is None:
            context.send(connection, head)
            return
        connection.send(head + body.data_to_send())
        if body.streams:
            context.flush()

    def send_body(self, body: RequestBody) -> None:
        """Send more of a streaming request body, once there is a backend connection."""
        if self.connection is not None and (piece := body.data_to_send()):
            self.connection.send_more(piece)

    def end(self) -> None:
        """Stop counting the request at its member. A connection still in use is closed, not reused."""
        self.ended = True
        context = self._owner.context
        if context.request_queue.watches:
            context.request_queue.give_back(self.member.key)
        else:
            context.in_flight_by_member[self.member.key] -= 1
        if self.connection is not None:
            self.connection.abandon()

    # -- the first half of stop 8: what the response shows

    def is_misplaced(self, response: ResponseHead, sent_ids: SentIds) -> bool:
        owner = self._owner
        return is_misplaced(
            response.passthrough,
            owner.context.request_ids.mark,
            owner.resolution.request_ids,
            owner.record.request_id,
            owner.request.path,
            sent_ids,
        )

    def on_interim(self, response: ResponseHead) -> None:
        self._owner.forward_interim(response)

    def on_switch(self, response: ResponseHead, head: bytes, rest: bytes) -> Failure | None:
        """Handle a 101 (stop 8 of 8). No tunnel begins without a request for it, or at another version than
        the negotiated one: it may last for days."""
        owner, connection, resolution = self._owner, self.connection, self._owner.resolution
        protocol = agreed_protocol(head, owner.request.upgrade, resolution.view.service.upgrade)
        if connection is None or not protocol:
            return Failure.BAD_REPLY
        owner.record.backend_seconds = owner.context.clock() - self.sent_at
        owner.record.response_id = response.request_id
        if owner.context.ejections.watching:
            owner.context.ejections.responded(self.member, response.status)
        rewrite = rewrite_head(resolution, self.member, response.status, response.selected_fields)
        if rewrite.fact is not None:
            self._observe(PassiveObservation(rewrite.fact, self.sent_at))
        if rewrite.mismatch:
            self._report_served_version(rewrite)
            owner.record.negotiated, owner.record.version = resolution.version_text, rewrite.served_text
            return Failure.OTHER_VERSION
        owner.begin_tunnel(connection, switched_head(response, rewrite, protocol), rest)
        return None

    def on_response(self, response: ResponseHead, piece: bytes, *, done: bool) -> None:
        """Handle a complete response head, and the first piece of its content (stop 8 of 8)."""
        owner, member = self._owner, self.member
        context, resolution, record = owner.context, owner.resolution, owner.record
        record.backend_seconds = context.clock() - self.sent_at
        record.response_id = response.request_id
        key = (resolution, member.key, response.status, response.selected)
        rewrite = context.response_cache.get(key)
        if rewrite is None:
            rewrite = rewrite_head(resolution, member, response.status, response.selected_fields)
            context.cache_response(key, rewrite)
        if done:
            self.connection = None
            if context.ejections.watching:
                context.ejections.responded(member, response.status)
        if rewrite.plain and not resolution.rewrites_document:
            owner.forward_response(response, rewrite, piece, done=done)
        else:
            self._on_special_response(response, rewrite, piece, done=done)

    def _on_special_response(
        self, response: ResponseHead, rewrite: ResponseRewrite, piece: bytes, *, done: bool
    ) -> None:
        """Report what the response shows of the member's versions; then retry, buffer or forward it."""
        owner = self._owner
        if rewrite.fact is not None:
            self._observe(PassiveObservation(rewrite.fact, self.sent_at))
        if rewrite.mismatch or rewrite.served_missing:
            self._report_served_version(rewrite)
            if rewrite.served_missing and owner.on_version_unknown():
                return
            record = owner.record
            record.negotiated, record.version = owner.resolution.version_text, rewrite.served_text
        if rewrite.served.version_refusal is VersionRefusal.YES:
            owner.context.snapshots.apply_batch()  # what was just observed counts for the next decision
            self._trace_end(status=response.status)
            owner.on_version_refused()
        elif must_buffer(owner.resolution, response, rewrite):
            limit = owner.resolution.limits.document
            self._buffered = BufferedResponse(
                owner.resolution, self.member, response, rewrite, max_document=limit
            )
            self._buffer(self._buffered, piece, done=done)
        else:
            owner.forward_response(response, rewrite, piece, done=done)

    def _report_served_version(self, rewrite: ResponseRewrite) -> None:
        """Report a served version that is not the negotiated one, or that is missing where it must not be."""
        owner = self._owner
        version = owner.resolution.version
        assert version is not None, "without a negotiated version there is nothing to contradict"
        owner.context.metrics.count(
            OfBackend.contradictions, service=self.member.service, backend=self.member.backend.name
        )
        self._observe(
            VersionMismatch(version, self.sent_at, _first_segments(owner.path))
            if rewrite.mismatch
            else ServedVersionMissing(self.sent_at)
        )

    def _observe(self, fact: Fact) -> None:
        self._owner.context.observe(self.member.service, self.member.backend.name, fact)

    def on_response_body(self, piece: bytes, *, done: bool) -> None:
        if done:
            self.connection = None
            if self._owner.context.ejections.watching:
                buffered, owner = self._buffered, self._owner
                status = owner.record.status if buffered is None else buffered.response.status
                owner.context.ejections.responded(self.member, status)
        if self._buffered is not None:
            self._buffer(self._buffered, piece, done=done)
        else:
            self._owner.forward_body(piece, done=done)

    def _buffer(self, buffered: BufferedResponse, piece: bytes, *, done: bool) -> None:
        """Collect a discovery document or possible version refusal before the client gets anything."""
        owner = self._owner
        buffered.add(piece)
        if not done and not buffered.too_large:
            return
        self._buffered = None
        buffered.join()
        advertisement = buffered.refusal_advertisement() if done else None
        if advertisement is not None:
            self._observe(PassiveObservation(advertisement, self.sent_at))
            owner.context.snapshots.apply_batch()  # what was just observed counts for the next decision
            self._trace_end(status=buffered.response.status)
            owner.on_version_refused()
        elif buffered.may_refuse or self._rewrite_document(buffered):
            owner.forward_response(buffered.response, buffered.rewrite, buffered.body, done=done)
        else:
            self._trace_end(status=buffered.response.status, error=Failure.BAD_DOCUMENT)
            owner.on_failure(Failure.BAD_DOCUMENT)

    def _rewrite_document(self, buffered: BufferedResponse) -> bool:
        """Rewrite a discovery document for the client, and cache it; False: it cannot be shown."""
        owner = self._owner
        public_base = owner.downstream.peer.public_base(owner.request, owner.resolution.prefix)
        if not buffered.rewrite_document(owner.request, public_base, owner.context.rewrite_cache):
            return False
        if buffered.cached_document is not None:
            view, endpoint = owner.resolution.view, owner.resolution.endpoint
            key = document_key(view, endpoint, owner.path, owner.request.query)
            owner.context.cached_documents.keep(key, buffered.cached_document)
        return True

    def on_failure(self, failure: Failure) -> None:
        """Report a failed, broken or late backend connection to the exchange."""
        self.connection = None
        if not self.ended:
            self._trace_end(error=failure)
            self._owner.context.ejections.failed(self.member, failure, reused=self.reused)
            self._owner.on_failure(failure)

    def _trace_end(self, *, status: int = 0, error: str = "") -> None:
        """End the attempt's trace span: the request goes on without it, or ends without its response."""
        owner = self._owner
        tracing, record = owner.context.tracing, owner.record
        if tracing is None:
            return
        if not self.sent_at:
            tracing.not_sent(record, self.member.backend, self._began)
        tracing.end_attempt(record, owner.context.clock(), status=status, error=error)

    # -- flow control: each side is read only as fast as the other side takes it

    def pause_request(self) -> None:
        self._owner.downstream.pause_reading()

    def resume_request(self) -> None:
        self._owner.downstream.resume_reading()


def _first_segments(path: str) -> str:
    """First two segments of a request path: one odd resource is not the whole API (semantics, Knowing)."""
    segments = [segment for segment in path.split("/") if segment]
    return f"/{'/'.join(segments[:2])}"[:MAX_MISMATCH_PATH]
