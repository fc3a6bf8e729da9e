"""What happens to an exchange when something goes wrong, and how every exchange ends.

The slow half of `proxy`: another backend, the reply that `failures` names, or an abort; and the one place
where counts are given back and the Outcome is told. Decides no version: it asks `decide` again or takes the
next candidate.
"""

from __future__ import annotations

from abc import abstractmethod
from random import getrandbits
from time import monotonic
from typing import TYPE_CHECKING, assert_never

from gateway.core.decision import (
    RETRY_AFTER,
    Answer,
    Decision,
    Forward,
    Refuse,
    Resolution,
    Unrouted,
    Verdict,
    failed,
)
from gateway.core.dialect import Failure as Told
from gateway.core.selection import TICKET_BITS
from gateway.core.succession import next_member
from gateway.dataplane import own_reply
from gateway.dataplane.failures import FAILURES, Blame, Failure, may_retry
from gateway.telemetry.outcome import NO_BACKEND, Outcome

if TYPE_CHECKING:
    from gateway.core.backend import Member
    from gateway.core.message import Reply
    from gateway.dataplane.context import Context
    from gateway.dataplane.downstream import ClientConnection
    from gateway.dataplane.http1 import RequestReader
    from gateway.dataplane.upload import Upload
    from gateway.dataplane.upstream import BackendConnection


class Recovery(Outcome):
    """The state of one exchange, and what is done with it when the straight way is barred."""

    downstream: ClientConnection
    request: RequestReader
    context: Context
    uploaded = True
    """Its request's body has been read to the end."""
    wants_connection = False
    """A connection is being made for it."""
    ended = False

    _resolution: Resolution
    _member: Member | None = None
    """Whom it is sent to, counted in `Context.load` while it is."""
    _connection: BackendConnection | None = None
    _upload: Upload | None = None
    _tried: tuple[str, ...] = ()
    _reused = False
    """It was sent on a connection that had been used before."""
    _anew = False
    """It is sent on new connections only."""
    _started = 0.0
    _counted = False
    _replying = False
    """The client has the reply's head: the only honest failure left is an abort."""
    _keep = True
    """The client's connection goes on after this."""
    _retrying = False
    """Counted in the retry budget."""
    _waiting = False
    """It waits for its turn in the retry budget."""
    _waited_out = False
    """A backend has let it wait for a reply until the time was up."""
    _refused_once = False

    @abstractmethod
    def _decide(self) -> Decision:
        """Stops 2 to 6."""

    @abstractmethod
    def _dispatch(self, member: Member) -> None:
        """Stop 7."""

    @abstractmethod
    def on_request_body(self, data: bytes) -> bytes:
        """Take body bytes from the client; returns what stands behind the body. Raises `FramingError`."""

    def skip_body(self, data: bytes) -> bytes:
        """Read over body bytes after the reply was given; returns what stands behind. Raises
        `FramingError`."""
        assert self._upload is not None
        rest = self._upload.skip(data)
        self.uploaded = self._upload.done
        return rest

    # -- what the two connections report

    def on_failure(self, failure: Failure) -> None:
        """A connection could not be made, or broke, or was too slow."""
        self.wants_connection = False
        self._connection = None
        if not self.ended:
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

    def pause_reply(self) -> None:
        """The client takes no more: nothing further is read from the backend, whose silence is then not its
        own."""
        if self._connection is not None:
            self._connection.pause_reading()

    def resume_reply(self) -> None:
        """It takes again."""
        if self._connection is not None:
            self._connection.resume_reading()

    # -- ways round

    def _fail(self, failure: Failure) -> None:
        """Another backend, or the reply that the table names, or, once the reply has begun, an abort."""
        if self._replying:
            self.error = failure
            self._keep = False
            self.downstream.abort()
            self._end()
            return
        self._drop_connection()
        # A kept connection that ended says nothing about who listens there now: a backend that closes those
        # that are idle, or has been started again, is as good as any. But so may all other kept ones have.
        kept_ended = failure is Failure.NO_REPLY and self._reused
        self._anew = self._anew or kept_ended
        self._leave_member(tried=not kept_ended)
        if may_retry(failure, self.method, body_held=self._held_whole):
            if failure in (Failure.CONNECT, Failure.CONNECT_TIMEOUT):
                moved = self._resolution.view.service.retry.on_connect and self._again(failure)
            else:
                moved = self._may_repeat(failure) and self._repeat(failure)
            if moved:
                return
        self._tell(failure)

    def _on_version_refused(self) -> None:
        """The map was stale and has learned; nothing was executed. Decide anew, once, without this
        backend."""
        self._drop_connection()
        self._leave_member()
        if self._retrying:
            self._leave_budget()
        first, self._refused_once = not self._refused_once, True
        service, refused = self.service, self._resolution.version
        decision = self._decide()
        if self.service != service:  # a reload has given the path to another one
            self.context.in_flight[service] -= 1
            self.context.in_flight[self.service] += 1
        if self._resolution.version != refused:
            self._tried = ()  # `latest` settles on less now: whoever refused may serve that
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
        """Send it to somebody who was not tried yet; False when there is nobody."""
        member = self._next()
        if member is None:
            return False
        self.context.metrics.retry(self.service, failure)
        self._dispatch(member)
        return True

    def _next(self) -> Member | None:
        """Who can serve what was settled on, by what is known by now."""
        context = self.context
        return next_member(
            self._resolution, context.snapshots.current, context.load, getrandbits(TICKET_BITS), self._tried
        )

    def _may_repeat(self, failure: Failure) -> bool:
        """Whether what was sent may be sent once more. A second time that nobody replied is the last: no
        client waits three times that long."""
        plan = self._resolution.view.service.retry
        if failure is Failure.REPLY_TIMEOUT:
            if self._waited_out:
                return False
            self._waited_out = True
        return plan.on_no_reply and self.attempts < plan.attempts

    def _repeat(self, failure: Failure) -> bool:
        """Send again what was sent, now or when it is its turn; False when there is nobody to send it to."""
        context = self.context
        if self._retrying or context.budget.take(self.service):
            self._retrying = True
            return self._again(failure)
        if self._next() is None:
            return False
        context.budget.wait(self.service, self, failure, context.now + context.timeouts.backend_head)
        self._waiting = True
        return True

    def on_turn(self, failure: Failure) -> None:
        """It waited for the retry budget, and is counted in it from now on."""
        self._waiting = False
        self._retrying = True
        if not self._again(failure):
            self._tell(failure)

    def on_turn_missed(self, failure: Failure) -> None:
        """It waited as long as it would have for a reply."""
        self._waiting = False
        self.context.metrics.retry_given_up(self.service)
        self._tell(failure)

    def _leave_budget(self) -> None:
        """It is replied to, or over: another one may take its turn."""
        self._retrying = False
        self.context.budget.give_back(self.service)

    @property
    def _held_whole(self) -> bool:
        return self._upload is None or self._upload.held

    def _leave_member(self, *, tried: bool = True) -> None:
        """The member has no more of this request in flight. `tried`: it is not asked again."""
        member, self._member = self._member, None
        if member is not None:
            if tried:
                self._tried = (*self._tried, member.key)
            self.context.load[member.key] -= 1

    def _drop_connection(self) -> None:
        """Its state is unknown: never reused."""
        connection, self._connection = self._connection, None
        self.wants_connection = False
        if connection is not None:
            connection.abandon()

    # -- own replies, and the end

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
        close = broken or self.downstream.must_close()
        if self._upload is not None and not self.uploaded:
            close = close or self.request.expects_continue or not self._upload.skippable()
        self._keep = not close
        self.downstream.say(reply, to_head=self.method == "HEAD", close=close)
        self._end()

    def _end(self) -> None:
        """Give back what was counted and tell the one Outcome."""
        if self.ended:
            return
        self.ended = True
        context = self.context
        if self._connection is not None or self.wants_connection:
            self._drop_connection()
        if self._member is not None:
            context.load[self._member.key] -= 1
        if self._counted:
            context.in_flight[self.service] -= 1
        if self._retrying:
            self._leave_budget()
        elif self._waiting:
            context.budget.leave(self.service, self)
        self.seconds = monotonic() - self._started
        context.record(self)
        self.downstream.finished(self, keep=self._keep)
