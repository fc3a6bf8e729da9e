"""Metrics of one process: what the data plane, the prober and the admin listener call.

    Outcome -> record (a few dict operations) -> book.Book -> scrape.Scrape (names, labels) -> /metrics

The hot path formats nothing and looks nothing up in a registry; everything that can be derived from the
current snapshot is derived when somebody scrapes. The registry is our own: the library's global one is shared
with whatever else is imported.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from typing import Final, final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from gateway.core.decision import Verdict
from gateway.core.dialect import AskKind
from gateway.core.offer import Offer
from gateway.core.snapshot import Snapshot, SnapshotSource
from gateway.telemetry.book import (
    BOUNDS,
    MOST_CODE_REASONS,
    OTHER,
    BackendTally,
    Book,
    Histogram,
    Tally,
)
from gateway.telemetry.outcome import Outcome
from gateway.telemetry.scrape import Connections, Counts, Scrape

_SERVED: Final = Verdict.SERVED
_UNREAD: Final = AskKind.SILENT  # the label `ask` in a transparent service, where nobody reads what was asked


@final
class Metrics:
    """Counts what happens. `client_errors`: reasons whose series exist at zero (constants of the data
    plane)."""

    def __init__(self, client_errors: Collection[str] = ()) -> None:
        self._book = Book(time.time())
        self._book.client_errors.update(dict.fromkeys(client_errors, 0))
        self._tallies: dict[str, Tally] = {"": self._book.unrouted}
        self._snapshots: SnapshotSource | None = None
        self._scrape = Scrape(self._book)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._scrape)

    # --- what is watched: read at scrape only ---------------------------------------------------------------

    def watch(
        self,
        snapshots: SnapshotSource,
        in_flight: Callable[[], Counts],
        connections: Callable[[], Connections],
    ) -> None:
        """Where gauges come from: `in_flight` by service, `connections` as (idle, active) by (service,
        backend)."""
        self._snapshots = snapshots
        self._scrape.watch(snapshots, in_flight, connections)
        self._enrol(snapshots.current)

    def watch_access_log(self, dropped: Callable[[], int]) -> None:
        """Show how many lines the access log lost (hardening, Disk full)."""
        self._scrape.watch_access_log(dropped)

    # --- the hot path ---------------------------------------------------------------------------------------

    def record(self, outcome: Outcome) -> None:
        """Count one finished request."""
        tally = self._tallies.get(outcome.service) or self._tally(outcome.service)
        backend = outcome.backend
        key = (backend, outcome.status)
        requests = tally.requests
        if key in requests:
            requests[key] += 1
        else:
            tally.count_request(*key)
        seconds = outcome.seconds
        durations = tally.durations
        durations.counts[bisect_left(BOUNDS, seconds)] += 1
        durations.total += seconds
        verdict = outcome.verdict
        if verdict is not None:
            tally.negotiations[outcome.ask or _UNREAD, verdict] += 1
            if verdict is _SERVED:
                version = outcome.version
                if version in tally.served:
                    tally.served[version] += 1
                else:
                    self._first_served(outcome.service, tally, version)
        seconds = outcome.backend_seconds
        if seconds >= 0 and backend in tally.backends:
            durations = tally.backends[backend].durations
            durations.counts[bisect_left(BOUNDS, seconds)] += 1
            durations.total += seconds

    def _tally(self, service: str) -> Tally:
        """A service seen for the first time, or one that is not configured any more."""
        if self._snapshots is not None:
            self._enrol(self._snapshots.current)
        return self._tallies.get(service, self._book.strays)

    def _first_served(self, service: str, tally: Tally, version: str) -> None:
        view = self._snapshots.current.views.get(service) if self._snapshots is not None else None
        if view is not None:
            tally.enrol(view)
        tally.count_served(version, view)

    def _enrol(self, snapshot: Snapshot) -> None:
        self._book.enrol(snapshot)
        self._tallies.update(self._book.services)

    # --- now and then ---------------------------------------------------------------------------------------

    def client_error(self, reason: str) -> None:
        """A client broke the rules of HTTP; `reason` is a constant of the data plane."""
        errors = self._book.client_errors
        if reason not in errors and len(errors) >= MOST_CODE_REASONS:
            reason = OTHER
        errors[reason] = errors.get(reason, 0) + 1

    def retry(self, service: str, reason: str) -> None:
        """A request went to another backend."""
        retries = (self._tallies.get(service) or self._tally(service)).retries
        retries[reason if reason in retries else OTHER] += 1

    def retry_given_up(self, service: str) -> None:
        """A request that could have been sent again was not, since too many were already."""
        (self._tallies.get(service) or self._tally(service)).retries_given_up += 1

    def deferred(self, service: str, backend: str) -> None:
        """What a request taught about a backend has to wait, since there was too much to learn."""
        if (counts := self._backend(service, backend)) is not None:
            counts.deferred += 1

    def contradiction(self, service: str, backend: str) -> None:
        """A backend said that it executed another version than it was asked for (hardening V9)."""
        if (counts := self._backend(service, backend)) is not None:
            counts.contradictions += 1

    def probed(self, service: str, backend: str, seconds: float, failure: str | None) -> None:
        """A probe ended after `seconds`; `failure` is None or one of `book.PROBE_FAILURES`."""
        if (counts := self._backend(service, backend)) is None:
            return
        counts.probes.add(seconds)
        if failure is not None:
            failures = counts.probe_failures
            failures[failure if failure in failures else OTHER] += 1

    def _backend(self, service: str, backend: str) -> BackendTally | None:
        """None for a backend that is not configured any more."""
        tally = self._tallies.get(service) or self._tally(service)
        return tally.backends.get(backend)

    def reloaded(self, ok: bool, at: float) -> None:  # noqa: FBT001 - the agreed interface
        """A reload was tried; `at` is wall-clock seconds."""
        book = self._book
        book.reloads["success" if ok else "failure"] += 1
        book.last_reload_successful = ok
        if ok:
            book.last_success_at = at

    def lag(self, worker: str, seconds: float) -> None:
        """How late the loop of `worker` woke up."""
        self._book.lags.setdefault(worker, Histogram()).add(seconds)

    def snapshot_changed(self, before: Snapshot, after: Snapshot) -> None:
        """Count what happened to the offers; subscribe it to the cell."""
        self._enrol(after)
        for name, view in after.views.items():
            old = before.views.get(name)
            if old is not None and old is not view:
                for change in offer_changes(old.offer, view.offer):
                    self._book.services[name].offer_changes[change] += 1

    def served(self) -> Mapping[str, Mapping[str, int]]:
        """Requests served since the start, by service and version; the mappings go on counting."""
        return {name: tally.served for name, tally in self._book.services.items()}

    # --- the scrape -----------------------------------------------------------------------------------------

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The body of /metrics and its content type: OpenMetrics when `accept` asks for it, else the text
        format."""
        if self._snapshots is not None:
            self._enrol(self._snapshots.current)
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def offer_changes(before: Offer, after: Offer) -> list[tuple[str, str]]:
    """Which ends of an offer moved, as (bound, direction). Appearing and vanishing have no direction."""
    if not before.versions or not after.versions:
        return []
    ends: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "min": (before.versions.lowest, after.versions.lowest),
        "max": (before.versions.highest, after.versions.highest),
    }
    return [(bound, "up" if new > old else "down") for bound, (old, new) in ends.items() if new != old]
