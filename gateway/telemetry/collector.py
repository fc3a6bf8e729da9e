"""Metric families for a scrape, made from counts and the present state by the declarations of `series`.

Runs only during a scrape. It counts nothing, changes nothing, and knows no series. `telemetry.exposition`
writes the families.

A scrape is made in pieces, and requests, facts and reloads come between them. So services and backends are
listed once, and whatever may grow is copied before it is iterated over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, TypeAlias, final

from gateway.telemetry.counters import Counters
from gateway.telemetry.series.catalog import GROUPS
from gateway.telemetry.series.declaring import OTHER, Cell, Family, Key, Level, Row, Series
from gateway.telemetry.series.now import Now, OneBackend
from gateway.telemetry.series.service import OfRequests

NO_SERVICE: Final = "none"
"""Value of the label `service` for requests that no service matched."""

_Owned: TypeAlias = list[tuple[tuple[str, ...], Any]]
"""Owners of metric series (counters, or first arguments of `Series.read`), each after its label values."""


@final
class Collector:
    """Maker of all metric families of a scrape. Without `per_backend` a backend has only five series."""

    def __init__(self, counters: Counters, *, per_backend: bool = True) -> None:
        self._counters = counters
        self._per_backend = per_backend

    def collect(self, now: Now) -> Iterator[Family]:
        tables, present = self._tables(), _present(now)
        for group in GROUPS:
            if group.detail and not self._per_backend:
                continue
            owners = present.get(group.level)
            if owners is None:
                subject = group.of(now)
                if subject is None:
                    continue
                owners = [((), subject)]
            counted = tables[group.level]
            if group.anywhere:
                counted = [*counted, *self._elsewhere()]
            for series in group.series:
                rows: Iterable[Row]
                rows = _read(series, owners, now) if series.read else self._counted(series, counted)
                if series.sparse:
                    rows = list(rows)
                    if not rows:
                        continue
                labels = tuple(sorted(series.all_labels))
                yield Family(series.kind, series.full_name, series.text, labels, rows)

    def _tables(self) -> Mapping[Level, _Owned]:
        services = sorted(self._counters.services.items())
        for _, table in services:
            table.pour()
        return {
            Level.PROCESS: [((), self._counters.process)],
            Level.SERVICE: [((name,), table) for name, table in services],
            Level.BACKEND: [
                ((name, backend), table)
                for name, service in services
                for backend, table in service.backends.items()
            ],
        }

    def _elsewhere(self) -> _Owned:
        """Counters of requests without a service (`none`), and of removed services (`other`) if not empty."""
        unrouted, unconfigured = self._counters.unrouted, self._counters.unconfigured
        unrouted.pour()
        unconfigured.pour()
        found: _Owned = [((NO_SERVICE,), unrouted)]
        if any(unconfigured.cell(OfRequests.requests).values()):
            found.append(((OTHER,), unconfigured))
        return found

    def _counted(self, series: Series, owners: _Owned) -> Iterator[Row]:
        """Rows (label values, number) of a counted series, copied and not sorted: that could take long."""
        arranged, nothing = _arrangement(series), series.new_cell()
        sums = not self._per_backend and "backend" in series.labels
        known: dict[Key, tuple[str, ...]] = {}  # few keys, the same for all owners
        for labels, table in owners:
            cell = table.cells.get(series, nothing)
            for key, value in list((_without_backends(series, cell) if sums else cell).items()):
                texts = known.get(key)
                if texts is None:
                    texts = known[key] = series.keys.texts(key)
                yield arranged(labels + texts), value


def _present(now: Now) -> Mapping[Level, _Owned]:
    """Services and backends whose present state a scrape reads, listed once for all groups of series."""
    views = sorted(now.views.items())
    return {
        Level.SERVICE: [((name,), view) for name, view in views],
        Level.BACKEND: [
            ((name, each.backend.name), OneBackend(view, each))
            for name, view in views
            for each in view.members.all
        ],
    }


def _without_backends(series: Series, cell: Cell) -> Cell:
    sums: Cell = {}
    for key, count in cell.items():
        merged = series.keys.without_backend(key)
        sums[merged] = sums.get(merged, 0) + count
    return sums


def _read(series: Series, owners: _Owned, now: Now) -> Iterator[Row]:
    read, arranged = series.read, _arrangement(series)
    assert read is not None
    for labels, owner in owners:
        found = read(owner, now)
        if isinstance(found, Mapping):
            for key, number in found.items():
                yield arranged(labels + series.keys.texts(key)), number
        elif found is not None:
            yield arranged(labels), found


def _arrangement(series: Series) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """Returns a function that puts the label values of a series in the alphabetical order of their labels."""
    labels = series.all_labels
    if labels == tuple(sorted(labels)):
        return tuple
    return itemgetter(*map(labels.index, sorted(labels)))
