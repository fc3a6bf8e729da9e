"""What happens to an exchange when something goes wrong, and how every exchange ends.

After a failure it retries on another backend, writes a local response, or resets the client connection. Every
exchange ends in `_end`, the one place where counts are given back and the RequestRecord is handed out. It
makes no version decision: it calls `decide` again, or `reselect` for another candidate.
"""

from __future__ import annotations

from abc import abstractmethod
from random import getrandbits
from time import monotonic
from typing import TYPE_CHECKING, Final, assert_never

from gateway.core.decision.decision import (
    DOCUMENT_METHODS,
    RETRY_AFTER,
    Answer,
    AnswerKnown,
    Decision,
    DocumentKey,
    Forward,
    NegotiationResult,
    Refuse,
    Resolution,
    Unrouted,
    error_response,
    reselect,
    unavailable,
)
from gateway.core.decision.selection import RANDOM_BITS
from gateway.core.dialect import GatewayError
from gateway.dataplane import local_response
from gateway.dataplane.failures import FAILURES, Failure, Side, may_retry
from gateway.telemetry.request_record import NO_BACKEND, RequestRecord

if TYPE_CHECKING:
    from gateway.core.fleet.backend import Member
    from gateway.core.http.message import Response
    from gateway.dataplane.backend_connection import BackendConnection
    from gateway.dataplane.client_connection import ClientConnection
    from gateway.dataplane.context import Context
    from gateway.dataplane.http1.heads import RequestReader
    from gateway.dataplane.request_body import RequestBody

_NOT_CONNECTED: Final = frozenset({Failure.CONNECT, Failure.CONNECT_TIMEOUT})


class BaseExchange(RequestRecord):
    """The state of one exchange, what it does after a failure, and how it ends.

    After a failure it retries on another backend, writes a local response, or resets the client connection.
    Every exchange ends in `_end`.
    """

    downstream: ClientConnection
    request: RequestReader
    context: Context
    body_received = True
    """The request body has been read to its end, or there is none."""
    wants_connection = False
    """A connection to a backend is being made for this exchange."""
    ended = False

    _resolution: Resolution
    _methods: tuple[str, ...] = ()
    """Every method that a backend may execute for this request."""
    _path = ""
    """The path without the prefix of the route."""
    _member: Member | None = None
    """Where the request is sent; counted in `Context.in_flight_by_member` meanwhile."""
    _connection: BackendConnection | None = None
    _request_body: RequestBody | None = None
    _tried: tuple[str, ...] = ()
    """Keys of the members that are not tried again."""
    _reused = False
    """The request was sent on a connection that was idle in the pool."""
    _new_connection_only = False
    """The request is sent on new connections only."""
    _started = 0.0
    _counted_in_flight = False
    """Counted in `Context.in_flight_by_service`."""
    _response_started = False
    """The response head was written to the client: from now on a failure can only reset the client
    connection."""
    _keep_alive = True
    """The client connection stays open after this exchange."""
    _holds_retry_budget = False
    """Counted in the retry budget."""
    _waiting_for_retry = False
    """Queued in the retry budget."""
    _timed_out_once = False
    """A backend did not respond in time."""
    _version_refused_once = False
    """A backend refused the version."""

    @abstractmethod
    def _decide(self) -> Decision:
        """Stops 2 to 6."""

    @abstractmethod
    def _dispatch(self, member: Member) -> None:
        """Stop 7."""

    @abstractmethod
    def on_request_body(self, data: bytes) -> bytes:
        """Take body bytes from the client; returns the bytes after the body. Raises `FramingError`."""

    def skip_body(self, data: bytes) -> bytes:
        """Discard body bytes after the response; returns the bytes after the body. Raises `FramingError`."""
        assert self._request_body is not None
        rest = self._request_body.skip(data)
        self.body_received = self._request_body.done
        return rest

    @property
    def body_skippable(self) -> bool:
        """Whether so little of the request body is left, or may be, that it is discarded after a response."""
        return self._request_body is None or self._request_body.skippable()

    # -- what the two connections report

    def on_failure(self, failure: Failure) -> None:
        """A backend connection could not be made, or broke, or was too slow."""
        self.wants_connection = False
        self._connection = None
        if not self.ended:
            self._fail(failure)

    def on_client_gone(self) -> None:
        """The client has closed its connection. What was sent may be executed; nothing is sent again."""
        self.reason = Failure.CLIENT_GONE
        self._keep_alive = False
        self._end()

    def on_client_stalled(self) -> None:
        """The client does not send its body, or does not read its response."""
        self._fail(Failure.CLIENT_STALLED)

    def on_malformed_body(self) -> None:
        """The body that the client sends is not framed as HTTP requires."""
        self._fail(Failure.CLIENT_BROKE)

    def pause_response(self) -> None:
        """The client takes no more: stop reading from the backend, and stop its deadline."""
        if self._connection is not None:
            self._connection.pause_reading()

    def resume_response(self) -> None:
        """The client takes more again."""
        if self._connection is not None:
            self._connection.resume_reading()

    # -- retries: `_retry` sends to another member (nothing was executed yet); `_resend` also needs the
    #    budget, since the first backend may have executed the request

    def _fail(self, failure: Failure) -> None:
        """Retry on another backend, or respond as `FAILURES` says. Once the response has begun, reset the
        client connection."""
        if self._response_started:
            self.reason = failure
            self._keep_alive = False
            self.downstream.abort()
            self._end()
            return
        self._drop_connection()
        # A reused connection that was closed proves no fault: the backend closes idle connections, or was
        # restarted. The same member may be tried again, but on a new connection, since its other idle ones
        # may be closed as well.
        reused_closed = failure is Failure.NO_REPLY and self._reused
        self._new_connection_only = self._new_connection_only or reused_closed
        self._release_member(tried=not reused_closed)
        if may_retry(failure, self._methods, body_held=self._body_replayable):
            if failure in (Failure.CONNECT, Failure.CONNECT_TIMEOUT):
                retried = self._resolution.view.service.retry.on_connect and self._retry(failure)
            else:
                retried = self._may_resend(failure) and self._resend(failure)
            if retried:
                return
        if failure not in _NOT_CONNECTED or not self._answer_known_document():
            self._respond_failure(failure)

    def _on_version_refused(self) -> None:
        """The backend refused the version, so what was known of it was stale. Nothing was executed.

        Decide again with the current snapshot. Retry on another backend at most once.
        """
        self._drop_connection()
        self._release_member()
        if self._holds_retry_budget:
            self._release_retry()
        first_refusal, self._version_refused_once = not self._version_refused_once, True
        service, refused_version = self.service, self._resolution.version
        decision = self._decide()
        if self.service != service:  # a reload has given the path to another service
            self.context.in_flight_by_service[service] -= 1
            self.context.in_flight_by_service[self.service] += 1
        if self._resolution.version != refused_version:
            # A client that requested `latest` may get a lower version now, which the refusing member may
            # serve.
            self._tried = ()
        if not isinstance(decision, Forward):
            self._respond_decision(decision)
        # `decision.member` is not used: it may be the one that refused. `_retry` selects one that was not
        # tried.
        elif not (
            first_refusal
            and self._body_replayable
            and self._resolution.view.service.retry.on_version
            and self._retry(Failure.VERSION_REFUSED)
        ):
            self._respond_failure(Failure.VERSION_REFUSED)

    def _on_version_unknown(self) -> bool:
        """The response lacks the served version, and the client has got nothing yet. Send a safe request to
        another member; False: it is not safe, or none is left, and the client gets this response."""
        member, plan = self._member, self._resolution.view.service.retry
        assert member is not None
        if not (
            plan.on_version
            and self.attempts < plan.attempts
            and may_retry(Failure.VERSION_UNKNOWN, self._methods, body_held=self._body_replayable)
        ):
            return False
        self._tried = (*self._tried, member.key)
        if self._reselect() is None:
            return False
        self._drop_connection()
        self._release_member(tried=False)
        if not self._resend(Failure.VERSION_UNKNOWN):
            self._respond_failure(Failure.VERSION_UNKNOWN)
        return True

    def _retry(self, failure: Failure) -> bool:
        """Send the request to a member that was not tried yet; False if there is none."""
        member = self._reselect()
        if member is None:
            return False
        self.context.metrics.retry(self.service, failure)
        self._dispatch(member)
        return True

    def _reselect(self) -> Member | None:
        """Another member that serves the negotiated version, by the current snapshot."""
        context = self.context
        return reselect(
            self._resolution,
            context.snapshots.current,
            context.in_flight_by_member,
            getrandbits(RANDOM_BITS),
            self._tried,
        )

    def _may_resend(self, failure: Failure) -> bool:
        """Whether the retry plan allows another attempt for a request that was already sent.

        Counts timeouts: after the second one the answer is no, since no client waits for a third.
        """
        plan = self._resolution.view.service.retry
        if failure is Failure.REPLY_TIMEOUT:
            if self._timed_out_once:
                return False
            self._timed_out_once = True
        return plan.on_no_reply and self.attempts < plan.attempts

    def _resend(self, failure: Failure) -> bool:
        """Send a sent request again, now or when the retry budget allows it; False if no member is left."""
        context = self.context
        if self._holds_retry_budget or context.retry_budget.acquire(self.service):
            self._holds_retry_budget = True
            return self._retry(failure)
        if self._reselect() is None:
            return False
        context.retry_budget.enqueue(self.service, self, failure, context.now + context.timeouts.backend_head)
        self._waiting_for_retry = True
        return True

    def on_retry_allowed(self, failure: Failure) -> None:
        """The retry budget lets the request go, and counts it from now on."""
        self._waiting_for_retry = False
        self._holds_retry_budget = True
        if not self._retry(failure):
            self._respond_failure(failure)

    def on_retry_expired(self, failure: Failure) -> None:
        """The retry budget did not let the request go within `timeouts.backend_head`."""
        self._waiting_for_retry = False
        self.context.metrics.retry_given_up(self.service)
        self._respond_failure(failure)

    def _release_retry(self) -> None:
        """The response has begun, or the exchange is over: another request may be retried."""
        self._holds_retry_budget = False
        self.context.retry_budget.release(self.service)

    @property
    def _body_replayable(self) -> bool:
        return self._request_body is None or self._request_body.replayable

    def _release_member(self, *, tried: bool = True) -> None:
        """The request is no longer in flight at its member. `tried`: it is not tried there again."""
        member, self._member = self._member, None
        if member is not None:
            if tried:
                self._tried = (*self._tried, member.key)
            self.context.in_flight_by_member[member.key] -= 1

    def _drop_connection(self) -> None:
        """Abandon the connection: its state is unknown, so it is never reused."""
        connection, self._connection = self._connection, None
        self.wants_connection = False
        if connection is not None:
            connection.abandon()

    # -- local responses, and the end

    def _respond_decision(self, decision: Refuse | Answer | AnswerKnown | Unrouted) -> None:
        """Respond without a backend: a refusal, a document of the gateway, or no service."""
        match decision:
            case Unrouted():
                self.request_id = ""  # without a service there is no dialect that writes it
                self._respond(local_response.plain_error(404))
            case Answer(_, response):
                self._respond(response)
            case AnswerKnown(resolution, key):
                if not self._respond_known_document(key):
                    self._respond(unavailable(resolution.view, resolution.requested))
            case Refuse(_, response, result):
                self.result = result if self.requested is not None else None
                self._respond(response)
            case _:
                assert_never(decision)

    def _answer_known_document(self) -> bool:
        """No connection could be made: answer a discovery document from what is known of it, if anything."""
        resolution = self._resolution
        if (
            resolution.offered is None
            or not resolution.rewrites_document
            or self.method not in DOCUMENT_METHODS
        ):
            return False
        return self._respond_known_document(DocumentKey.of(resolution, self._path, self.request.query))

    def _respond_known_document(self, key: DocumentKey) -> bool:
        """Answer from what is known of a discovery document; False: nothing is that this client may see."""
        resolution, known = self._resolution, self.context.known_documents.find(key)
        response = self._known_response(resolution, key)
        if known is None or response is None:
            return False
        if self.result is not None:
            self.result = NegotiationResult.SERVED
            version = None if resolution.offered is None else known.shown_version(resolution.offered)
            self.version = "" if version is None else resolution.view.service.dialect.scheme.format(version)
        self._respond(response)
        return True

    def _known_response(self, resolution: Resolution, key: DocumentKey) -> Response | None:
        """A known document for this client; None: there is none that it may see."""
        known = self.context.known_documents.find(key)
        if known is None:
            return None
        public_base = self.downstream.peer.public_base(self.request, resolution.prefix)
        return known.response(resolution, self.request.host, public_base)

    def _respond_failure(self, failure: Failure) -> None:
        """Respond as `FAILURES` says, in the error format of the dialect."""
        rule = FAILURES[failure]
        resolution = self._resolution
        self.reason = failure
        if self.result is not None:
            self.result = NegotiationResult.UNAVAILABLE
        retry_after = RETRY_AFTER if rule.status == 503 else None
        error = GatewayError(
            rule.status, rule.title, rule.detail, retry_after, resolution.offered, resolution.requested
        )
        self._respond(error_response(resolution.view, error), force_close=rule.side is Side.CLIENT)

    def _respond(self, response: Response, *, force_close: bool = False) -> None:
        """Write a whole local response.

        `force_close`: the rest of the request body cannot be discarded, so the client connection ends.
        """
        if self.request_id:
            response = self._resolution.view.service.dialect.write_request_id(response, self.request_id)
        self.status = response.status
        self.backend = NO_BACKEND  # the record names the backend that responded, not one that was only tried
        self.bytes_out = len(response.body)
        close = force_close or self.downstream.must_close()
        if self._request_body is not None and not self.body_received:
            close = close or self.request.expects_continue or not self.body_skippable
        self._keep_alive = not close
        self.downstream.respond(response, is_head_request=self.method == "HEAD", close=close)
        self._end()

    def _end(self) -> None:
        """The end of stop 8: give back what was counted and hand out the RequestRecord. Later calls do
        nothing."""
        if self.ended:
            return
        self.ended = True
        context = self.context
        if self._connection is not None or self.wants_connection:
            self._drop_connection()
        if self._member is not None:
            context.in_flight_by_member[self._member.key] -= 1
        if self._counted_in_flight:
            context.in_flight_by_service[self.service] -= 1
        if self._holds_retry_budget:
            self._release_retry()
        elif self._waiting_for_retry:
            context.retry_budget.cancel(self.service, self)
        self.seconds = monotonic() - self._started
        context.record(self)
        self.downstream.exchange_ended(self, keep=self._keep_alive)
