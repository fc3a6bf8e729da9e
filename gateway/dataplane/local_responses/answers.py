"""The local response to a decision or a failure, and why it is given.

Values in, a value out: nothing is sent or counted here. The dialect has shaped the response. The exchange
writes it, and records what is in the value.
"""

from __future__ import annotations

from typing import NamedTuple, final

from gateway.core.decision.decision import Answer, NegotiationResult, Refuse, Resolution, Unrouted
from gateway.core.decision.local_responses import error_response, unavailable
from gateway.core.http.message import Response
from gateway.dataplane.local_responses import local_response
from gateway.dataplane.local_responses.failures import FAILURES, Failure, failure_error
from gateway.dataplane.local_responses.proxy_status import LocalReason, local_reason


@final
class LocalAnswer(NamedTuple):
    """One local response."""

    response: Response
    reason: str
    """A `Failure` or a `LocalReason`."""
    closes: bool = False
    """The connection ends with it, for example because the rest of the request body cannot be discarded."""
    result: NegotiationResult | None = None
    """What became of the negotiation, where it had come to anything; None: what was decided stands."""
    version: str | None = None
    """The version that it shows; None: what was decided stands."""


OPTIONS_ENDS_HERE = LocalAnswer(local_response.OPTIONS_ENDS_HERE, LocalReason.MAX_FORWARDS)


def answer_of(decision: Refuse | Answer | Unrouted) -> LocalAnswer:
    """The answer of a decision that needs no backend."""
    match decision:
        case Unrouted():
            return LocalAnswer(local_response.plain_error(404), LocalReason.NO_SERVICE)
        case Answer(resolution, response):
            return LocalAnswer(response, local_reason(resolution, response.status))
        case Refuse(resolution, response, result):
            return LocalAnswer(response, local_reason(resolution, response.status, result))


def no_document(resolution: Resolution) -> LocalAnswer:
    """No backend may give a document, and none is known."""
    response = unavailable(resolution.view, resolution.requested)
    return LocalAnswer(response, LocalReason.UNAVAILABLE)


def answer_to_failure(failure: Failure, resolution: Resolution) -> LocalAnswer:
    """The answer to `failure` that `FAILURES` tells, in the error format of the dialect."""
    response = error_response(
        resolution.view, failure_error(failure, resolution.offered, resolution.requested)
    )
    closes = FAILURES[failure].is_of_client
    return LocalAnswer(response, failure, closes, NegotiationResult.UNAVAILABLE)
