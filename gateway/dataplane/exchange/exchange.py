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

The same numbers mark the code: 1 in `client_connection`, 2 and 8 here, 3 to 6 in `core.decision.decision`, 7
and the beginning of 8 in `attempt`. An exchange is always in one of the `stages`. It makes no routing or
version decision, and whether a failed request may be sent again is decided by `retries`.

A request that finds an idle backend connection needs no coroutine and no timer of its own: only callbacks of
the two connections. Their deadlines are compared with `Context.now`, a clock that advances in coarse steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gateway.core.decision.decision import (
    Answer,
    AnswerCached,
    Decision,
    DocumentKey,
    Forward,
    Refuse,
    Unrouted,
    decide,
    reselect,
    unbridged,
)
from gateway.dataplane.documents.buffered import location_lines
from gateway.dataplane.documents.cached import key_of_request
from gateway.dataplane.exchange.attempt import Attempt, AttemptOwner
from gateway.dataplane.exchange.heads import CHUNKED, compose_downstream_head, framing_line
from gateway.dataplane.exchange.retries import Retries
from gateway.dataplane.exchange.stages import (
    ADMITTED,
    AWAITING_RESPONSE,
    CONNECTING,
    DECIDING,
    ENDED,
    QUEUED,
    READING_BODY,
    RESPONDING,
    RETRY_QUEUED,
    TUNNELLING,
    Stage,
)
from gateway.dataplane.exchange.tunnel import Tunnel, request_upgrade
from gateway.dataplane.http1.chunked import LAST_CHUNK, encode_chunk
from gateway.dataplane.http1.fields import NO_BODY
from gateway.dataplane.http1.request_body import RequestBody
from gateway.dataplane.limits.retry_budget import MAX_QUEUED
from gateway.dataplane.local_responses.answers import (
    CONTINUE,
    OPTIONS_ENDS_HERE,
    LocalAnswer,
    answer_of,
    answer_to_failure,
    connection_line,
    encode,
    no_document,
)
from gateway.dataplane.local_responses.failures import FAILURES, NOT_CONNECTED, Failure, Resend
from gateway.dataplane.local_responses.proxy_status import LocalReason
from gateway.telemetry.request_record import NO_BACKEND, RequestRecord
from gateway.telemetry.series.service import OfService
from gateway.telemetry.usage import DENIED

if TYPE_CHECKING:
    from collections.abc import Container

    from gateway.core.decision.decision import Resolution
    from gateway.core.decision.response import ResponseRewrite
    from gateway.core.fleet.backend import Member
    from gateway.dataplane.backends.connection import BackendConnection
    from gateway.dataplane.backends.queue import Turn
    from gateway.dataplane.exchange.downstream import Downstream
    from gateway.dataplane.http1.request_head import RequestHead
    from gateway.dataplane.http1.response_head import ResponseHead
    from gateway.dataplane.limits.client_limiter import CountedRequest
    from gateway.telemetry.usage import UsageCounter, UsageSubtotal


@final
class Exchange(AttemptOwner):
    """Exchange of one request and its response."""

    __slots__ = (
        "_attempt",
        "_chunked",
        "_counted",
        "_keep_alive",
        "_retries",
        "_selected",
        "_started",
        "_unproven",
        "body",
        "context",
        "downstream",
        "methods",
        "path",
        "record",
        "request",
        "resolution",
        "stage",
    )

    resolution: Resolution
    methods: tuple[str, ...]
    """Every HTTP method that a backend may execute for this request."""
    path: str
    """Request path without the prefix of the route."""

    def __init__(self, downstream: Downstream, request: RequestHead) -> None:
        self.downstream = downstream
        context = self.context = downstream.context
        self.request = request
        self.record = RequestRecord(request, downstream.peer)
        self.stage: Stage = DECIDING
        self.body: RequestBody | None = None
        self._selected: Member | None = None
        """Member selected for the request while its body is still awaited."""
        self._attempt: Attempt | None = None
        self._retries: Retries | None = None
        self._counted: CountedRequest | None = None
        """Count of this request in its client's limits; None: it is not counted."""
        self._unproven: UsageSubtotal | None = None
        """Subtotal of usage in which this request counts, if its response may prove the client's product."""
        self._keep_alive = True
        self._chunked = False
        self._started = context.clock()

    # -- stops 2 to 6

    def begin(self) -> None:
        """Decide what happens to the request, and do it. Its head is complete."""
        context, request = self.context, self.request
        clients = context.snapshots.current.clients
        if clients.rules:
            self.record.client_name = self.downstream.peer.client_name(clients, request)
        if request.max_forwards and request.forwards_left == 0:  # not to be forwarded (RFC 9110 7.6.2)
            if request.framing != NO_BODY:
                self.body = RequestBody(request, context.limits, context.held_bodies)
            self._respond(OPTIONS_ENDS_HERE)
            return
        # 2. Snapshot. 3. Route. 4. Requested version. 5. Negotiate. 6. Select.
        decision = self._decide()
        if request.framing != NO_BODY:
            limits = self.resolution.limits if self.record.service else context.limits
            self.body = RequestBody(request, limits, context.held_bodies)
        if context.admission.checks and type(decision) is not Unrouted and not self._is_admitted():
            return
        if type(decision) is not Forward:
            self._respond_decision(decision)
            return
        if context.usage is not None:
            self._count_forwarded(context.usage, decision.methods[0])
        if self.resolution.bridged:
            direction = self.resolution.bridge_direction
            context.metrics.count(OfService.bridged_requests, direction, service=self.record.service)
        context.in_flight_by_service[self.record.service] += 1
        self.stage = ADMITTED
        if request.upgrade:
            self.request, self._retries = request_upgrade(self)
        # 7. Send, at once or when the body has come. 8. Respond: begins in `Attempt.on_response`.
        if self.body is None:
            self._begin_attempt(decision.member)
        else:
            self._await_body(self.body, decision.member)

    def _decide(self) -> Decision:
        request, context, record = self.request, self.context, self.record
        cached_documents: Container[DocumentKey] = context.cached_documents
        while True:
            decision = decide(  # 3 to 6
                context.snapshots.current,  # 2: taken anew when a version refusal leads here again
                request,
                request.host,
                context.in_flight_by_member,
                context.random_bits(),
                context.decision_cache,
                throttled=context.rate_limiter,
                cached_documents=cached_documents,
                held_back=context.held_back,
                leases=context.leases,
                client_name=record.client_name,
                wall_time=context.wall_time,
            )
            if type(decision) is not AnswerCached or self._cached_answer(*decision) is not None:
                break
            cached_documents = ()  # it is not for this client: a legacy backend may still give one
        if type(decision) is not Unrouted:
            resolution = self.resolution = decision.resolution
            record.service = resolution.service
            record.version = resolution.version_text
            record.result = resolution.result
            record.requested = resolution.requested_kind
            if not record.request_id:
                record.request_id = context.request_ids.of(resolution, request)
            if resolution.bridged and not context.refusals.may_refuse(resolution):
                return unbridged(resolution)
            if type(decision) is Forward:
                self.path = decision.path
                self.methods = decision.methods
            elif type(decision) is Answer and resolution.endpoint.rate_limited:
                context.rate_limiter.take(resolution.service)
        return decision

    def _is_admitted(self) -> bool:
        """Whether access lists, limits and load admit the request; if not, it has got its response."""
        client, record = self.downstream, self.record
        admitted = self.context.admission.admit(
            self.resolution, client.peer, client.opened, self.request, record, self._started
        )
        if isinstance(admitted, LocalAnswer):
            self._count(self.request.method, DENIED if admitted.reason == LocalReason.ACCESS else "")
            self._respond(admitted)
            return False
        self._counted = admitted
        return True

    def _count_forwarded(self, usage: UsageCounter, method: str) -> None:
        """Count the request in the record of usage. It mostly counts as the one before on its connection, or
        else of its resolution."""
        request, resolution, subtotal = self.request, self.resolution, self.downstream.subtotal
        if subtotal is None or subtotal.resolution is not resolution:
            subtotal = self.downstream.subtotal = usage.last.get(resolution)
        if (
            subtotal is None
            or request.passthrough[subtotal.begins : subtotal.ends] != subtotal.line
            or subtotal.method is not method  # an equal one that is another object is found, too
            or subtotal.client_name is not self.record.client_name
        ):
            subtotal = self._find_subtotal(usage, method)
        subtotal.count(request.path)

    def _count(self, method: str, result: str = "") -> None:
        """Count the request in the record of usage, now that it is decided. If it was decided before, it
        moves. `method`: that of its operation. `result`: if it is not that of the resolution."""
        usage, path = self.context.usage, self.request.path
        if usage is None:
            return
        before = None if self.stage is DECIDING else self.downstream.subtotal
        self._find_subtotal(usage, method, result).count(path)
        if before is not None:
            usage.take_back(before, path)

    def _find_subtotal(self, usage: UsageCounter, method: str, result: str = "") -> UsageSubtotal:
        """Find the subtotal of usage in which the request counts."""
        found = usage.find(self.resolution, self.record, self.request.passthrough, method, result)
        self.downstream.subtotal = found
        self._unproven = found if found.product else None
        return found

    def _prove_product(self) -> None:
        """Count the request under its client's product, if that was served for the first time."""
        subtotal, usage = self._unproven, self.context.usage
        if subtotal is not None and usage is not None:
            self._unproven = None
            usage.prove(subtotal, self.record.status, self.request.path)

    # -- the request body

    @property
    def body_received(self) -> bool:
        """Whether the request body has been read to its end, or there is none."""
        return self.body is None or self.body.done

    def _await_body(self, body: RequestBody, member: Member | None) -> None:
        """Answer `Expect: 100-continue`, then wait for a small body and send it whole; stream a large one."""
        self.stage = READING_BODY
        self.downstream.await_body()
        if body.too_large:
            self.on_failure(Failure.BODY_TOO_LARGE)
            return
        if self.request.expects_continue:
            self.context.send(self.downstream.transport, CONTINUE)
        self._selected = member
        if body.streams:
            self._begin_attempt(member)

    def on_request_body(self, data: bytes) -> bytes:
        """Take body bytes from the client; returns the bytes after the body. Raises `FramingError`."""
        body = self.body
        assert body is not None
        rest = body.feed(data)
        if body.too_large:
            self.on_failure(Failure.BODY_TOO_LARGE)
        elif self.stage is READING_BODY:
            if body.done or body.streams:
                self._begin_attempt_after_body()
        elif self._attempt is not None:
            self._attempt.send_body(body)
        return rest

    def _begin_attempt_after_body(self) -> None:
        """Begin the attempt: the request body is complete, or streams from now on. If the service has changed
        meanwhile, select again: the member may be drained or full, or no longer serve the version."""
        member, context = self._selected, self.context
        view = context.snapshots.current.views.get(self.record.service)
        if member is None or member.bound or view is not self.resolution.view:
            member = self._reselect()
        self._begin_attempt(member)

    # -- stop 7: to the backend

    def _begin_attempt(self, member: Member | None) -> None:
        """Send the request to `member` (None: to whichever has room), once connected (stop 7 of 8)."""
        if member is None:
            if not self._wait_for_room(None):
                # No backend refused it, but no member serves the version any more: the same 503.
                self._respond_failure(Failure.VERSION_REFUSED)
            return
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
        """Note that the request was sent on a connection that had to be made (stop 7 of 8)."""
        self.stage = AWAITING_RESPONSE
        if self.body is not None and self._attempt is not None:
            self._read_body_on(self.body, self._attempt)

    def _read_body_on(self, body: RequestBody, attempt: Attempt) -> None:
        """Read the body from the client again, if an attempt has waited for a connection. If the first write
        has filled the buffer already, the backend is waited for."""
        connection = attempt.connection
        if not body.done and (connection is None or not connection.congested):
            self.downstream.resume_reading()

    # -- stop 8: back to the client

    def forward_interim(self, response: ResponseHead) -> None:
        """Pass an interim response on, without the fields of final ones (stop 8 of 8). HTTP/1.0 has none."""
        if self.request.minor:
            self._retries_so_far().exhausted = True  # the client has got something
            edits, fields = self.resolution.response_edits, response.passthrough
            head = b"%b%b\r\n\r\n" % (response.line, fields if edits is None else edits.without(fields))
            self.context.send(self.downstream.transport, head)

    def forward_response(
        self, response: ResponseHead, rewrite: ResponseRewrite, piece: bytes, *, done: bool
    ) -> None:
        """Write the response head with rewritten owned fields, and the content as it comes (stop 8 of 8)."""
        self.stage = RESPONDING
        downstream, record, minor = self.downstream, self.record, self.request.minor
        record.status = response.status
        record.bytes_out = len(piece)
        if self._retries is not None:
            self._release_budget(self._retries)
        body = self.body
        if body is not None and body.done:
            body.release()  # nothing can be sent again
        close = (body is not None and not body.done) or self.request.close or downstream.must_close()
        framing = framing_line(response)
        if framing == CHUNKED:
            self._chunked = bool(minor)
            if not self._chunked:  # HTTP/1.0 has no chunks: the end of the connection ends the content
                framing, close = b"", True
        if close:
            self._keep_alive = False
        if self._chunked:
            piece = encode_chunk(piece) + LAST_CHUNK if done else encode_chunk(piece)
        head = compose_downstream_head(
            response,
            rewrite,
            location=self._location_lines(response) if response.location else b"",
            framing=framing,
            connection=connection_line(minor, close=close) if close or not minor else b"",
            piece=piece,
        )
        if not done:
            downstream.bound_writes(self.resolution.limits.write_buffer)
        self.context.send(downstream.transport, head)
        if done:
            self._end()

    def begin_tunnel(self, connection: BackendConnection, head: bytes, rest: bytes) -> None:
        """Begin a tunnel that passes bytes both ways: the backend has switched protocols (stop 8 of 8)."""
        self.context.in_flight_by_service[self.record.service] -= 1
        self.stage = TUNNELLING
        self.record.status = 101
        self._prove_product()
        Tunnel(self, connection).begin(connection, head, rest)

    def forward_body(self, piece: bytes, *, done: bool) -> None:
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
        public_base = self.downstream.peer.public_base(self.request, self.resolution.prefix)
        return location_lines(response, backend, self.request, public_base)

    # -- what the two connections report

    def end(self, reason: str) -> None:
        """End the exchange without a response, or after a part of one, and close. Nothing is sent again."""
        self.record.reason = reason
        self._keep_alive = False
        self._end()

    def pause_response(self) -> None:
        """Stop reading from the backend: the client takes no more."""
        connection = None if self._attempt is None else self._attempt.connection
        if connection is not None:
            connection.pause_reading()

    def resume_response(self) -> None:
        """Read from the backend again: the client takes more."""
        connection = None if self._attempt is None else self._attempt.connection
        if connection is not None:
            connection.resume_reading()

    # -- after a failure

    def on_failure(self, failure: Failure) -> None:
        """Handle a failed attempt, or a client that sends no whole request or does not read. Send the request
        again, or respond as `FAILURES` says. Once the response has begun, reset the client connection."""
        if self.stage is RESPONDING:
            self.downstream.abort()
            self.end(failure)
            return
        retries, attempt = self._retries_so_far(), self._end_attempt()
        if failure is Failure.NOT_SENT and attempt is not None and attempt.reused and self._replayable:
            # An unusable idle connection proves nothing about the member: repeat the same attempt.
            self.record.attempts -= 1
            self._begin_attempt(attempt.member)
            return
        if attempt is not None:
            retries.end_attempt(attempt.member.key, failure, reused=attempt.reused)
        if not self._try_again(retries, failure):
            self.give_up(failure)

    def give_up(self, failure: Failure) -> None:
        """Respond with a failure, or with a cached document if no connection could be made."""
        key = key_of_request(self.resolution, self.request, self.path) if failure in NOT_CONNECTED else None
        known = None if key is None else self._cached_answer(self.resolution, key)
        if known is not None:
            self._respond(known)
        else:
            self._respond_failure(failure)

    def on_version_refused(self) -> None:
        """Send the request elsewhere: the backend has refused its version, so its advertisement was stale,
        and nothing was executed. Decide again with the current snapshot, unless an earlier attempt may have
        been executed. Retry on another backend at most once."""
        retries, attempt = self._retries_so_far(), self._end_attempt()
        assert attempt is not None
        self._release_budget(retries)
        service, refused_version = self.record.service, self.resolution.version
        decision = self._decide() if retries.unanswered is None else None
        if isinstance(decision, Forward):
            self._count(decision.methods[0])
        if self.record.service != service:  # a reload has given the path to another service
            self.context.in_flight_by_service[service] -= 1
            self.context.in_flight_by_service[self.record.service] += 1
            if self.resolution.view.service.has_rules:  # they have not admitted this request
                self._respond_failure(Failure.VERSION_REFUSED)
                return
        if self.resolution.version == refused_version:
            retries.tried = (*retries.tried, attempt.member.key)
        else:
            # A client that requested `latest` may get a lower version now, which the refusing member may
            # serve.
            retries.tried = ()
        if decision is not None and not isinstance(decision, Forward):
            self._respond_decision(decision)
        # `decision.member` is not used: it may be the one that refused.
        elif not self._try_again(retries, Failure.VERSION_REFUSED):
            self._respond_failure(Failure.VERSION_REFUSED)

    def on_version_unknown(self) -> bool:
        """Send a safe request to another member: the response lacks the served version, and the client has
        got nothing yet. False if it is not safe or none is left: then the client gets this response."""
        retries, attempt = self._retries_so_far(), self._attempt
        assert attempt is not None
        if not self._may_retry(retries, Failure.VERSION_UNKNOWN):
            return False
        retries.tried = (*retries.tried, attempt.member.key)
        member = self._reselect()
        if member is None:
            return False
        self._end_attempt()
        self._retry(retries, Failure.VERSION_UNKNOWN, member)
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

    def _try_again(self, retries: Retries, failure: Failure) -> bool:
        return self._may_retry(retries, failure) and self._retry(retries, failure, self._reselect())

    @property
    def _replayable(self) -> bool:
        """Whether what has come of the request can be sent again, if that is allowed."""
        return self.body is None or self.body.replayable

    def _retry(self, retries: Retries, failure: Failure, member: Member | None) -> bool:
        """Send the request to `member`, now or when the retry budget allows it. None: wait for whichever has
        room; False if none is left. The budget does not count what was certainly not executed."""
        context, service = self.context, self.record.service
        if member is None:
            return self._wait_for_room(failure)
        if FAILURES[failure].retry is not Resend.ALWAYS and not retries.holds_budget:
            if not context.retry_budget.acquire(service):
                self.stage = RETRY_QUEUED
                until = context.now + min(self.resolution.timeouts.backend_head, MAX_QUEUED)
                context.retry_budget.enqueue(service, self, failure, until)
                return True
            retries.holds_budget = True
        context.metrics.count(OfService.retries, failure, service=service)
        self._begin_attempt(member)
        return True

    def on_retry_allowed(self, failure: Failure) -> None:
        retries = self._retries_so_far()
        retries.holds_budget = True
        if not self._retry(retries, failure, self._reselect()):
            self._respond_failure(failure)

    def on_retry_expired(self, failure: Failure) -> None:
        self.context.metrics.count(OfService.retries_given_up, service=self.record.service)
        self._respond_failure(failure)

    def _wait_for_room(self, failure: Failure | None) -> bool:
        """Wait for a member with room, or give up; False: none is left. `failure`: of the last attempt."""
        tried, turn = ((), None) if self._retries is None else (self._retries.tried, self._retries.turn)
        waits = self.context.request_queue.enter(self, self.resolution, tried, failure, turn)
        if waits is None:
            return False
        self.stage = QUEUED
        if not waits:
            self.give_up(failure or Failure.QUEUE_FULL)
        elif not self.body_received:
            self.downstream.pause_reading()
        return True

    def on_room(self, member: Member | None, failure: Failure | None, turn: Turn) -> None:
        retries = self._retries_so_far()
        retries.turn = turn
        if failure is None:
            self._begin_attempt(member)
        elif not self._retry(retries, failure, member):
            self._respond_failure(failure)

    def _release_budget(self, retries: Retries) -> None:
        """Release the request's place in the retry budget: a response has begun, or the exchange is over."""
        if retries.holds_budget:
            retries.holds_budget = False
            self.context.retry_budget.release(self.record.service)

    def _reselect(self) -> Member | None:
        """Select another member that serves the negotiated version, by the current snapshot."""
        context, retries = self.context, self._retries
        context.snapshots.apply_batch()
        return reselect(
            self.resolution,
            context.snapshots.current,
            context.in_flight_by_member,
            context.random_bits(),
            retries.tried if retries is not None else (),
            context.held_back,
            leases=context.leases,
        )

    def _end_attempt(self) -> Attempt | None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end()
        return attempt

    # -- local responses, and the end

    def _respond_decision(self, decision: Refuse | Answer | AnswerCached | Unrouted) -> None:
        record = self.record
        if isinstance(decision, Refuse):
            decision = self.context.refusals.in_time(decision)
            record.result = decision.result if record.requested is not None else None
            negotiated = self.resolution.result
            changed = negotiated is not None and decision.result is not negotiated
            self._count(self.request.method, decision.result if changed else "")
        elif not isinstance(decision, Unrouted):
            self._count(self.request.method)
        if isinstance(decision, AnswerCached):
            self._respond(self._cached_answer(*decision) or no_document(decision.resolution))
        else:
            self._respond(answer_of(decision))

    def _cached_answer(self, resolution: Resolution, key: DocumentKey) -> LocalAnswer | None:
        """Cached document for this client; None: there is none that it may see."""
        context, request = self.context, self.request
        public_base = self.downstream.peer.public_base(request, resolution.prefix)
        rewrites = context.rewrite_cache
        return context.cached_documents.answer(key, resolution, request.host, public_base, rewrites)

    def _respond_failure(self, failure: Failure) -> None:
        """Respond with a failure, or with that of an earlier attempt that may have been executed."""
        reported = failure if self._retries is None else self._retries.reported(failure)
        self._respond(answer_to_failure(reported, self.resolution))

    def _respond(self, answer: LocalAnswer) -> None:
        record, body, response = self.record, self.body, answer.response
        if answer.result is not None and record.result is not None:
            record.result = answer.result
            record.version = record.version if answer.version is None else answer.version
        dialect = self.resolution.view.service.dialect if record.service else None
        response = self.context.request_ids.name_in(response, dialect, self.request, record)
        record.status, record.reason = response.status, answer.reason
        record.backend = NO_BACKEND  # not one that was only tried
        record.bytes_out = len(response.body)
        close = answer.closes or self.request.close or self.downstream.must_close()
        if body is not None and not body.done:
            close = close or self.request.expects_continue or not body.skippable()
        self._keep_alive = not close
        is_head_request = self.request.method == "HEAD"
        line = connection_line(self.request.minor, close=close)
        data = encode(response, answer.reason, is_head_request=is_head_request, connection=line)
        self.context.send(self.downstream.transport, data)
        self._end()

    def _end(self) -> None:
        """End the exchange (stop 8 of 8): give back what was counted and hand out the RequestRecord."""
        context, record = self.context, self.record
        stage, attempt = self.stage, self._attempt
        if self._unproven is not None:
            self._prove_product()
        if stage is not DECIDING and stage is not TUNNELLING:
            context.in_flight_by_service[record.service] -= 1
        self.stage = ENDED
        if attempt is not None:
            self._attempt = None
            attempt.end()
        if self._counted is not None:
            self._counted.end()
        if self.body is not None:
            self.body.end(record)
        if self._retries is not None:
            self._release_budget(self._retries)
        if stage is RETRY_QUEUED:
            context.retry_budget.cancel(record.service, self)
        elif stage is QUEUED:
            context.request_queue.leave(self)
        record.seconds = context.clock() - self._started
        context.record(record)
        self.downstream.exchange_ended(keep=self._keep_alive)
