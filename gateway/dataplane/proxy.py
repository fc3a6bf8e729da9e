"""THE HOT PATH: one request, from its complete head to its reply's last byte.

      client                        gateway                             backend
        |  --- 1 bytes ------>  downstream: head complete                  |
        |                       2 one snapshot                             |
        |                       3 route  4 ask  5 settle  6 select         |
        |                         (one pure call: core.decision.decide)    |
        |                       7 head written anew  ---- bytes ---------> |
        |                       8 reply's marks      <--- bytes ---------- |
        |  <-- bytes ----------   written anew, one Outcome told           |

The numbers stand again in the code below. What can go wrong after stop 6 is `recovery`; what is decided is
never decided here. No coroutine and no timer per request: callbacks of two connections, and one coarse clock.
"""

from __future__ import annotations

from random import getrandbits
from time import monotonic
from typing import TYPE_CHECKING, final

from gateway.core.decision import Answer, Decision, Forward, Unrouted, decide
from gateway.core.dialect import Refused
from gateway.core.fleet import Contradicted, Overheard
from gateway.core.replying import Marking, mark
from gateway.core.selection import TICKET_BITS
from gateway.dataplane import own_reply
from gateway.dataplane.chunked import LAST_CHUNK, chunk
from gateway.dataplane.documents import HeldReply, holds, location_lines, prepare
from gateway.dataplane.failures import IDEMPOTENT, Failure
from gateway.dataplane.fields import BY_LENGTH, NO_BODY
from gateway.dataplane.recovery import Recovery
from gateway.dataplane.upload import Upload

if TYPE_CHECKING:
    from gateway.core.backend import Member
    from gateway.dataplane.downstream import ClientConnection
    from gateway.dataplane.http1 import ReplyReader, RequestReader
    from gateway.dataplane.upstream import BackendConnection


@final
class Exchange(Recovery):
    """One request and its reply. Is its own `Outcome`."""

    _first: Member | None = None
    """Chosen when the head was complete, and not dispatched to before a small body is."""
    _held: HeldReply | None = None
    _sent_at = 0.0
    _path = ""
    _chunking = False

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
        context = self.context
        if self.request.block.framing != NO_BODY:
            self.uploaded = False
            self._upload = Upload(self.request.block, context.limits)
        decision = self._decide()
        if type(decision) is not Forward:
            self._say_decided(decision)
            return
        context.in_flight[self.service] += 1
        self._counted = True
        if self._upload is None:
            self._dispatch(decision.member)
        else:
            self._await_body(self._upload, decision.member)

    def _decide(self) -> Decision:
        request, context = self.request, self.context
        decision = decide(  # 3 to 6
            context.snapshots.current,  # 2: once; whatever happens later, this request has seen one truth
            request,
            request.host,
            context.load,
            getrandbits(TICKET_BITS),
            context.recall,
            spent=context.meter,
        )
        if type(decision) is not Unrouted:
            resolution = self._resolution = decision.resolution
            self.service = resolution.service
            self.version = resolution.version_text
            self.verdict = resolution.verdict
            self.ask = resolution.ask_kind
            if type(decision) is Forward:
                self._path = decision.path
            elif type(decision) is Answer and resolution.place.metered:
                context.meter.take(resolution.service)
        return decision

    def _await_body(self, upload: Upload, member: Member) -> None:
        """A small body is held whole before a backend is troubled with it; a large one streams."""
        self.downstream.deadline = self.context.now + self.context.timeouts.client_body_idle
        if upload.too_large:
            self._fail(Failure.BODY_TOO_LARGE)
            return
        if self.request.expects_continue:
            self.context.send(self.downstream.transport, own_reply.CONTINUE)
        self._first = member
        if upload.streams:
            self._dispatch(member)

    # -- stop 7: to the backend

    def _dispatch(self, member: Member) -> None:
        """Get a connection to `member`; the request is written as soon as there is one."""
        self._first = None
        self._member = member
        self.backend = member.backend.name
        self.attempts += 1
        self.context.load[member.key] += 1
        pool = self.downstream.worker.pool(member)
        connection = None if self._anew else pool.take(sure=self.method not in IDEMPOTENT)
        self._reused = connection is not None
        if connection is not None:
            self.on_connection(connection)
            return
        self.wants_connection = True
        if not self.uploaded:
            self.downstream.pause_reading()
        pool.connect(self)

    def on_connection(self, connection: BackendConnection) -> None:
        """Write the head anew, and what there is of the body."""
        upload, context = self._upload, self.context
        self.wants_connection = False
        self._connection = connection
        self._sent_at = monotonic()
        connection.start(self, context.reply_names(self._resolution.view), to_head=self.method == "HEAD")
        if self.downstream.congested:  # by the reply before this one
            connection.pause_reading()
        if upload is None:
            context.send(connection.transport, self._head(b"\r\n"))
            return
        context.send(connection.transport, self._head(upload.framing_line() + b"\r\n") + upload.take())
        if not self.uploaded:
            self.downstream.resume_reading()

    def _head(self, end: bytes) -> bytes:
        """7: what the backend reads. Every owned header was taken out when the head was read; the settled
        version stands in `marks`, in the spelling that this member understands."""
        request, resolution, member = self.request, self._resolution, self._member
        assert member is not None
        prefix = resolution.prefix
        target = request.target
        if prefix or member.backend.path or resolution.rewrites_target:
            target = self._rewritten_target(member)
        tail = self.downstream.peer.tail(request, member.backend, prefix)
        if resolution.rewrites_document:
            tail = prepare(tail)
        marks = resolution.silent_marks if member.silent else resolution.marks
        return b"%b %b HTTP/1.1%b%b%b" % (request.method.encode(), target, tail, marks, end)

    def _rewritten_target(self, member: Member) -> bytes:
        """The target without the route's prefix, with the backend's base path, and where the dialect keeps
        its version in it, with the settled one. Everything else stays to the byte."""
        request, resolution = self.request, self._resolution
        if request.target == b"*":  # the server as a whole: it has no path
            return request.target
        query = f"?{request.query}" if b"?" in request.target else ""
        if not resolution.rewrites_target or resolution.version is None:
            kept = self._path if resolution.prefix else request.path
            return (member.backend.path + kept + query).encode("ascii")
        # The dialect knows its API's own paths, also where backends see the prefix before them.
        service = resolution.view.service
        prefix = "" if resolution.prefix else service.match.prefix
        written = service.dialect.write_target(resolution.place, self._path + query, resolution.version)
        if request.path == prefix and written[:2] in {"/", "/?"}:
            written = written[1:]  # the slash is ours: a route's local path is never empty
        return (member.backend.path + prefix + written).encode("ascii")

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
        elif self._first is not None and (upload.done or upload.streams):
            self._dispatch_held(self._first)
        return rest

    def _dispatch_held(self, member: Member) -> None:
        """The body is here. Whom it was meant for may have been drained since, or does not serve it any
        more."""
        if self.context.snapshots.current.views.get(self.service) is self._resolution.view:
            self._dispatch(member)
        elif (now := self._next()) is not None:
            self._dispatch(now)
        else:
            self._tell(Failure.VERSION_REFUSED)

    # -- stop 8: back to the client

    def on_reply(self, reply: ReplyReader, piece: bytes, *, done: bool) -> None:
        """The reply's head is complete, with `piece` of its body."""
        member, resolution, context = self._member, self._resolution, self.context
        assert member is not None
        self.backend_seconds = monotonic() - self._sent_at
        key = (resolution, member.key, reply.status, reply.apart)
        marking = context.markings.get(key)
        if marking is None:
            marking = mark(resolution, member, reply.status, reply.pairs)
            context.remember(key, marking)
        if done:
            self._connection = None
        if marking.plain and not resolution.rewrites_document:
            self._pass_on(reply, marking, piece, done=done)
        else:
            self._on_special_reply(reply, marking, piece, done=done)

    def _on_special_reply(self, reply: ReplyReader, marking: Marking, piece: bytes, *, done: bool) -> None:
        """It brings a fact, contradicts, refuses the version, or must be read whole."""
        context = self.context
        if marking.fact is not None:
            context.observe(self.service, self.backend, Overheard(marking.fact, self._sent_at))
        if marking.contradicts:
            version = self._resolution.version
            assert version is not None, "what was not settled cannot be contradicted"
            context.metrics.contradiction(self.service, self.backend)
            context.observe(self.service, self.backend, Contradicted(version, self._sent_at))
        if marking.served.refused is Refused.YES:
            self._on_version_refused()
        elif holds(self._resolution, reply, marking):
            assert self._member is not None
            self._held = HeldReply(self._resolution, self._member, reply, marking)
            self._hold(piece, done=done)
        else:
            self._pass_on(reply, marking, piece, done=done)

    def _pass_on(self, reply: ReplyReader, marking: Marking, piece: bytes, *, done: bool) -> None:
        """8: the backend's head with the owned headers written anew, and the body as it comes."""
        status, downstream = reply.status, self.downstream
        self.status = status
        self._replying = True
        if self._retrying:
            self._leave_budget()
        close = not self.uploaded or downstream.must_close()
        framing = b""
        if reply.length >= 0:
            if status != 204:
                framing = b"Content-Length: %d\r\n" % reply.length
        elif reply.framing != NO_BODY:
            if self.request.minor:
                framing = b"Transfer-Encoding: chunked\r\n"
                self._chunking = True
            else:
                close = True
        if close:
            self._keep = False
        self.bytes_out = len(piece)
        if self._chunking:
            piece = chunk(piece) + LAST_CHUNK if done else chunk(piece)
        location = self._location(reply) if reply.location else b""
        self.context.send(
            downstream.transport,
            b"%b%b%b%b%b%b\r\n%b"
            % (
                reply.line,
                reply.kept,
                marking.lines,
                location,
                framing,
                downstream.connection_line(close=close),
                piece,
            ),
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
        """A discovery document, or a refusal that only its body can tell: read whole before anything is
        said."""
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
        public = self.downstream.peer.public(self.request, self._resolution.prefix)
        body = held.rewritten(self.request, public) if done else None
        if body is None:
            self._pass_on(held.reply, held.marking, held.body, done=done)
            return
        held.reply.framing, held.reply.length = BY_LENGTH, len(body)
        self._pass_on(held.reply, held.marking, body, done=True)

    def _location(self, reply: ReplyReader) -> bytes:
        assert self._member is not None
        public = self.downstream.peer.public(self.request, self._resolution.prefix)
        return location_lines(reply, self._member.backend, self.request, public)
