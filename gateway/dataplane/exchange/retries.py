"""What an exchange has tried, and whether it may be sent again.

`failures` says what each failure allows at all; here it meets the retry plan of the service and what this
request has been through. One function decides. Most requests never fail, so an exchange makes this object at
its first failure, or when it asks for an upgrade. Sends nothing itself.
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
    """The history of one exchange."""

    def __init__(self) -> None:
        self.tried: tuple[str, ...] = ()
        """Keys of the members that are not tried again."""
        self.turn: Turn | None = None
        """The place of the request in the queue in which it has waited for room."""
        self.new_connection_only = False
        """The request is sent on new connections only."""
        self.only_if_not_executed = False
        """Sent again only where nothing was sent, or the version was refused: an upgrade was asked for."""
        self.holds_budget = False
        """Counted in the retry budget."""
        self.exhausted = False
        """Nothing is sent again any more: the client has got an interim response."""
        self.unanswered: Failure | None = None
        """Of an attempt that may have been executed at the negotiated version. Whatever comes after it, the
        client gets this: it must not take the request for one that was not sent. No other version is
        negotiated any more."""
        self._timed_out = False
        """A backend did not respond in time."""
        self._refused_version = False
        """A backend refused the version."""

    def end_attempt(self, key: str, failure: Failure, *, reused: bool) -> None:
        """The attempt at the member `key` has failed.

        A reused connection that was closed proves no fault: the backend closes idle connections, or was
        restarted. The same member may be tried again, but on a new connection, since its other idle ones may
        be closed as well.
        """
        if FAILURES[failure].retry is Resend.IF_IDEMPOTENT:
            self.unanswered = failure
        if reused and failure is Failure.NO_REPLY:
            self.new_connection_only = True
        else:
            self.tried = (*self.tried, key)

    def reported(self, failure: Failure) -> Failure:
        """The failure that the client gets when `failure` ends the request."""
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
        """Whether the request may be sent to another member after this failure.

        Call it once for each failure: a second timeout and a second refusal are counted here, because no
        client waits for a third attempt. `methods`: every one that a backend may execute for the request.
        `attempts`: how many have begun. `body_held`: the whole body that has come can be sent again.
        """
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
