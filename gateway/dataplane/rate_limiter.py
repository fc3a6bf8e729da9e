"""Limits how often the gateway makes a document that costs more than a refusal: a token bucket per service.

The dialect says which endpoints are limited (`Endpoint.rate_limited`). `core.decision` makes the response
without a token (429). Reads no clock: the coarse clock of the worker refills the buckets.
"""

from __future__ import annotations

from typing import Final, final

BURST: Final = 20
"""Documents at once. Clients request them when they start, and this many may start together."""

PER_SECOND: Final = 5.0
"""Documents a second after that. With a hundred operations configured one takes a millisecond, as much as
about forty proxied requests. So clients can cause at most 0.5 % of a core of this work."""


@final
class RateLimiter:
    """Contains the services that are throttled, as `decide` expects it: `service in limiter`."""

    def __init__(self) -> None:
        self._tokens: dict[str, float] = {}  # services with a full bucket are left out

    def __contains__(self, service: object) -> bool:
        return isinstance(service, str) and self._tokens.get(service, BURST) < 1

    def take(self, service: str) -> None:
        """Take one token, if there is one: a refusal costs none."""
        if service not in self:
            self._tokens[service] = self._tokens.get(service, BURST) - 1

    def refill(self, seconds: float) -> None:
        """Add the tokens of `seconds`. Full buckets are dropped, and so are those of removed services."""
        if self._tokens:
            added = seconds * PER_SECOND
            self._tokens = {
                name: tokens + added for name, tokens in self._tokens.items() if tokens + added < BURST
            }
