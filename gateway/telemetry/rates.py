"""Requests per second lately, by service and backend, from the counts since the start.

The counts are sampled on a timer, whether anybody looks or not: so the first look at the page has rates, and
two people who look at the same time see the same. A request costs nothing here, and a sample is a copy of a
few dictionaries: 0.2 ms for a thousand backends. The sums are made when somebody reads. Counts of other
processes are among them when `Metrics.add` has been called, which is about once a second: a span of several
seconds makes their steps even. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, NamedTuple, TypeAlias, TypeVar, final

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind

EVERY: Final = 2.0
"""Seconds between two samples."""

SPAN: Final = 10.0
"""Seconds over which a rate is the mean."""

MINIMUM: Final = 0.5
"""Seconds that there must be between two counts: over less a few requests would look like many."""

_Key = TypeVar("_Key")


class RequestCounts(NamedTuple):
    """What one service has counted since the start. The mappings of `Metrics.request_counts` are live."""

    requests: Mapping[tuple[int, str], int]
    """By (status, backend): `OfRequests.requests`."""
    results: Mapping[tuple[RequestedKind, NegotiationResult], int]
    """By (requested, result): `OfService.negotiations`."""
    refused: Mapping[str, int]
    """Not admitted, by reason: `OfService.requests_refused`."""


Counts: TypeAlias = Mapping[str, RequestCounts]
"""By service."""


class ServiceRates(NamedTuple):
    """Of one service, requests per second lately."""

    requests: float = 0.0
    by_backend: Mapping[str, float] = {}
    """By name; only those that got some."""
    results: Mapping[NegotiationResult, float] = {}
    """By what negotiation led to; only those that there were."""
    refused: Mapping[str, float] = {}
    """Those not admitted, by reason; only those that there were."""


NO_RATES: Final = ServiceRates()


@final
class Rates:
    """Samples `counts` from `start` to `close`, on the running loop. `clock`: monotonic seconds."""

    def __init__(self, counts: Callable[[], Counts], clock: Callable[[], float] = monotonic) -> None:
        self._counts = counts
        self._clock = clock
        self._samples: deque[tuple[float, Counts]] = deque(maxlen=round(SPAN / EVERY) + 1)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Take a sample now, and then every `EVERY` seconds."""
        self.sample()
        self._timer = asyncio.get_running_loop().call_later(EVERY, self.start)

    def close(self) -> None:
        """Take no more samples."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sample(self) -> None:
        """Copy the present counts. What is the same as in the last sample is shared."""
        last = self._samples[-1][1] if self._samples else {}
        copied = {name: _copied(counts, last.get(name)) for name, counts in self._counts().items()}
        self._samples.append((self._clock(), copied))

    def of(self, service: str) -> ServiceRates:
        """Means over the last `SPAN` seconds, or since the start if that is less. A service that nothing is
        known of has no requests."""
        counts = self._counts().get(service)
        now = self._clock()
        since, samples = self._oldest(now)
        seconds = now - since
        if counts is None or seconds < MINIMUM:
            return NO_RATES
        before = samples.get(service, _NOTHING)
        by_backend: dict[str, float] = {}
        for (_, backend), count in _more(counts.requests, before.requests).items():
            by_backend[backend] = by_backend.get(backend, 0.0) + count / seconds
        results: dict[NegotiationResult, float] = {}
        for (_, result), count in _more(counts.results, before.results).items():
            results[result] = results.get(result, 0.0) + count / seconds
        refused = {reason: count / seconds for reason, count in _more(counts.refused, before.refused).items()}
        return ServiceRates(sum(by_backend.values()), by_backend, results, refused)

    def _oldest(self, now: float) -> tuple[float, Counts]:
        """The newest sample that is `SPAN` seconds old, or the first one."""
        return next(
            (sample for sample in reversed(self._samples) if sample[0] <= now - SPAN),
            self._samples[0] if self._samples else (now, {}),
        )


_NOTHING: Final = RequestCounts({}, {}, {})


def _copied(counts: RequestCounts, last: RequestCounts | None) -> RequestCounts:
    """A quiet service costs a comparison, and no memory."""
    if last is None:
        return RequestCounts(dict(counts.requests), dict(counts.results), dict(counts.refused))
    return RequestCounts(
        last.requests if counts.requests == last.requests else dict(counts.requests),
        last.results if counts.results == last.results else dict(counts.results),
        last.refused if counts.refused == last.refused else dict(counts.refused),
    )


def _more(counts: Mapping[_Key, int], before: Mapping[_Key, int]) -> dict[_Key, int]:
    """What was counted since `before`, without what was not."""
    found = {}
    for key, count in counts.items():
        earlier = before.get(key, 0)
        if count != earlier:
            # Fewer than before: the service was removed and came back, and its counts began at zero again.
            found[key] = count - earlier if count > earlier else count
    return found
