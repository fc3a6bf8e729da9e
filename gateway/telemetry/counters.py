"""What was counted so far: a table for the process, for each service and for each backend.

A table holds the cells of its series (`series.declaring`), each from the first time that something is counted
in it. No formatting, no lock: one event loop writes and reads. What is not configured any more is dropped, so
that no number of reloads can make counts without bound.

    worker   Counters -> take -> Counted -> channel -> add -> Counters   main process -> /metrics

`workers.worker_parts` takes, `workers.messages.Report` carries, `workers.reports` adds.

A worker gives away what it has counted since the last time, and begins at zero. So the main process holds the
sums of all workers, those that have ended included, and none of its series falls because a worker ends, is
replaced, or has missed that a service was removed and came back. What a killed worker has counted since its
last report is lost with it. Only what has happened is carried: what is zero is not there. Which services and
backends have series is the main process's to say; what comes of another one counts as a request does that was
under way when it was removed.

The hot path goes past the cells' declarations: `ServiceCounters` and `BackendCounters` keep references to the
cells that each request changes, taken by `OwnerCounters.cell`, and two plain numbers, which `pour` puts into
their cell before somebody takes or reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, final

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.core.fleet.backend import Member
from gateway.core.fleet.offer import Offer
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme
from gateway.telemetry.histogram import Histogram
from gateway.telemetry.series.backend import OfBackend
from gateway.telemetry.series.catalog import SERIES
from gateway.telemetry.series.declaring import OTHER, Cell, Counter, Series, Taken
from gateway.telemetry.series.service import MAX_VERSIONS, OfRequests, OfService

UNROUTED: Final = ""
"""The name under which requests count that no service matched."""

UNCONFIGURED: Final = "/"
"""The name under which a worker gives what it has counted for services that are not configured any more. No
service has it."""

Counted: TypeAlias = Mapping[tuple[str, ...], Mapping[str, Taken]]
"""What one process has counted since it was asked last: by owner, which is (), (service,) or (service,
backend), and by the full name of the series."""


class OwnerCounters:
    """Counts of one owner."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells: dict[Series, Cell] = {}

    def cell(self, series: Series) -> Cell:
        """The cell of a series. It may be kept: it is the same one as long as the table exists, and what is
        counted in it is told to the main process."""
        cell = self.cells.get(series)
        if cell is None:
            cell = self.cells[series] = series.new_cell()
        return cell

    def pour(self) -> None:
        """Put what is kept beside the cells into them."""

    def take(self) -> Mapping[str, Taken]:
        """Empty all cells; returns what was in them, by the full name of the series."""
        self.pour()
        taken = {}
        for series, cell in self.cells.items():
            found = series.take(cell)
            if found:
                taken[series.full_name] = found
        return taken

    def add(self, taken: Mapping[str, Taken]) -> None:
        """Add what was taken from the table of another process."""
        for name, found in taken.items():
            series = SERIES[name]
            series.add(self.cell(series), found, self)


@final
class BackendCounters(OwnerCounters):
    """Counts of one backend of one service."""

    __slots__ = ("durations",)

    def __init__(self) -> None:
        super().__init__()
        self.durations: Histogram = self.cell(OfBackend.backend_duration_seconds)[()]


@final
class ServiceCounters(OwnerCounters):
    """Counts of one service, with those of its backends."""

    __slots__ = (
        *("_advertised", "_looked_at", "backends", "bytes_in", "bytes_out", "durations", "negotiations"),
        *("requests", "served"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[tuple[int, str], int] = self.cell(OfRequests.requests)
        """By (status, backend)."""
        self.durations: Histogram = self.cell(OfRequests.request_duration_seconds)[()]
        self.bytes_in = 0
        """Bytes of bodies from clients, until they are poured."""
        self.bytes_out = 0
        """Bytes of bodies to clients, until they are poured."""
        self.negotiations: dict[tuple[RequestedKind, NegotiationResult], int] = self.cell(
            OfService.negotiations
        )
        self.served: dict[str, int] = self.cell(OfService.served_version)
        self.backends: dict[str, BackendCounters] = {}
        self._advertised = VersionSet()
        """Every version that a backend of the service advertised when `count_served` looked."""
        self._looked_at: ServiceView | None = None
        """The view from which `_advertised` is up to date."""

    def pour(self) -> None:
        """Put the bytes of bodies into their cell."""
        if self.bytes_in or self.bytes_out:
            cell = self.cell(OfRequests.body_bytes)
            cell["in"] += self.bytes_in
            cell["out"] += self.bytes_out
            self.bytes_in = self.bytes_out = 0

    def configure(self, names: Collection[str]) -> None:
        """Add the series of new backends, at zero, and drop those of removed ones. `names`: of all configured
        backends of the service."""
        for name in names:
            if name not in self.backends:
                self.backends[name] = BackendCounters()
                self.requests.setdefault((200, name), 0)
        removed = self.backends.keys() - names
        if removed:
            for name in removed:
                del self.backends[name]
            for key in [key for key in self.requests if key[1] in removed]:
                del self.requests[key]

    def add_offer(self, offer: Offer, scheme: Scheme) -> None:
        """Add the series of the ends of an offer, at zero."""
        if offer.versions and len(self.served) < MAX_VERSIONS:
            for version in (offer.versions.lowest, offer.versions.highest):
                self.served.setdefault(scheme.format(version), 0)

    def count_request(self, status: int, backend: str) -> None:
        """Count under a (status, backend) that may be new."""
        requests: Counter = OfRequests.requests
        requests.count(self.requests, (status, backend), self)

    def count_served(self, version: str, view: ServiceView | None) -> None:
        """Count a version that may be new. Only an advertised one gets a series of its own."""
        if version not in self.served and len(self.served) < MAX_VERSIONS and view is not None:
            parsed = view.service.dialect.scheme.parse(version)
            if parsed is not None and parsed in self._advertised_with(view):
                self.served[version] = 0
        self.served[version if version in self.served else OTHER] += 1

    def _advertised_with(self, view: ServiceView) -> VersionSet:
        """Every version that a backend of the service has advertised, up to `view`. Made here only, since
        hardly any request names a version that is new."""
        if view is not self._looked_at:
            self._looked_at = view
            advertised = advertised_by(view.pool.members)
            union = self._advertised | advertised
            self._advertised = union if len(union.ranges) <= MAX_VERSIONS else advertised
        return self._advertised


@final
class Counters:
    """All counts of one process."""

    def __init__(self) -> None:
        self.process = OwnerCounters()
        self.services: dict[str, ServiceCounters] = {}
        """Configured services."""
        self.unrouted = ServiceCounters()
        """Requests that no service matched."""
        self.unconfigured = ServiceCounters()
        """Requests of services that are not configured any more."""

    def service(self, name: str) -> ServiceCounters:
        """The table of a service, or the one that stands for it."""
        return self.unrouted if name == UNROUTED else self.services.get(name, self.unconfigured)

    def take(self) -> Counted:
        """What was counted since the last call. From here on that is not here any more. Costs 1 µs for each
        backend that there is, and a few more for each that was asked."""
        return {owner: taken for owner, table in self._tables() if (taken := table.take())}

    def add(self, counted: Counted) -> None:
        """Count what another process has counted. Costs what that is."""
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
    """Every version that one of `members` advertises, legacy ones included."""
    # Most backends advertise the same, and each set counts once.
    sets = {member.advertisement.versions for member in members if member.advertisement is not None}
    return VersionSet.of(part for versions in sets for part in versions.ranges)
