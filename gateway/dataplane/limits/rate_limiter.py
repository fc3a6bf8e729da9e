"""Token buckets by key: how often something may happen. Two limiters use them.

    RateLimiter      documents that cost the gateway more than a refusal, by service
    ClientLimiter    requests, by client (`client_limiter`)

A bucket is one number, the time at which it will be full again; a full one is forgotten. The number of
buckets is bounded, and none that is not full is ever dropped, so nobody gets rid of a limit by coming from
many addresses. With several workers each has its own buckets, and subtracts from them what the others report
(`debit`). So a bucket can owe tokens, at most as many as the others' buckets hold together.
"""

from __future__ import annotations

from typing import Final, final

BURST: Final = 20
"""Costly documents of a service at once. Clients get them when they start; so many may start together."""

PER_SECOND: Final = 5.0
"""Costly documents of a service a second, after a burst. With a hundred operations one takes a millisecond,
as about forty proxied requests. So clients can cause at most 0.5 % of a core of this work."""

MAX_BUCKETS: Final = 32_768
"""Maximum number of keys with a token bucket of their own; about 5 MiB."""

SHARED_BUCKETS: Final = 1024
"""Number of token buckets shared by all keys that have none of their own (`MAX_BUCKETS`)."""


@final
class TokenBuckets:
    """Token buckets by key, of `burst` tokens that refill at `rate` a second. A bucket that was not used for
    as long as an empty one needs to refill is full. So two tables suffice: every that many seconds the
    younger one becomes the older one, and the older one is dropped."""

    __slots__ = ("_interval", "_max_buckets", "_older", "_owes", "_period", "_turns_at", "_younger")

    def __init__(self, rate: float, burst: float, max_buckets: int = MAX_BUCKETS) -> None:
        self._interval = 1.0 / rate
        """Seconds in which one token refills."""
        self._period = burst / rate
        """Seconds in which a whole bucket refills."""
        self._max_buckets = max_buckets
        self._younger: dict[object, float] = {}
        """Times by key at which token buckets will be full, of those used since the tables last turned."""
        self._older: dict[object, float] = {}
        self._turns_at = 0.0
        self._owes = False
        """Whether some token bucket may not be full after a whole period."""

    def __len__(self) -> int:
        return len(self._younger) + len(self._older)

    def wait(self, key: object, now: float) -> float:
        """Seconds until the bucket of `key` has a token; 0: it has one now."""
        return self._wait(self._younger.get(key) or self._older.get(key) or 0.0, now)

    def take(self, key: object, now: float, neighbourhood: object = None) -> float:
        """Take a token of `key`'s bucket and return 0, or the seconds until there is one. `neighbourhood`:
        while the table is full, keys without a bucket share one by it."""
        key, full_at = self._found(key, now, neighbourhood)
        wait = self._wait(full_at, now)
        self._younger[key] = full_at if wait else max(full_at, now) + self._interval
        return wait

    def debit(self, key: object, tokens: float, now: float, neighbourhood: object = None) -> None:
        """Subtract tokens that other workers have taken for the same key; the bucket may then owe some."""
        key, full_at = self._found(key, now, neighbourhood)
        full_at = self._younger[key] = max(full_at, now) + tokens * self._interval
        if full_at > now + self._period:
            self._owes = True

    def _found(self, key: object, now: float, neighbourhood: object) -> tuple[object, float]:
        """Key under which a token bucket is stored, and the time at which the bucket will be full."""
        if now >= self._turns_at:
            self._turn(now)
        full_at = self._younger.get(key, 0.0)
        if not full_at:
            full_at = self._older.pop(key, 0.0)
            if not full_at and len(self) >= self._max_buckets:
                key = hash((neighbourhood, "shared")) % SHARED_BUCKETS, "shared"
                full_at = self._younger.get(key) or self._older.pop(key, 0.0)
        return key, full_at

    def _wait(self, full_at: float, now: float) -> float:
        wait = full_at - now + self._interval - self._period
        # A thousandth of a token does not count: sums of floats are not exact.
        return wait if wait > self._interval / 1000 else 0.0

    def _turn(self, now: float) -> None:
        missed = now >= self._turns_at + self._period
        older = {} if missed else self._younger
        if self._owes:
            late = {key: at for key, at in (*self._older.items(), *self._younger.items()) if at > now}
            self._owes = bool(late)
            older = {**older, **late}
        self._older = older
        self._younger = {}
        self._turns_at = now + self._period


@final
class RateLimiter:
    """Rate limit, for each service, of documents that cost the gateway more than a refusal. The dialect says
    which endpoints are limited (`Endpoint.rate_limited`); without a token the response is 429. Contains the
    throttled services, as `decide` expects it."""

    def __init__(self) -> None:
        self._buckets = TokenBuckets(PER_SECOND, BURST)
        self._now = 1.0
        """Seconds on the worker's coarse clock: the sum of what `refill` was given."""

    def __contains__(self, service: object) -> bool:
        return self._buckets.wait(service, self._now) > 0.0

    def take(self, service: str) -> None:
        """Take one token for a service's costly document, if there is one: a refusal costs none."""
        self._buckets.take(service, self._now)

    def refill(self, seconds: float) -> None:
        """Advance the clock by which the tokens refill."""
        self._now += seconds

    def __len__(self) -> int:
        return len(self._buckets)
