"""How a series is declared: its kind, its labels, whose it is, and where its values come from.

    class OfService(Group, level=SERVICE):
        retries = counter("Requests sent on to another backend.", {"reason": (*RETRY_REASONS, OTHER)})

    metrics.count(OfService.retries, reason, service=...)

The name is the attribute's. From the declaration follow the cells in which a process counts, what a worker
gives to the main process and how that is added, when the series end, how they are written
(`telemetry.collector`) and their row in docs/metrics.md. A cell is a dictionary from keys to values. A key
holds the values of the labels in the order of the declaration: the value itself if there is one, else
a tuple.

The labels are bounded here, so that no client and no backend can make series without bound (threats O7).
This module knows no series and holds no count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum
from itertools import product
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias, final

from gateway.telemetry.histogram import Histogram

PREFIX: Final = "skewgate_"
"""The beginning of all names but those that every exporter has (`process_*`)."""

OTHER: Final = "other"
"""The label value of everything that is not in the closed set."""


class Kind(Enum):
    """The types of families that there are here, by their names in both formats."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Level(Enum):
    """Owner of a series. When the owner is not configured any more, its series end. The value: the labels
    that name the owner, separated by blanks. An empty tuple as a value is another object in Python 3.11.2."""

    PROCESS = ""
    SERVICE = "service"
    BACKEND = "service backend"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that name the owner."""
        return tuple(self.value.split())


PROCESS: Final = Level.PROCESS
SERVICE: Final = Level.SERVICE
BACKEND: Final = Level.BACKEND


@final
class UpTo(NamedTuple):
    """Label values that come as they come: so many get series, the rest is `other`."""

    most: int


@final
class Open(NamedTuple):
    """Label values whose number is bounded by what they name: workers, files, sources …"""


OPEN: Final = Open()

Labels: TypeAlias = Mapping[str, tuple[str, ...] | UpTo | Open]
"""Values by label. Those of a closed set exist at zero."""

Key: TypeAlias = Hashable
Cell: TypeAlias = dict[Any, Any]
Taken: TypeAlias = Mapping[Any, Any]
"""Part of a cell that has counts, as a worker gives it to its main process."""

Read: TypeAlias = Callable[[Any, Any], "float | Mapping[Any, float] | None"]
"""Reads the present value, or values by key, of an owner at a scrape; None: the owner has none. Called with
the owner (a `ServiceView`, a `series.now.OneBackend`, or what `Group` says) and the `series.now.Now`."""


class Counting(Protocol):
    """The part of `telemetry.metrics.Metrics` by which others count."""

    def count(self, series: Counter, *key: str, service: str = "", backend: str = "") -> None:
        """Count one more."""

    def observe(
        self, series: HistogramSeries, seconds: float, *key: str, service: str = "", backend: str = ""
    ) -> None:
        """Add a duration."""

    def set(self, series: Gauge, value: float, *, service: str = "", backend: str = "") -> None:
        """Remember a value."""


class Keys:
    """Which keys a cell may have, and how they are written."""

    def __init__(self, labels: Labels) -> None:
        values = tuple(labels.values())
        self._single = len(values) == 1
        self.most: float = 0
        """Keys from which on a new one is `other`: none is ever new in a closed set."""
        self.at_zero: tuple[Key, ...] = ()
        """Keys that exist before anything was counted."""
        if closed := [each for each in values if not isinstance(each, UpTo | Open)]:
            found = product(*closed)
            self.at_zero = tuple(key for (key,) in found) if self._single else tuple(found)
        if not values:
            self.at_zero = ((),)
        for each in values:
            if isinstance(each, Open):
                self.at_zero, self.most = (), float("inf")
            elif isinstance(each, UpTo):
                self.at_zero, self.most = (OTHER,), each.most

    def admit(self, key: Key, cell: Cell, owner: object) -> Key:
        """The key under which `key` counts. Raises `KeyError` if a closed set does not have it. `owner`: the
        `telemetry.counters.OwnerCounters` of the cell."""
        if key in cell or len(cell) < self.most:
            return key
        if OTHER in cell:
            return OTHER
        raise KeyError(key)

    def without_backend(self, key: Key) -> Key:
        """The key where series by backend are switched off."""
        return key

    def texts(self, key: Any) -> tuple[str, ...]:  # noqa: ANN401 - a `Key` of this series
        """The values of the labels as they are written."""
        return (key,) if self._single else key


class Series:
    """One name of /metrics. `name` and `full_name` are without `_total`."""

    kind: ClassVar[Kind]

    def __init__(
        self,
        text: str,
        labels: Labels | None = None,
        *,
        page: str = "",
        read: Read | None = None,
        keys: Keys | None = None,
        sparse: bool = False,
    ) -> None:
        """`text`: one sentence without quotation marks and backslashes. `page`: what docs/metrics.md says, if
        that is something else. `read`: the value is read at a scrape; without it, it is counted or set here.
        `sparse`: the family is left out while nobody has a value."""
        self.text = text
        self.page = page or f"{text[0].lower()}{text[1:].rstrip('.')}"
        self.labels: Labels = labels or {}
        self.keys = keys or Keys(self.labels)
        self.read = read
        self.sparse = sparse
        self.name = ""
        self.prefix = PREFIX
        self.level = PROCESS

    def __set_name__(self, group: type, name: str) -> None:
        self.name = name

    @property
    def full_name(self) -> str:
        return self.prefix + self.name

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The labels of the owner, then its own."""
        return (*self.level.labels, *self.labels)

    def new_cell(self) -> Cell:
        """A cell in which nothing was counted."""
        return {key: self.zero() for key in self.keys.at_zero}

    def zero(self) -> Any:  # noqa: ANN401 - int or Histogram
        """The value of a key that has counted nothing."""
        return 0

    def take(self, cell: Cell) -> Taken:
        """Empty a cell; returns what was in it."""
        raise NotImplementedError

    def add(self, cell: Cell, taken: Taken, owner: object) -> None:
        """Add what was taken from the cell of another process."""
        raise NotImplementedError


@final
class Counter(Series):
    """A series that only rises."""

    kind = Kind.COUNTER

    def count(self, cell: Cell, key: Key, owner: object, times: int = 1) -> None:
        """Count under `key`, or where `Keys.admit` puts it."""
        place = self.keys.admit(key, cell, owner)
        cell[place] = cell.get(place, 0) + times

    def take(self, cell: Cell) -> Taken:
        """Empty a cell; returns what was in it. Its keys stay, at zero."""
        taken = {key: count for key, count in cell.items() if count}
        for key in taken:
            cell[key] = 0
        return taken

    def add(self, cell: Cell, taken: Taken, owner: object) -> None:
        for key, times in taken.items():
            self.count(cell, key, owner, times)


@final
class HistogramSeries(Series):
    """A series of durations."""

    kind = Kind.HISTOGRAM

    def zero(self) -> Histogram:
        return Histogram()

    def observe(self, cell: Cell, key: Key, owner: object) -> Histogram:
        """The durations under `key`."""
        place = self.keys.admit(key, cell, owner)
        found: Histogram | None = cell.get(place)
        if found is None:
            found = cell[place] = Histogram()
        return found

    def take(self, cell: Cell) -> Taken:
        """Empty a cell; returns (counts by bucket, sum) by key."""
        taken = {key: (tuple(each.counts), each.total) for key, each in cell.items() if any(each.counts)}
        for key in taken:
            each = cell[key]
            each.counts[:] = [0] * len(each.counts)
            each.total = 0.0
        return taken

    def add(self, cell: Cell, taken: Taken, owner: object) -> None:
        for key, (counts, total) in taken.items():
            found = self.observe(cell, key, owner)
            for index, count in enumerate(counts):
                found.counts[index] += count
            found.total += total


@final
class Gauge(Series):
    """A series that goes up and down. Without `read` its value is what was set last; no worker gives it to
    its main process, and before the first time it has none."""

    kind = Kind.GAUGE

    def new_cell(self) -> Cell:
        """Nothing was set."""
        return {}

    def take(self, cell: Cell) -> Taken:
        """Nothing: the cell is left as it is."""
        return {}


counter = Counter
gauge = Gauge
histogram = HistogramSeries


class Group:
    """Series of one level that stand together in /metrics, in this order.

    Arguments of the class: `level`. `prefix`: of the names. `of`: for level `PROCESS`, what `read` gets
    first, made of the `Now` (by default the `Now` itself); None: the families are left out. `detail`: left
    out if `metrics.per_backend` is false. `anywhere`: requests that no service matched, and those of services
    that are not configured any more, have such series, too. `as_configured`: services in the order of the
    file, not of their names.
    """

    level: ClassVar[Level]
    series: ClassVar[tuple[Series, ...]]
    of: ClassVar[Callable[[Any], object]]
    detail: ClassVar[bool]
    anywhere: ClassVar[bool]
    as_configured: ClassVar[bool]

    def __init_subclass__(
        cls,
        *,
        level: Level,
        prefix: str = PREFIX,
        of: Callable[[Any], object] = lambda now: now,
        detail: bool = False,
        anywhere: bool = False,
        as_configured: bool = False,
    ) -> None:
        cls.level, cls.of, cls.detail = level, staticmethod(of), detail
        cls.anywhere, cls.as_configured = anywhere, as_configured
        cls.series = tuple(each for each in vars(cls).values() if isinstance(each, Series))
        for each in cls.series:
            each.level, each.prefix = level, prefix


Row: TypeAlias = tuple[tuple[str, ...], Any]
"""Label values, and the number of a counter or a gauge, or the `Histogram`."""


class Family(NamedTuple):
    """All samples of one name. `labels` are in alphabetical order, and the values of a row in the same order.
    The rows are read while the family is written: what they iterate over must not grow meanwhile."""

    kind: Kind
    name: str
    """With its prefix, without `_total`."""
    description: str
    """One line without quotation marks and backslashes."""
    labels: tuple[str, ...]
    rows: Iterable[Row]
