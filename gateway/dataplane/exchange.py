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

The same numbers mark the code: 1 in `client_connection`, 2, 7 and 8 here, 3 to 6 in `core.decision.decision`.
An exchange is always in one of the `stages`. It makes no routing or version decision, and whether a failed
request may be sent again is decided by `retries`.

A request that finds an idle backend connection needs no coroutine and no timer of its own: only callbacks of
the two connections. Their deadlines are compared with `Context.now`, a clock that advances in coarse steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never, final

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
    Unrouted,
    decide,
    error_response,
    reselect,
    unavailable,
)
from gateway.core.dialect import GatewayError
from gateway.dataplane import local_response
from gateway.dataplane.attempt import Attempt
from gateway.dataplane.documents import location_lines
from gateway.dataplane.failures import FAILURES, NOT_CONNECTED, Failure, Retry, Side
from gateway.dataplane.http1.chunked import LAST_CHUNK, encode_chunk
from gateway.dataplane.http1.fields import NO_BODY
from gateway.dataplane.request_body import RequestBody
from gateway.dataplane.retries import Retries
from gateway.dataplane.stages import (
    AWAITING_RESPONSE,
    CONNECTING,
    DECIDING,
    ENDED,
    READING_BODY,
    RESPONDING,
    RETRY_QUEUED,
    Stage,
)
from gateway.telemetry.request_record import NO_BACKEND, RequestRecord

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.decision.response import ResponseRewrite
    from gateway.core.fleet.backend import Member
    from gateway.core.http.message import Response
    from gateway.dataplane.downstream import Downstream
    from gateway.dataplane.http1.heads import RequestHead, ResponseHead


@final
class Exchange:
    """One request and its response."""

    __slots__ = (
        *("body", "context", "downstream", "methods", "path", "record", "request", "resolution", "stage"),
        *("_attempt", "_chunked", "_keep_alive", "_retries", "_selected", "_started"),
    )

    resolution: Resolution
    methods: tuple[str, ...]
    """Every method that a backend may execute for this request."""
    path: str
    """The path without the prefix of the route."""

    def __init__(self, downstream: Downstream, request: RequestHead) -> None:
        self.downstream = downstream
        self.context = downstream.context
        self.request = request
        self.record = RequestRecord(request, downstream.peer)
        self.stage: Stage = DECIDING
        self.body: RequestBody | None = None
        self._selected: Member | None = None
        """The member that was selected while the request body is still awaited."""
        self._attempt: Attempt | None = None
        self._retries: Retries | None = None
        """None until the first failure."""
        self._keep_alive = True
        """The client connection stays open after this exchange."""
        self._chunked = False
        """The response to the client is chunked."""
        self._started = self.context.clock()

    # -- stops 2 to 6

    def begin(self) -> None:
        """The head is complete: decide what happens to the request, and do it."""
        context, section = self.context, self.request.field_section
        if section.framing != NO_BODY:
            self.body = RequestBody(section, context.limits, context.held_bodies)
        if section.max_forwards and self.request.forwards_left == 0:  # not to be forwarded (RFC 9110 7.6.2)
            self._respond(local_response.OPTIONS_ENDS_HERE)
            return
        # 2. Snapshot. 3. Route. 4. Requested version. 5. Negotiate. 6. Select.
        decision = self._decide()
        if type(decision) is not Forward:
            self._respond_decision(decision)
            return
        context.in_flight_by_service[self.record.service] += 1
        # 7. Send, at once or when the body has come. 8 follows when the backend responds: `on_response`.
        if self.body is None:
            self._begin_attempt(decision.member)
        else:
            self._await_body(self.body, decision.member)

    def _decide(self) -> Decision:
        request, context, record = self.request, self.context, self.record
        decision = decide(  # 3 to 6
            context.snapshots.current,  # 2: taken anew when a version refusal leads here again
            request,
            request.host,
            context.in_flight_by_member,
            context.random_bits(),
            context.decision_cache,
            throttled=context.rate_limiter,
            known_documents=context.known_documents,
        )
        if type(decision) is AnswerKnown and self._known_answer(*decision) is None:
            # It is not for this client. A legacy backend may still give one.
            decision = decide(
                context.snapshots.current,
                request,
                request.host,
                context.in_flight_by_member,
                context.random_bits(),
                context.decision_cache,
            )
        if type(decision) is not Unrouted:
            resolution = self.resolution = decision.resolution
            record.service = resolution.service
            record.version = resolution.version_text
            record.result = resolution.result
            record.requested = resolution.requested_kind
            ids = resolution.request_ids
            if ids is not None and not record.request_id:
                record.request_id = context.request_ids.of(resolution, ids, request.field_section)
            if type(decision) is Forward:
                self.path = decision.path
                self.methods = decision.methods
            elif type(decision) is Answer and resolution.endpoint.rate_limited:
                context.rate_limiter.take(resolution.service)
        return decision

    # -- the request body

    @property
    def body_received(self) -> bool:
        """The request body has been read to its end, or there is none."""
        return self.body is None or self.body.done

    @property
    def body_skippable(self) -> bool:
        """Whether so little of the request body is left, or may be, that it is discarded after a response."""
        return self.body is None or self.body.skippable()

    def _await_body(self, body: RequestBody, member: Member) -> None:
        """Answer `Expect: 100-continue`, then wait for a small body and send it whole; stream a large one."""
        self.stage = READING_BODY
        self.downstream.await_body()
        if body.too_large:
            self._fail(Failure.BODY_TOO_LARGE)
            return
        if self.request.expects_continue:
            self.context.send(self.downstream.transport, local_response.CONTINUE)
        self._selected = member
        if body.streams:
            self._begin_attempt(member)

    def on_request_body(self, data: bytes) -> bytes:
        """Take body bytes from the client; returns the bytes after the body. Raises `FramingError`."""
        body = self.body
        assert body is not None
        rest = body.feed(data)
        if body.too_large:
            self._fail(Failure.BODY_TOO_LARGE)
        elif self.stage is READING_BODY:
            if body.done or body.streams:
                self._begin_attempt_after_body()
        elif self._attempt is not None:
            self._attempt.send_body(body)
        return rest

    def skip_body(self, data: bytes) -> bytes:
        """Discard body bytes after the response; returns the bytes after the body. Raises `FramingError`."""
        assert self.body is not None
        return self.body.skip(data)

    def _begin_attempt_after_body(self) -> None:
        """The body is complete, or streams from now on. If the service has changed meanwhile, select again:
        the member may be drained now, or may no longer serve the version."""
        member: Member | None = self._selected
        if self.context.snapshots.current.views.get(self.record.service) is not self.resolution.view:
            member = self._reselect()
        if member is not None:
            self._begin_attempt(member)
        else:
            # No backend refused it: no member serves the version any more, and the client gets the same 503.
            self._respond_failure(Failure.VERSION_REFUSED)

    # -- stop 7: to the backend

    def _begin_attempt(self, member: Member) -> None:
        """7: send the request to `member`, as soon as there is a connection."""
        record, retries = self.record, self._retries
        record.backend = member.backend.name
        record.attempts += 1
        attempt = self._attempt = Attempt(self, member)
        if attempt.begin(new_connection=retries is not None and retries.new_connection_only):
            self.stage = AWAITING_RESPONSE
            if self.body is not None:
                self._read_body_on(self.body, attempt)
            return
        self.stage = CONNECTING
        if not self.body_received:
            self.downstream.pause_reading()

    def on_sent(self) -> None:
        """7: the request is on its way, on the connection that had to be made."""
        self.stage = AWAITING_RESPONSE
        if self.body is not None and self._attempt is not None:
            self._read_body_on(self.body, self._attempt)

    def _read_body_on(self, body: RequestBody, attempt: Attempt) -> None:
        """Read from the client again, in case this attempt or one before has waited for a connection. The
        first write may have filled the buffer already: then the backend is waited for."""
        if not body.done and not attempt.congested:
            self.downstream.resume_reading()

    # -- stop 8: back to the client

    def forward_interim(self, response: ResponseHead) -> None:
        """8: pass an interim response on, without the fields that belong to final ones. HTTP/1.0 has none
        (RFC 9110 15.2)."""
        if self.request.minor:
            self._retries_so_far().exhausted = True  # the client has got something
            self.context.send(self.downstream.transport, b"%b%b\r\n" % (response.line, response.passthrough))

    def forward_response(
        self, response: ResponseHead, rewrite: ResponseRewrite, piece: bytes, *, done: bool
    ) -> None:
        """8: write the head with its owned fields rewritten, and the content as it comes."""
        self.stage = RESPONDING
        status, downstream = response.status, self.downstream
        self.record.status = status
        if self._retries is not None:
            self._release_budget(self._retries)
        body = self.body
        if body is not None and body.done:
            body.release()  # nothing can be sent again
        close = (body is not None and not body.done) or downstream.must_close()
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
        self.record.bytes_out = len(piece)
        if self._chunked:
            piece = encode_chunk(piece) + LAST_CHUNK if done else encode_chunk(piece)
        location = self._location_lines(response) if response.location else b""
        fields = response.passthrough
        if not response.has_date:
            fields += local_response.date_line()
        self.context.send(
            downstream.transport,
            b"%b%b%b%b%b%b\r\n%b"
            % (
                response.line,
                fields,
                rewrite.lines,
                location,
                framing,
                downstream.connection_line(close=close) if close or not self.request.minor else b"",
                piece,
            ),
        )
        if done:
            self._end()

    def forward_body(self, piece: bytes, *, done: bool) -> None:
        """8: more content of the response."""
        self.record.bytes_out += len(piece)
        if self._chunked:
            piece = encode_chunk(piece) + LAST_CHUNK if done else encode_chunk(piece)
        if piece:
            self.context.send(self.downstream.transport, piece)
        if done:
            self._end()

    def _location_lines(self, response: ResponseHead) -> bytes:
        assert self._attempt is not None
        backend = self._attempt.member.backend
        return location_lines(response, backend, self.request, self._public_base())

    def _public_base(self) -> str:
        return self.downstream.peer.public_base(self.request, self.resolution.prefix)

    # -- what the two connections report

    def on_client_gone(self) -> None:
        """The client has closed its connection. What was sent may be executed; nothing is sent again."""
        self.record.reason = Failure.CLIENT_GONE
        self._keep_alive = False
        self._end()

    def on_client_stalled(self) -> None:
        """The client does not send its body, or does not read its response."""
        self._fail(Failure.CLIENT_STALLED)

    def on_malformed_body(self) -> None:
        """The body that the client sends is not framed as HTTP requires."""
        self._fail(Failure.CLIENT_BROKE)

    def pause_response(self) -> None:
        """The client takes no more: stop reading from the backend."""
        if self._attempt is not None:
            self._attempt.pause_response()

    def resume_response(self) -> None:
        """The client takes more again."""
        if self._attempt is not None:
            self._attempt.resume_response()

    # -- after a failure

    def on_attempt_failed(self, failure: Failure) -> None:
        """No connection could be made, or no whole response will come."""
        self._fail(failure)

    def _fail(self, failure: Failure) -> None:
        """Send the request again, or respond as `FAILURES` says. Once the response has begun, reset the
        client connection."""
        if self.stage is RESPONDING:
            self.record.reason = failure
            self._keep_alive = False
            self.downstream.abort()
            self._end()
            return
        retries, attempt = self._retries_so_far(), self._end_attempt()
        if failure is Failure.NOT_SENT and attempt is not None and attempt.reused and self._replayable:
            # The idle connection was unusable, which says nothing of the member: the same attempt again.
            self.record.attempts -= 1
            self._begin_attempt(attempt.member)
            return
        if attempt is not None:
            retries.end_attempt(attempt.member.key, failure, reused=attempt.reused)
        if self._may_retry(retries, failure) and self._retry(retries, failure):
            return
        if failure not in NOT_CONNECTED or not self._answer_known_document():
            self._respond_failure(failure)

    def on_version_refused(self) -> None:
        """The backend refused the version, so what was known of it was stale. Nothing was executed.

        Decide again with the current snapshot. Retry on another backend at most once.
        """
        retries, attempt = self._retries_so_far(), self._end_attempt()
        assert attempt is not None
        self._release_budget(retries)
        service, refused_version = self.record.service, self.resolution.version
        decision = self._decide()
        if self.record.service != service:  # a reload has given the path to another service
            self.context.in_flight_by_service[service] -= 1
            self.context.in_flight_by_service[self.record.service] += 1
        if self.resolution.version == refused_version:
            retries.tried = (*retries.tried, attempt.member.key)
        else:
            # A client that requested `latest` may get a lower version now, which the refusing member may
            # serve.
            retries.tried = ()
        if not isinstance(decision, Forward):
            self._respond_decision(decision)
        # `decision.member` is not used: it may be the one that refused. `_retry` selects one that was not
        # tried.
        elif not (
            self._may_retry(retries, Failure.VERSION_REFUSED)
            and self._retry(retries, Failure.VERSION_REFUSED)
        ):
            self._respond_failure(Failure.VERSION_REFUSED)

    def on_version_unknown(self) -> bool:
        """The response lacks the served version, and the client has got nothing yet. Send a safe request to
        another member; False: it is not safe, or none is left, and the client gets this response."""
        retries, attempt = self._retries_so_far(), self._attempt
        assert attempt is not None
        if not self._may_retry(retries, Failure.VERSION_UNKNOWN):
            return False
        retries.tried = (*retries.tried, attempt.member.key)
        if self._reselect() is None:
            return False
        self._end_attempt()
        if not self._retry(retries, Failure.VERSION_UNKNOWN):
            self._respond_failure(Failure.VERSION_UNKNOWN)
        return True

    def _retries_so_far(self) -> Retries:
        retries = self._retries
        if retries is None:
            retries = self._retries = Retries()
        return retries

    def _may_retry(self, retries: Retries, failure: Failure) -> bool:
        return retries.allow(
            failure,
            self.resolution.view.service.retry,
            self.methods,
            attempts=self.record.attempts,
            body_held=self._replayable,
        )

    @property
    def _replayable(self) -> bool:
        """What has come of the request can be sent again, as far as that is allowed."""
        return self.body is None or self.body.replayable

    def _retry(self, retries: Retries, failure: Failure) -> bool:
        """Send the request to another member, now or when the retry budget allows it; False if none is left.

        The budget does not count what was certainly not executed.
        """
        context, service = self.context, self.record.service
        member = self._reselect()
        if member is None:
            return False
        if FAILURES[failure].retry is not Retry.ALWAYS and not retries.holds_budget:
            if not context.retry_budget.acquire(service):
                self.stage = RETRY_QUEUED
                until = context.now + context.timeouts.backend_head
                context.retry_budget.enqueue(service, self, failure, until)
                return True
            retries.holds_budget = True
        context.metrics.retry(service, failure)
        self._begin_attempt(member)
        return True

    def on_retry_allowed(self, failure: Failure) -> None:
        """The retry budget lets the request go, and counts it from now on."""
        retries = self._retries_so_far()
        retries.holds_budget = True
        if not self._retry(retries, failure):
            self._respond_failure(failure)

    def on_retry_expired(self, failure: Failure) -> None:
        """The retry budget did not let the request go within `timeouts.backend_head`."""
        self.context.metrics.retry_given_up(self.record.service)
        self._respond_failure(failure)

    def _release_budget(self, retries: Retries) -> None:
        """The response has begun, or the exchange is over: another request may be retried."""
        if retries.holds_budget:
            retries.holds_budget = False
            self.context.retry_budget.release(self.record.service)

    def _reselect(self) -> Member | None:
        """Another member that serves the negotiated version, by the current snapshot."""
        context, retries = self.context, self._retries
        return reselect(
            self.resolution,
            context.snapshots.current,
            context.in_flight_by_member,
            context.random_bits(),
            retries.tried if retries is not None else (),
        )

    def _end_attempt(self) -> Attempt | None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end()
        return attempt

    # -- local responses, and the end

    def _respond_decision(self, decision: Refuse | Answer | AnswerKnown | Unrouted) -> None:
        """Respond without a backend: a refusal, a document of the gateway, or no service."""
        match decision:
            case Unrouted():
                self.record.request_id = ""  # without a service there is no dialect that writes it
                self._respond(local_response.plain_error(404))
            case Answer(_, response):
                self._respond(response)
            case AnswerKnown(resolution, key):
                if not self._respond_known_document(key):
                    self._respond(unavailable(resolution.view, resolution.requested))
            case Refuse(_, response, result):
                self.record.result = result if self.record.requested is not None else None
                self._respond(response)
            case _:
                assert_never(decision)

    def _answer_known_document(self) -> bool:
        """No connection could be made: answer a discovery document from what is known of it, if anything."""
        resolution = self.resolution
        if (
            resolution.offered is None
            or not resolution.rewrites_document
            or self.request.method not in DOCUMENT_METHODS
        ):
            return False
        return self._respond_known_document(DocumentKey.of(resolution, self.path, self.request.query))

    def _respond_known_document(self, key: DocumentKey) -> bool:
        """Answer from what is known of a discovery document; False: nothing is that this client may see."""
        record, resolution = self.record, self.resolution
        known, response = self.context.known_documents.find(key), self._known_answer(resolution, key)
        if known is None or response is None:
            return False
        if record.result is not None:
            record.result = NegotiationResult.SERVED
            version = None if resolution.offered is None else known.shown_version(resolution.offered)
            record.version = "" if version is None else resolution.view.service.dialect.scheme.format(version)
        self._respond(response)
        return True

    def _known_answer(self, resolution: Resolution, key: DocumentKey) -> Response | None:
        """A known document for this client; None: there is none that it may see."""
        known = self.context.known_documents.find(key)
        if known is None:
            return None
        public_base = self.downstream.peer.public_base(self.request, resolution.prefix)
        documents = self.context.rewritten_documents
        return known.response(resolution, self.request.host, public_base, documents)

    def _respond_failure(self, failure: Failure) -> None:
        """Respond as `FAILURES` says, in the error format of the dialect."""
        rule, resolution, record = FAILURES[failure], self.resolution, self.record
        record.reason = failure
        if record.result is not None:
            record.result = NegotiationResult.UNAVAILABLE
        retry_after = RETRY_AFTER if rule.status == 503 else None
        error = GatewayError(
            rule.status, rule.title, rule.detail, retry_after, resolution.offered, resolution.requested
        )
        self._respond(error_response(resolution.view, error), force_close=rule.side is Side.CLIENT)

    def _respond(self, response: Response, *, force_close: bool = False) -> None:
        """Write a whole local response.

        `force_close`: the rest of the request body cannot be discarded, so the client connection ends.
        """
        record, body = self.record, self.body
        if record.request_id:
            response = self.resolution.view.service.dialect.write_request_id(response, record.request_id)
        record.status = response.status
        record.backend = NO_BACKEND  # not one that was only tried
        record.bytes_out = len(response.body)
        close = force_close or self.downstream.must_close()
        if body is not None and not body.done:
            close = close or self.request.expects_continue or not body.skippable()
        self._keep_alive = not close
        is_head_request = self.request.method == "HEAD"
        self.downstream.respond(response, is_head_request=is_head_request, close=close)
        self._end()

    def _end(self) -> None:
        """The end of stop 8: give back what was counted and hand out the RequestRecord."""
        stage, context, record, attempt = self.stage, self.context, self.record, self._attempt
        self.stage = ENDED
        if attempt is not None:
            self._attempt = None
            attempt.end()
        if self.body is not None:
            self.body.release()
        if stage is not DECIDING:
            context.in_flight_by_service[record.service] -= 1
        if self._retries is not None:
            self._release_budget(self._retries)
        if stage is RETRY_QUEUED:
            context.retry_budget.cancel(record.service, self)
        record.seconds = context.clock() - self._started
        context.record(record)
        self.downstream.exchange_ended(keep=self._keep_alive)
