"""What was counted lately, from the counts since the start: requests per second, and the versions of the last
hour.

The counts are sampled on a timer, whether anybody looks or not: so the first look at the page has rates, and
two people who look at the same time see the same. A request costs nothing here, and a sample is a copy of a
few dictionaries: 0.2 ms for a thousand backends. The sums are made when somebody reads. Counts of other
processes are among them when `Metrics.add` has been called, which is about once a second: a span of several
seconds makes their steps even. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from time import monotonic
from typing import ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar, final

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.versions.version import Scheme, Version

MINIMUM: Final = 0.5
"""Seconds that there must be between two counts: over less a few requests would look like many."""

SPAN: Final = 3600.0
"""Seconds that are looked back for the versions that were served."""

SERVER_ERROR: Final = 500
"""The least status that says that the server has failed (RFC 9110, 15.6)."""

_WHOLE_HOUR: Final = 0.98 * SPAN
"""Seconds from which on counts are called those of the last hour: samples are taken once a minute."""

_Key = TypeVar("_Key")
_Counts = TypeVar("_Counts")


class RequestCounts(NamedTuple):
    """What one service has counted since the start. The mappings of `Metrics.request_counts` are live."""

    requests: Mapping[tuple[int, str], int]
    """By (status, backend): `OfRequests.requests`."""
    results: Mapping[tuple[RequestedKind, NegotiationResult], int]
    """By (requested, result): `OfService.negotiations`."""
    refused: Mapping[str, int]
    """Not admitted, by reason: `OfService.requests_refused`."""


ServedCounts: TypeAlias = Mapping[str, int]
"""Requests of one service since the start, by version as written. Those of `Metrics.served` are live."""


class ServiceRates(NamedTuple):
    """Of one service, requests per second lately."""

    requests: float = 0.0
    by_backend: Mapping[str, float] = {}
    """By name; only those that got some."""
    results: Mapping[NegotiationResult, float] = {}
    """By what negotiation led to; only those that there were."""
    refused: Mapping[str, float] = {}
    """Those not admitted, by reason; only those that there were."""


class TrafficCounts(NamedTuple):
    """Requests of one service: those since the start, or those of one minute."""

    requests: int = 0
    server_errors: int = 0
    """Requests that were answered with a status of 500 or above."""


NO_RATES: Final = ServiceRates()
_NOTHING: Final = RequestCounts({}, {}, {})


class LastHour(NamedTuple):
    """What one service has served lately."""

    served: Mapping[str, int]
    """Requests by version as written."""
    seconds: float
    """How far back that goes: an hour, or less after a start."""

    @property
    def total(self) -> int:
        """Requests at any version."""
        return sum(self.served.values())

    @property
    def is_whole(self) -> bool:
        """Whether it is an hour; else it goes back to the start."""
        return self.seconds >= _WHOLE_HOUR

    def requests(self, scheme: Scheme, wanted: Callable[[Version], bool]) -> int:
        """Requests at the versions that are `wanted`. What was counted without its version is left out."""
        return sum(
            count
            for text, count in self.served.items()
            if (version := scheme.parse(text)) is not None and wanted(version)
        )


class _Samples(Generic[_Counts]):
    """Samples `counts`, by service, from `start` to `close`, on the running loop. `clock`: monotonic
    seconds."""

    every: ClassVar[float]
    """Seconds between two samples."""
    span: ClassVar[float]
    """Seconds that are looked back."""

    def __init__(
        self, counts: Callable[[], Mapping[str, _Counts]], clock: Callable[[], float] = monotonic
    ) -> None:
        self._counts = counts
        self._clock = clock
        self._samples: deque[tuple[float, Mapping[str, _Counts]]] = deque(
            maxlen=round(self.span / self.every) + 1
        )
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Take a sample now, and then one after each `every`."""
        self.sample()
        self._timer = asyncio.get_running_loop().call_later(self.every, self.start)

    def close(self) -> None:
        """Take no more samples."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sample(self) -> None:
        """Copy the present counts. What is the same as in the last sample is shared."""
        last = self._samples[-1][1] if self._samples else {}
        copied = {name: self._copied(counts, last.get(name)) for name, counts in self._counts().items()}
        self._samples.append((self._clock(), copied))

    def _copied(self, counts: _Counts, last: _Counts | None) -> _Counts:
        """A quiet service costs a comparison, and no memory."""
        raise NotImplementedError

    def _oldest(self, now: float) -> tuple[float, Mapping[str, _Counts]]:
        """The newest sample that is a `span` old, or the first one."""
        return next(
            (sample for sample in reversed(self._samples) if sample[0] <= now - self.span),
            self._samples[0] if self._samples else (now, {}),
        )


@final
class Rates(_Samples[RequestCounts]):
    """Requests per second over the last ten seconds, by service and backend."""

    every = 2.0
    span = 10.0

    def _copied(self, counts: RequestCounts, last: RequestCounts | None) -> RequestCounts:
        if last is None:
            return RequestCounts(dict(counts.requests), dict(counts.results), dict(counts.refused))
        return RequestCounts(
            last.requests if counts.requests == last.requests else dict(counts.requests),
            last.results if counts.results == last.results else dict(counts.results),
            last.refused if counts.refused == last.refused else dict(counts.refused),
        )

    def of(self, service: str) -> ServiceRates:
        """Means over the last `span` seconds, or since the start if that is less. A service that nothing is
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


@final
class RecentRequests(_Samples[ServedCounts]):
    """Requests served in the last hour, by service and version. The change log reads it when an offer
    falls."""

    every = 60.0
    span = SPAN

    def _copied(self, counts: ServedCounts, last: ServedCounts | None) -> ServedCounts:
        return last if last is not None and last == counts else dict(counts)

    def last_hour(self, service: str) -> LastHour:
        """What `service` has served since the sample that is an hour old, or since the first one."""
        now = self._clock()
        since, samples = self._oldest(now)
        served, before = self._counts().get(service, {}), samples.get(service, {})
        return LastHour({**dict.fromkeys(served, 0), **_more(served, before)}, now - since)


@final
class HourlyTraffic(_Samples[TrafficCounts]):
    """Requests of each service, minute by minute, in the last hour."""

    every = 60.0
    span = SPAN

    def _copied(self, counts: TrafficCounts, last: TrafficCounts | None) -> TrafficCounts:
        return counts

    def minutes(self, service: str) -> Sequence[TrafficCounts]:
        """Returns what was counted in each whole minute of `service`, the oldest first."""
        counted = [samples[service] for _, samples in self._samples if service in samples]
        return [_difference(after, before) for before, after in pairwise(counted)]


def _difference(counts: TrafficCounts, before: TrafficCounts) -> TrafficCounts:
    if counts.requests < before.requests:
        # The service was removed and came back, and its counts began at zero again.
        return counts
    return TrafficCounts(
        counts.requests - before.requests, max(0, counts.server_errors - before.server_errors)
    )


def totals(counts: Mapping[str, RequestCounts]) -> dict[str, TrafficCounts]:
    """Adds up the requests of each service over its statuses and backends."""
    return {
        name: TrafficCounts(
            sum(each.requests.values()),
            sum(number for (status, _), number in each.requests.items() if status >= SERVER_ERROR),
        )
        for name, each in counts.items()
    }


def _more(counts: Mapping[_Key, int], before: Mapping[_Key, int]) -> dict[_Key, int]:
    """What was counted since `before`, without what was not."""
    found = {}
    for key, count in counts.items():
        earlier = before.get(key, 0)
        if count != earlier:
            # Fewer than before: the service was removed and came back, and its counts began at zero again.
            found[key] = count - earlier if count > earlier else count
    return found
