"""Retries of one exchange: what it has tried, and whether it may be sent again.

`failures` says what each failure allows; here it meets the retry plan of the service and the history of the
request. Most requests never fail, so an exchange makes this object at its first failure, or for an upgrade.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, final

from gateway.core.fleet.failures import RetryCause
from gateway.dataplane.local_responses.failures import FAILURES, Failure, Resend, may_retry

if TYPE_CHECKING:
    from gateway.core.fleet.failures import Retry
    from gateway.dataplane.backends.queue import Turn


@final
class Retries:
    """Retry history of one exchange."""

    def __init__(self) -> None:
        self.tried: tuple[str, ...] = ()
        """Keys of members that are not tried again."""
        self.turn: Turn | None = None
        """Place of the request in the queue in which it has waited for room."""
        self.new_connection_only = False
        """Whether the next attempt must not use an idle connection."""
        self.only_if_not_executed = False
        """Whether to retry only if nothing was sent or the version was refused: an upgrade was requested."""
        self.holds_budget = False
        self.exhausted = False
        """Whether nothing of the request may be sent again: the client has got an interim response."""
        self.unanswered: Failure | None = None
        """Failure of an attempt that may have been executed at the negotiated version. The client gets it
        whatever comes later, so that it does not take the request for one that was not sent. No other version
        is negotiated any more."""
        self._timed_out = False
        self._refused_version = False

    def end_attempt(self, key: str, failure: Failure, *, reused: bool) -> None:
        """Note that the attempt at the member `key` has failed. A reused connection that was closed proves no
        fault: the backend closes idle connections, or was restarted. The same member may be tried again, but
        on a new connection, since its other idle ones may be closed as well."""
        if FAILURES[failure].retry is Resend.IF_IDEMPOTENT:
            self.unanswered = failure
        if reused and failure is Failure.NO_REPLY:
            self.new_connection_only = True
        else:
            self.tried = (*self.tried, key)

    def reported(self, failure: Failure) -> Failure:
        """Failure that the client gets when `failure` ends the request."""
        rule = FAILURES[failure]
        hides = not rule.is_of_client and rule.retry is not Resend.NEVER
        return self.unanswered or failure if hides else failure

    def allow(
        self,
        failure: Failure,
        plan: Retry,
        methods: Collection[str],
        *,
        attempts: int,
        body_held: bool,
    ) -> bool:
        """Whether the request may be sent to another member after this failure. Call it once for each
        failure: a second timeout and a second refusal are counted here, because no client waits for a third
        attempt. `methods`: every one that a backend may execute. `attempts`: the number begun. `body_held`:
        whether all of the body can be sent again."""
        permitted = not self.exhausted and may_retry(failure, methods, body_held=body_held)
        if self.only_if_not_executed and FAILURES[failure].retry is not Resend.ALWAYS:
            permitted = False
        match failure:
            case Failure.CONNECT | Failure.CONNECT_TIMEOUT | Failure.TLS | Failure.NOT_SENT:
                return permitted and RetryCause.CONNECT in plan.on
            case Failure.VERSION_REFUSED:
                first, self._refused_version = not self._refused_version, True
                return permitted and first and RetryCause.VERSION in plan.on
            case Failure.VERSION_UNKNOWN:
                return permitted and RetryCause.VERSION in plan.on and attempts < plan.attempts
            case Failure.REPLY_TIMEOUT:
                first, self._timed_out = not self._timed_out, True
                return permitted and first and RetryCause.NO_REPLY in plan.on and attempts < plan.attempts
            case _:
                return permitted and RetryCause.NO_REPLY in plan.on and attempts < plan.attempts
