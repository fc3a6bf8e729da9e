"""Recent counts, made from those since the start: requests per second, and versions and traffic of the last
hour.

A timer samples the counts at all times, so the page has rates at its first view. A sample copies a few
dictionaries of each service, in parts between which requests are forwarded. Sums are made on demand. Counts
of other processes arrive about once a second (`Metrics.add`), which a span of several seconds evens out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from time import monotonic
from typing import ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar, final

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.versions.version import Scheme, Version
from gateway.runtime.parts import in_parts
from gateway.runtime.timer import Timer

MINIMUM: Final = 0.5
"""Minimum seconds between two samples of a request rate: over less a few requests would look like many."""

SPAN: Final = 3600.0
"""Seconds covered by the recent counts of served versions and of traffic."""

SERVER_ERROR: Final = 500
"""Lowest HTTP status that says that the server has failed (RFC 9110, 15.6)."""

_WHOLE_HOUR: Final = 0.98 * SPAN
"""Minimum seconds that counts cover to be called those of the last hour: samples are taken once a minute."""

_DONE: Final = object()
_Key = TypeVar("_Key")
_Counts = TypeVar("_Counts")


class RequestCounts(NamedTuple):
    """Request counts of one service since the start. `Metrics.request_counts` returns live mappings."""

    requests: Mapping[tuple[int, str], int]
    """Number of requests by (status, backend), as in the series `OfRequests.requests`."""
    results: Mapping[tuple[RequestedKind, NegotiationResult], int]
    """Number of requests by (requested, result), as in the series `OfService.negotiations`."""
    refused: Mapping[str, int]
    """Number of requests not admitted, by reason, as in the series `OfService.requests_refused`."""


ServedCounts: TypeAlias = Mapping[str, int]
"""Requests served by one service since the start, by version. `Metrics.served` returns live mappings."""


class ServiceRates(NamedTuple):
    """Recent requests per second of one service. Mappings have no zeros."""

    requests: float = 0.0
    by_backend: Mapping[str, float] = {}
    results: Mapping[NegotiationResult, float] = {}
    refused: Mapping[str, float] = {}
    """Recent requests per second that were not admitted, by reason."""


class TrafficCounts(NamedTuple):
    """Number of requests of one service: those since the start, or those of one minute."""

    requests: int = 0
    server_errors: int = 0
    """Number of requests that were answered with a status of 500 or above."""

    @classmethod
    def of(cls, requests: Mapping[tuple[int, str], int]) -> TrafficCounts:
        """Adds up `RequestCounts.requests` over statuses and backends."""
        failed = (number for (status, _), number in requests.items() if status >= SERVER_ERROR)
        return cls(sum(requests.values()), sum(failed))


NO_RATES: Final = ServiceRates()
_NOTHING: Final = RequestCounts({}, {}, {})


class LastHour(NamedTuple):
    """Requests that one service has served in the last hour."""

    served: Mapping[str, int]
    """Number of requests by version as text."""
    seconds: float
    """Seconds that the counts cover: an hour, or less after a start."""

    @property
    def total(self) -> int:
        return sum(self.served.values())

    @property
    def is_whole(self) -> bool:
        """Whether the counts cover an hour; otherwise they cover the time since the start."""
        return self.seconds >= _WHOLE_HOUR

    def requests(self, scheme: Scheme, wanted: Callable[[Version], bool]) -> int:
        """Sums the requests for `wanted` versions, without those whose version was not counted."""
        return sum(
            count
            for text, count in self.served.items()
            if (version := scheme.parse(text)) is not None and wanted(version)
        )


class _Samples(Generic[_Counts]):
    """Sampler of request counts by service, from `start` to `close`. `clock` gives monotonic seconds."""

    every: ClassVar[float]
    """Seconds between two samples of the request counts."""
    span: ClassVar[float]
    """Seconds of the past that the kept samples of the request counts cover."""

    def __init__(
        self, counts: Callable[[], Mapping[str, _Counts]], clock: Callable[[], float] = monotonic
    ) -> None:
        self._counts = counts
        self._clock = clock
        self._samples: deque[tuple[float, Mapping[str, _Counts]]] = deque(
            maxlen=round(self.span / self.every) + 1
        )
        self._timer = Timer()

    def start(self) -> None:
        """Takes a sample of the counts now, and then every `every` seconds, in parts."""
        self.sample()
        self._wait()

    def _wait(self) -> None:
        self._timer.set(self.every, lambda: self._go_on(self._parts()))

    def _go_on(self, parts: Iterator[None]) -> None:
        if next(parts, _DONE) is _DONE:
            self._wait()
        else:
            self._timer.set(0, lambda: self._go_on(parts))

    def close(self) -> None:
        self._timer.cancel()

    def sample(self) -> None:
        """Takes a sample of the present counts at once."""
        for _ in self._parts():
            pass

    def _parts(self) -> Iterator[None]:
        """Takes a sample, and stops after each part of the services. Mappings equal to those of the last
        sample are shared."""
        now, counts, last = self._clock(), self._counts(), self._samples[-1][1] if self._samples else {}
        copied = {}
        for part in in_parts(counts):
            for name in part:
                found = counts.get(name)
                if found is not None:  # else it was removed between two parts
                    copied[name] = self._copied(found, last.get(name))
            yield
        self._samples.append((now, copied))

    def _copied(self, counts: _Counts, last: _Counts | None) -> _Counts:
        """Copies the counts of one service, or returns `last` if they are equal."""
        raise NotImplementedError

    def _oldest(self, now: float) -> tuple[float, Mapping[str, _Counts]]:
        """Returns the newest sample of the counts that is at least `span` old, or the first one."""
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
        """Returns a service's mean rates over the last `span` seconds, or since the start if less."""
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
    """Requests served in the last hour, by service and version."""

    every = 60.0
    span = SPAN

    def _copied(self, counts: ServedCounts, last: ServedCounts | None) -> ServedCounts:
        return last if last is not None and last == counts else dict(counts)

    def last_hour(self, service: str) -> LastHour:
        """Returns a service's requests since the sample that is an hour old, or since the first one."""
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
        """Returns a service's request counts of each whole minute, the oldest first."""
        counted = [samples[service] for _, samples in self._samples if service in samples]
        return [_difference(after, before) for before, after in pairwise(counted)]


def _difference(counts: TrafficCounts, before: TrafficCounts) -> TrafficCounts:
    if counts.requests < before.requests:
        # The service was removed and came back, and its counts began at zero again.
        return counts
    return TrafficCounts(
        counts.requests - before.requests, max(0, counts.server_errors - before.server_errors)
    )


def _more(counts: Mapping[_Key, int], before: Mapping[_Key, int]) -> dict[_Key, int]:
    """Returns by how much each count has risen since `before`, without zeros."""
    found = {}
    for key, count in counts.items():
        earlier = before.get(key, 0)
        if count != earlier:
            # Fewer than before: the service was removed and came back, and its counts began at zero again.
            found[key] = count - earlier if count > earlier else count
    return found
