"""Counters of the process, of each service and of each backend.

An `OwnerCounters` holds the cells of its series (`series.declaring`). One event loop writes and reads,
without a lock. Owners that are not configured any more are dropped, so that reloads cannot make counts
without bound.

    worker   Counters -> take -> Counted -> channel -> add -> Counters   main process -> /metrics

`workers.worker_parts` takes, `workers.messages.Report` carries, `workers.reports` adds.

A worker reports its counts since the last report and begins again at zero. So the main process holds the sums
over all workers, and no series falls because a worker ends or is replaced. Only the counts of a killed worker
since its last report are lost. The main process decides which services and backends have series.

The hot path bypasses the declarations. A finished request counts in one `Subtotal`, together with all that
have the same keys. `pour` moves the subtotals into the cells: before these are read, and before a change of
the service's backends or offer could give the same request other keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, final

from gateway.core.decision.decision import EXECUTED, NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.backend import Member
from gateway.core.fleet.offer import Offer
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme
from gateway.telemetry.histogram import Histogram
from gateway.telemetry.request_record import NO_BACKEND
from gateway.telemetry.series.backend import OfBackend
from gateway.telemetry.series.catalog import SERIES
from gateway.telemetry.series.declaring import OTHER, Cell, Series, Taken
from gateway.telemetry.series.service import MAX_VERSIONS, OfGate, OfRequests, OfService

UNROUTED: Final = ""
"""Name of the counters for requests that no service matched."""

UNCONFIGURED: Final = "/"
"""Name of the counters for services that are not configured any more; no service can have it."""

MAX_SUBTOTALS: Final = 256
"""Most subtotals of a service, whose clients choose the versions in their keys. Then all are poured."""

SubtotalKey: TypeAlias = tuple[str, int, RequestedKind | None, NegotiationResult | None, str]
"""What decides how a request counts: backend, status, requested kind, negotiation result and version."""

_NOT_READ: Final = RequestedKind.NONE
"""Value of the label `requested` in a transparent service, where the requested version is not read."""

Counted: TypeAlias = Mapping[tuple[str, ...], Mapping[str, Taken]]
"""Counts since the last report, by owner ((), (service,) or (service, backend)) and full name of a series."""


class OwnerCounters:
    """Counters of one owner: the process, a service or a backend."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells: dict[Series, Cell] = {}

    def cell(self, series: Series) -> Cell:
        """Returns the cell (counts by label values) of a series, always the same one for these counters."""
        cell = self.cells.get(series)
        if cell is None:
            cell = self.cells[series] = series.new_cell()
        return cell

    def pour(self) -> None:
        """Moves counts that are kept outside of the cells, for speed, into the cells."""

    def take(self) -> Mapping[str, Taken]:
        """Sets all counts of this owner to zero and returns them by the full name of the series."""
        self.pour()
        taken = {}
        for series, cell in self.cells.items():
            found = series.take(cell)
            if found:
                taken[series.full_name] = found
        return taken

    def add(self, taken: Mapping[str, Taken]) -> None:
        """Adds counts taken from the same owner (process, service or backend) in another process."""
        for name, found in taken.items():
            series = SERIES[name]
            series.add(self.cell(series), found, self)


@final
class BackendCounters(OwnerCounters):
    """Counters of one backend of one service."""

    __slots__ = ("durations",)

    def __init__(self) -> None:
        super().__init__()
        self.durations: Histogram = self.cell(OfBackend.backend_duration_seconds)[()]


@final
class Subtotal:
    """Requests of a service that count under the same keys, since its subtotals were last poured."""

    __slots__ = ("bytes_in", "bytes_out", "of_backend", "requests", "view")

    def __init__(self, view: ServiceView | None, of_backend: Histogram | None) -> None:
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.of_backend = of_backend
        """Durations of the backend that answered; None: none did, or it is not configured any more."""
        self.view = view
        """The service as it was when the first of these requests ended; None: it is not known."""


@final
class ServiceCounters(OwnerCounters):
    """Counters of one service, and of its backends."""

    __slots__ = (
        *("_advertised", "_advertised_until", "backends", "durations", "negotiations"),
        *("requests", "served", "subtotals"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[tuple[int, str], int] = self.cell(OfRequests.requests)
        self.durations: Histogram = self.cell(OfRequests.request_duration_seconds)[()]
        self.negotiations: dict[tuple[RequestedKind, NegotiationResult], int] = self.cell(
            OfService.negotiations
        )
        self.served: dict[str, int] = self.cell(OfService.served_version)
        self.backends: dict[str, BackendCounters] = {}
        self.subtotals: dict[SubtotalKey, Subtotal] = {}
        """Counts of requests that `pour` has not moved into the cells yet."""
        self._advertised = VersionSet()
        """Versions that backends of the service have advertised, up to the view `_advertised_until`."""
        self._advertised_until: ServiceView | None = None
        """Last view of the service whose advertised versions are in `_advertised`."""

    def new_subtotal(self, key: SubtotalKey, view: ServiceView | None) -> Subtotal:
        """Returns the subtotal of requests with a new `key`. `view`: the service's current one, if any."""
        if len(self.subtotals) >= MAX_SUBTOTALS:
            self.pour()
        backend = self.backends.get(key[0])
        subtotal = self.subtotals[key] = Subtotal(view, None if backend is None else backend.durations)
        return subtotal

    def pour(self) -> None:
        if not self.subtotals:
            return
        body_bytes, evidence = self.cell(OfRequests.body_bytes), self.cell(OfGate.evidence)
        for (backend, status, requested, result, version), subtotal in self.subtotals.items():
            number, view, at = subtotal.requests, subtotal.view, ""
            OfRequests.requests.count(self.requests, (status, backend), self, number)
            body_bytes["in"] += subtotal.bytes_in
            body_bytes["out"] += subtotal.bytes_out
            if result is not None:
                self.negotiations[requested or _NOT_READ, result] += number
            if result in EXECUTED:
                at = self._counted_version(version, view)
                self.served[at] += number
                if view is not None and view.service.is_deprecated(
                    view.service.dialect.scheme.parse(version)
                ):
                    self.cell(OfService.deprecated_requests)[()] += number
            # A 503 without a version, while others are on offer: replicas or workers are agreeing on it.
            offers = view is not None and bool(view.offer.versions)
            agreeing = offers and result is NegotiationResult.UNAVAILABLE and not version
            if backend != NO_BACKEND or (status >= 500 and not agreeing):
                OfGate.evidence.count(evidence, (backend, at, status >= 500), self, number)
        self.subtotals.clear()

    def configure(self, names: Collection[str]) -> None:
        """Adds metric series, at zero, for new backends, and drops those of backends not among `names`.
        `pour` comes before it."""
        for name in names:
            if name not in self.backends:
                self.backends[name] = BackendCounters()
                self.requests.setdefault((200, name), 0)
        removed = self.backends.keys() - names
        if removed:
            for name in removed:
                del self.backends[name]
            cells: tuple[tuple[Cell, int], ...] = (self.requests, 1), (self.cell(OfGate.evidence), 0)
            for cell, place in cells:
                for key in [key for key in cell if key[place] in removed]:
                    del cell[key]

    def add_offer(self, offer: Offer, scheme: Scheme) -> None:
        """Adds the series of requests served with the lowest and the highest version on offer, at zero."""
        if offer.versions and len(self.served) < MAX_VERSIONS:
            for version in (offer.versions.lowest, offer.versions.highest):
                self.served.setdefault(scheme.format(version), 0)

    def _counted_version(self, version: str, view: ServiceView | None) -> str:
        """Returns the key that counts a served version, which may be new. Only an advertised one gets one."""
        if version not in self.served and len(self.served) < MAX_VERSIONS and view is not None:
            parsed = view.service.dialect.scheme.parse(version)
            if parsed is not None and parsed in self._advertised_with(view):
                self.served[version] = 0
        return version if version in self.served else OTHER

    def _advertised_with(self, view: ServiceView) -> VersionSet:
        """Returns all versions that backends advertised up to `view`; needed by hardly any request."""
        if view is not self._advertised_until:
            self._advertised_until = view
            advertised = advertised_by(view.members.all)
            union = self._advertised | advertised
            self._advertised = union if len(union.ranges) <= MAX_VERSIONS else advertised
        return self._advertised


@final
class Counters:
    """All metric counters of one process."""

    def __init__(self) -> None:
        self.process = OwnerCounters()
        self.services: dict[str, ServiceCounters] = {}
        self.unrouted = ServiceCounters()
        """Counters of requests that no service matched."""
        self.unconfigured = ServiceCounters()
        """Counters of services that are not configured any more."""

    def service(self, name: str) -> ServiceCounters:
        """Returns a service's counters; `unrouted` for the empty name, `unconfigured` for an unknown one."""
        return self.unrouted if name == UNROUTED else self.services.get(name, self.unconfigured)

    def take(self) -> Counted:
        """Returns all counts of the process since the last call, and zeroes them. 1 µs for each backend."""
        return {owner: taken for owner, table in self._tables() if (taken := table.take())}

    def add(self, counted: Counted) -> None:
        for owner, taken in counted.items():
            table: OwnerCounters | None = self.process
            if owner:
                table = service = self.service(owner[0])
                if len(owner) > 1:
                    table = service.backends.get(owner[1])
            if table is not None:
                table.add(taken)

    def _tables(self) -> Iterator[tuple[tuple[str, ...], OwnerCounters]]:
        yield (), self.process
        for name, service in self.services.items():
            yield (name,), service
            for backend, table in service.backends.items():
                yield (name, backend), table
        yield (UNROUTED,), self.unrouted
        yield (UNCONFIGURED,), self.unconfigured


def advertised_by(members: Iterable[Member]) -> VersionSet:
    """Returns all versions that `members` advertise, legacy ones included."""
    # Most backends advertise the same set, which is added once.
    sets = {member.advertisement.versions for member in members if member.advertisement is not None}
    return VersionSet.of(part for versions in sets for part in versions.ranges)
