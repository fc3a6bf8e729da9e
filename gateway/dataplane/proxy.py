"""THE HOT PATH: one request, from its complete head to its reply's last byte.

      client                        gateway                             backend
        |  --- 1 bytes ------>  downstream: head complete                  |
        |                       2 one snapshot                             |
        |                       3 route  4 ask  5 settle  6 select         |
        |                         (one pure call: core.decision.decide)    |
        |                       7 head written anew  ---- bytes --------> |
        |                       8 reply's marks      <--- bytes --------- |
        |  <-- bytes ----------   written anew, one Outcome told           |

The numbers stand again in the code below. What can go wrong after stop 6 is a row of `failures`; what is decided is
never decided here. No coroutine and no timer per request: callbacks of two connections, and one coarse clock.
"""

from __future__ import annotations

from random import getrandbits
from time import monotonic
from typing import TYPE_CHECKING, Final, assert_never

from gateway.core.decision import (
    RETRY_AFTER,
    Answer,
    Decision,
    Forward,
    Refuse,
    Resolution,
    Unrouted,
    Verdict,
    decide,
    failed,
    next_member,
)
from gateway.core.dialect import Failure as Told
from gateway.core.dialect import Refused
from gateway.core.fleet import Overheard
from gateway.core.message import Reply
from gateway.core.replying import Marking, mark
from gateway.core.selection import TICKET_BITS
from gateway.dataplane import own_reply
from gateway.dataplane.chunked import LAST_CHUNK, chunk
from gateway.dataplane.documents import HeldReply, holds, location_lines, prepare
from gateway.dataplane.failures import FAILURES, Blame, Failure, Retry, may_retry
from gateway.dataplane.http1 import BY_LENGTH, NO_BODY, ReplyReader, RequestReader
from gateway.dataplane.upload import Upload
from gateway.telemetry.outcome import NO_BACKEND, Outcome

if TYPE_CHECKING:
    from gateway.core.backend import Member
    from gateway.dataplane.downstream import ClientConnection
    from gateway.dataplane.upstream import BackendConnection

LAST_PIECE_OF_HEAD: Final = b"\r\n"


class Exchange(Outcome):
    """One request and its reply. Is its own `Outcome`."""

    _resolution: Resolution
    _member: Member | None = None
    _connection: BackendConnection | None = None
    _upload: Upload | None = None
    _held: HeldReply | None = None
    _tried: tuple[str, ...] = ()
    _prefix: str = ""
    _path: str = ""
    _sent_at: float = 0.0
    _retrying = False
    _counted = False
    _refused_once = False
    _replying = False
    _chunking = False
    _keep = True
    _ended = False
    wants_connection = False
    """A connection is being made for it."""
    uploaded = True
    """Its request's body has been read to the end."""

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
        return self.downstream.peer.client(self.request)

    # -- stops 2 to 6

    def begin(self) -> None:
        """The head is complete; decide what happens to it and do so."""
        request, context = self.request, self.context
        if request.framing != NO_BODY:
            self.uploaded = False
            self._upload = Upload(request, context.limits)
        decision = self._decide()
        if type(decision) is not Forward:
            self._say_decided(decision)
            return
        self._counted = True
        context.in_flight[self.service] = context.in_flight.get(self.service, 0) + 1
        if self._upload is None:
            self._dispatch(decision.member)
            return
        self._member = decision.member
        self.downstream.deadline = context.now + context.timeouts.client_body_idle
        if self._upload.too_large:
            self._fail(Failure.BODY_TOO_LARGE)
            return
        if request.expects_continue:
            self.context.send(self.downstream.transport, own_reply.CONTINUE)
        if self._upload.streams:
            self._dispatch(decision.member)

    def _decide(self) -> Decision:
        request, context = self.request, self.context
        snapshot = context.snapshots.current  # 2: once; whatever happens later, this request has seen one truth
        decision = decide(  # 3 to 6
            snapshot,
            request,
            request.host,
            context.load,
            getrandbits(TICKET_BITS),
            context.recall,
        )
        if not isinstance(decision, Unrouted):
            resolution = self._resolution = decision.resolution
            service = resolution.view.service
            self.service = service.name
            self._prefix = service.match.prefix if service.match.strip_prefix else ""
            self.version = resolution.version_text
            self.verdict = resolution.verdict
            self.ask = resolution.ask.kind if resolution.ask is not None else None
            if isinstance(decision, Forward):
                self._path = decision.path
        return decision

    def _say_decided(self, decision: Refuse | Answer | Unrouted) -> None:
        """Refusals, own answers, no service: no backend is touched."""
        match decision:
            case Unrouted():
                self._say(own_reply.plain(404))
            case Answer(_, reply):
                self._say(reply)
            case Refuse(_, reply, verdict):
                self.verdict = verdict if self.ask is not None else None
                self._say(reply)
            case _:
                assert_never(decision)

    # -- stop 7: to the backend

    def _dispatch(self, member: Member) -> None:
        """Get a connection to `member`; the request is written as soon as there is one."""
        context = self.context
        key = member.key
        self._member = member
        self.backend = member.backend.name
        self.attempts += 1
        context.load[key] = context.load.get(key, 0) + 1
        pool = self.downstream.worker.pool(member)
        connection = pool.take()
        if connection is not None:
            self.on_connection(connection)
        else:
            self.wants_connection = True
            if self._upload is not None and not self.uploaded:
                self.downstream.pause_reading()
            pool.connect(self)

    def on_connection(self, connection: BackendConnection) -> None:
        """Write the head anew, and what there is of the body."""
        member, upload = self._member, self._upload
        assert member is not None
        self.wants_connection = False
        self._connection = connection
        self._sent_at = monotonic()
        connection.start(
            self, self.context.reply_names(self._resolution.view), to_head=self.method == "HEAD"
        )
        if upload is None:
            self.context.send(connection.transport, self._head(member, b""))
            return
        self.context.send(connection.transport, self._head(member, upload.framing_line()) + upload.take())
        if not self.uploaded:
            self.downstream.resume_reading()

    def _head(self, member: Member, framing: bytes) -> bytes:
        """7: what the backend reads. Every owned header was removed when the head was read; the settled version stands
        in `marks`, in the spelling that this member understands."""
        request, resolution = self.request, self._resolution
        backend = member.backend
        target = request.target
        service = resolution.view.service
        if self._prefix or backend.path or service.dialect.rewrites_target:
            local = self._path if self._prefix else request.path
            if request.query or target[-1:] == b"?":
                local = f"{local}?{request.query}"
            if service.dialect.rewrites_target and resolution.version is not None:
                local = service.dialect.write_target(resolution.place, local, resolution.version)
            target = (backend.path + local).encode("ascii")
        if resolution.place.document and not resolution.view.offer.transparent:
            prepare(request)
        return b"".join(
            (
                request.method.encode(),
                b" ",
                target,
                b" HTTP/1.1",
                request.kept,
                b"Host: ",
                (request.host or backend.authority).encode(),
                LAST_PIECE_OF_HEAD,
                resolution.silent_marks if member.silent else resolution.marks,
                self.downstream.peer.lines(request, self._prefix),
                framing,
                LAST_PIECE_OF_HEAD,
            )
        )

    def on_request_body(self, data: bytes) -> bytes:
        """Take body bytes from the client; returns what stands behind the body. Raises `FramingError`."""
        upload = self._upload
        assert upload is not None
        rest = upload.feed(data)
        self.uploaded = upload.done
        if upload.too_large:
            self._fail(Failure.BODY_TOO_LARGE)
        elif self._connection is not None:
            piece = upload.take()
            if piece:
                self._connection.deadline = self.context.now + self.context.timeouts.backend_head
                self.context.send(self._connection.transport, piece)
        elif not self.wants_connection and self._member is not None and (upload.done or upload.streams):
            self._dispatch(self._member)
        return rest

    def skip_body(self, data: bytes) -> bytes:
        """Read over body bytes after the reply was given; returns what stands behind. Raises `FramingError`."""
        assert self._upload is not None
        rest = self._upload.skip(data)
        self.uploaded = self._upload.done
        return rest

    # -- stop 8: back to the client

    def on_reply(self, reply: ReplyReader, piece: bytes, *, done: bool) -> None:
        """The reply's head is complete, with `piece` of its body."""
        member, resolution, context = self._member, self._resolution, self.context
        assert member is not None
        self.backend_seconds = monotonic() - self._sent_at
        key = (resolution, member.key, reply.status, reply.apart)
        marking = context.markings.get(key)
        if marking is None:
            marking = mark(resolution, member, reply.status, reply.fields)
            context.remember(key, marking)
        if done:
            self._connection = None
        if marking.fact is not None:
            context.observe(self.service, self.backend, Overheard(marking.fact, self._sent_at))
        if marking.contradicts:
            context.metrics.contradiction(self.service, self.backend)
        if marking.served.refused is Refused.YES:
            self._on_version_refused()
        elif holds(resolution, reply, marking):
            self._held = HeldReply(resolution, member, reply, marking)
            self._hold(piece, done=done)
        else:
            self._pass_on_reply(reply, marking, piece, done=done)

    def _pass_on_reply(self, reply: ReplyReader, marking: Marking, piece: bytes, *, done: bool) -> None:
        """8: the backend's head with the owned headers written anew, and the body as it comes."""
        request, status = self.request, reply.status
        self.status = status
        self._replying = True
        close = self.downstream.must_close() or not self.uploaded
        framing = b""
        if reply.length >= 0:
            if status != 204:
                framing = b"Content-Length: %d\r\n" % reply.length
        elif reply.framing != NO_BODY:
            if request.minor:
                framing = b"Transfer-Encoding: chunked\r\n"
                self._chunking = True
            else:
                close = True
        self._keep = not close
        self.bytes_out = len(piece)
        if self._chunking:
            piece = chunk(piece) + LAST_CHUNK if done else chunk(piece)
        self.context.send(self.downstream.transport, 
            b"".join(
                (
                    b"HTTP/1.1 %d %b" % (status, reply.reason),
                    reply.kept,
                    marking.lines,
                    self._location(reply) if reply.location else b"",
                    framing,
                    self.downstream.connection_line(close=close),
                    LAST_PIECE_OF_HEAD,
                    piece,
                )
            )
        )
        if done:
            self._end()

    def on_reply_body(self, piece: bytes, *, done: bool) -> None:
        """More of the reply's body."""
        if done:
            self._connection = None
        if self._held is not None:
            self._hold(piece, done=done)
            return
        self.bytes_out += len(piece)
        if self._chunking:
            piece = chunk(piece) + LAST_CHUNK if done else chunk(piece)
        if piece:
            self.context.send(self.downstream.transport, piece)
        if done:
            self._end()

    def _hold(self, piece: bytes, *, done: bool) -> None:
        """A discovery document, or a refusal that only its body can tell: read whole before anything is said."""
        held = self._held
        assert held is not None
        held.add(piece)
        if not done and not held.too_large:
            return
        self._held = None
        advert = held.refusal() if done else None
        if advert is not None:
            self.context.observe(self.service, self.backend, Overheard(advert, self._sent_at))
            self._on_version_refused()
            return
        public = self.downstream.peer.public(self.request, self._prefix)
        body = held.rewritten(self.request, public) if done else None
        if body is None:
            self._pass_on_reply(held.reply, held.marking, held.body, done=done)
            return
        held.reply.framing, held.reply.length = BY_LENGTH, len(body)
        self._pass_on_reply(held.reply, held.marking, body, done=True)

    def _location(self, reply: ReplyReader) -> bytes:
        assert self._member is not None
        public = self.downstream.peer.public(self.request, self._prefix)
        return location_lines(reply, self._member.backend, self.request, public)

    # -- what can go wrong

    def on_failure(self, failure: Failure) -> None:
        """A connection could not be made, or broke, or was too slow."""
        self.wants_connection = False
        self._connection = None
        if not self._ended:
            self._fail(failure)

    def on_client_gone(self) -> None:
        """Nobody is left to answer. What was sent may be executed; nothing is sent again."""
        self.error = Failure.CLIENT_GONE
        self._keep = False
        self._end()

    def on_client_stalled(self) -> None:
        """It does not send its body, or does not take its reply."""
        self._fail(Failure.CLIENT_STALLED)

    def on_client_broke(self) -> None:
        """Its body is not framed as HTTP requires."""
        self._fail(Failure.CLIENT_BROKE)

    def _fail(self, failure: Failure) -> None:
        """Another backend, or the reply that the table names, or, once the reply has begun, an abort."""
        if self._replying:
            self.error = failure
            self._keep = False
            self.downstream.abort()
            self._end()
            return
        self._drop_connection()
        self._leave_member()
        row, plan = FAILURES[failure], self._resolution.view.service.retry
        if row.retry is not Retry.NEVER and may_retry(failure, self.method, body_held=self._held_whole):
            if failure in (Failure.CONNECT, Failure.CONNECT_TIMEOUT):
                allowed = plan.on_connect
            else:
                allowed = plan.on_no_reply and self._within_budget(plan.attempts)
            if allowed and self._again(failure):
                return
        self._tell(failure)

    def _on_version_refused(self) -> None:
        """The map was stale and has learned; nothing was executed. Decide anew, once, without this backend."""
        self._drop_connection()
        self._leave_member()
        first, self._refused_once = not self._refused_once, True
        decision = self._decide()
        if not isinstance(decision, Forward):
            self._say_decided(decision)
        elif not (
            first
            and self._held_whole
            and self._resolution.view.service.retry.on_version
            and self._again(Failure.VERSION_REFUSED)
        ):
            self._tell(Failure.VERSION_REFUSED)

    def _again(self, failure: Failure) -> bool:
        """Send it to a candidate that was not tried yet; False when there is none."""
        member = next_member(self._resolution, self.context.load, getrandbits(TICKET_BITS), self._tried)
        if member is None:
            return False
        self.context.metrics.retry(self.service, failure)
        self._dispatch(member)
        return True

    def _within_budget(self, attempts: int) -> bool:
        """Requests that were sent once may be sent again only while few are (hardening, Retries)."""
        if self.attempts >= attempts or not (self._retrying or self.context.may_retry_sent(self.service)):
            return False
        if not self._retrying:
            self._retrying = True
            self.context.retrying += 1
        return True

    @property
    def _held_whole(self) -> bool:
        return self._upload is None or self._upload.held

    def _leave_member(self) -> None:
        """The member has no more of this request in flight."""
        member, self._member = self._member, None
        if member is not None and self.attempts > len(self._tried):
            self._tried = (*self._tried, member.key)
            self.context.load[member.key] -= 1

    def _drop_connection(self) -> None:
        """Its state is unknown: never reused."""
        connection, self._connection = self._connection, None
        self.wants_connection = False
        if connection is not None:
            connection.abandon()

    # -- the end

    def _tell(self, failure: Failure) -> None:
        """The reply that the table names, in the dialect's shape."""
        row = FAILURES[failure]
        resolution = self._resolution
        self.error = failure
        if self.verdict is not None:
            self.verdict = Verdict.UNAVAILABLE
        retry_after = RETRY_AFTER if row.status == 503 else None
        told = Told(row.status, row.title, row.sentence, retry_after, resolution.bounds, resolution.ask)
        self._say(failed(resolution.view, told), broken=row.blame is Blame.CLIENT)

    def _say(self, reply: Reply, *, broken: bool = False) -> None:
        """A whole reply of our own. `broken`: what the client sends further cannot be told apart."""
        self.status = reply.status
        self.backend = NO_BACKEND
        self.bytes_out = len(reply.body)
        unread = self._upload is not None and not self.uploaded
        close = self.downstream.must_close() or broken
        if unread and (self.request.expects_continue or not (self._upload and self._upload.skippable())):
            close = True
        self._keep = not close
        self.downstream.say(reply, to_head=self.method == "HEAD", close=close)
        self._end()

    def _end(self) -> None:
        """Give back what was counted and tell the one Outcome."""
        if self._ended:
            return
        self._ended = True
        context = self.context
        if self._connection is not None or self.wants_connection:
            self._drop_connection()
        member = self._member
        if member is not None and self.attempts > len(self._tried):
            context.load[member.key] -= 1
        if self._counted:
            context.in_flight[self.service] -= 1
        if self._retrying:
            context.retrying -= 1
        self.seconds = monotonic() - self._started
        context.record(self)
        self.downstream.finished(self, keep=self._keep)

    # -- flow control

    def pause_reply(self) -> None:
        """The client takes no more: nothing further is read from the backend."""
        if self._connection is not None:
            self._connection.transport.pause_reading()

    def resume_reply(self) -> None:
        """It takes again."""
        if self._connection is not None:
            self._connection.transport.resume_reading()
