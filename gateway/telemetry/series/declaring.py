"""Declarations of series: kind, labels, owner, and the source of the values.

    class OfService(Group, level=SERVICE):
        retries = counter("Requests sent on to another backend.", {"reason": (*RETRY_REASONS, OTHER)})

    metrics.count(OfService.retries, reason, service=...)

The attribute's name is the name of the series. Cells, the sums over workers, the end of the series, families
(`telemetry.collector`) and the row in docs/metrics.md follow from the declaration. A cell is a dictionary
from keys to values. A key has the values of the labels in the order of declaration, several as a tuple.

Labels are bounded here, so that no client and no backend can make series without bound (threats O7). This
module knows no series and holds no count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from enum import Enum
from itertools import product
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias, final

from gateway.telemetry.histogram import Histogram

PREFIX: Final = "skewgate_"
"""Prefix of all metric names but those that every exporter has (`process_*`)."""

OTHER: Final = "other"
"""Label value that stands for all values without a series of their own."""


class Kind(Enum):
    """Types of metric families, by their names in both formats."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Level(Enum):
    """Kind of a metric series' owner, as its labels separated by blanks. Series end with their owner."""

    PROCESS = ""
    SERVICE = "service"
    BACKEND = "service backend"

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.value.split())


PROCESS: Final = Level.PROCESS
SERVICE: Final = Level.SERVICE
BACKEND: Final = Level.BACKEND


@final
class UpTo(NamedTuple):
    """Label whose first `most` values get series of their own; all further ones count as `other`."""

    most: int


@final
class Open(NamedTuple):
    """Label whose values are bounded by what they name: workers, files, sources …"""


OPEN: Final = Open()

Labels: TypeAlias = Mapping[str, tuple[str, ...] | UpTo | Open]
"""Possible values of a series' labels, by label. A tuple is a closed set, whose series exist at zero."""

Key: TypeAlias = Hashable
Cell: TypeAlias = dict[Any, Any]
Taken: TypeAlias = Mapping[Any, Any]
"""Counts of one series that are not zero, as a worker reports them to the main process."""

Read: TypeAlias = Callable[[Any, Any], "float | Mapping[Any, float] | None"]
"""Function that reads the present value of an owner's series at a scrape, or values by key; None: there is
none. Arguments are the owner (a `ServiceView`, a `series.now.OneBackend`, or the result of `Group.of`) and
the `series.now.Now`."""


class Counting(Protocol):
    """Interface of `telemetry.metrics.Metrics` for counting, so that a test can record the calls."""

    def count(self, series: Counter, *key: str, service: str = "", backend: str = "") -> None: ...
    def observe(
        self, series: HistogramSeries, seconds: float, *key: str, service: str = "", backend: str = ""
    ) -> None: ...
    def set(self, series: Gauge, value: float, *, service: str = "", backend: str = "") -> None: ...


class Keys:
    """Rules for the keys under which a series counts, and their texts as label values."""

    def __init__(self, labels: Labels) -> None:
        values = tuple(labels.values())
        self._single = len(values) == 1
        self.most: float = 0
        """Number of keys (label values) from which on new ones count as `other`; 0: a closed set has none."""
        self.at_zero: tuple[Key, ...] = ()
        """Keys (label values) that a series has, at zero, before anything was counted."""
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
        """Returns the key that counts `key`: itself or `other`. Raises `KeyError` if a series has neither."""
        if key in cell or len(cell) < self.most:
            return key
        if OTHER in cell:
            return OTHER
        raise KeyError(key)

    def without_backend(self, key: Key) -> Key:
        """Returns `key` without the name of a backend, as it counts if `metrics.per_backend` is off."""
        return key

    def texts(self, key: Any) -> tuple[str, ...]:  # noqa: ANN401 - a `Key` of this series
        """Returns the label values for which a key of the series stands, as /metrics has them."""
        return (key,) if self._single else key


class Series:
    """Declaration of the metric series of one name. `name` and `full_name` are without `_total`."""

    kind: ClassVar[Kind]

    def __init__(
        self,
        text: str,
        labels: Labels | None = None,
        *,
        read: Read | None = None,
        keys: Keys | None = None,
        sparse: bool = False,
    ) -> None:
        """Declares a series. `text` is the help text and the row in docs/metrics.md, without quotation marks
        and backslashes. `read` reads the value at a scrape; without it, values are counted or set. A `sparse`
        family is left out while no owner has a value."""
        self.text = text
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
        """Names of the series' labels: those of the owner, followed by its own."""
        return (*self.level.labels, *self.labels)

    def new_cell(self) -> Cell:
        """Returns a new cell (counts by key) of this series, in which nothing was counted."""
        return {key: self.zero() for key in self.keys.at_zero}

    def zero(self) -> Any:  # noqa: ANN401 - int or Histogram
        """Returns the initial value of one key of a series: zero, or an empty histogram."""
        return 0

    def take(self, cell: Cell) -> Taken:
        """Sets the counts of a cell to zero and returns those that were not zero."""
        raise NotImplementedError

    def add(self, cell: Cell, taken: Taken, owner: object) -> None:
        """Adds counts of this series to a cell that were taken in another process."""
        raise NotImplementedError


@final
class Counter(Series):
    """Metric series whose values only rise."""

    kind = Kind.COUNTER

    def count(self, cell: Cell, key: Key, owner: object, times: int = 1) -> None:
        """Adds `times` to the count under `key`, or under the key that `Keys.admit` gives for it."""
        place = self.keys.admit(key, cell, owner)
        cell[place] = cell.get(place, 0) + times

    def take(self, cell: Cell) -> Taken:
        taken = {key: count for key, count in cell.items() if count}
        for key in taken:
            cell[key] = 0
        return taken

    def add(self, cell: Cell, taken: Taken, owner: object) -> None:
        for key, times in taken.items():
            self.count(cell, key, owner, times)


@final
class HistogramSeries(Series):
    """Metric series of durations, each a histogram."""

    kind = Kind.HISTOGRAM

    def zero(self) -> Histogram:
        return Histogram()

    def observe(self, cell: Cell, key: Key, owner: object) -> Histogram:
        """Returns the histogram of the durations under `key`."""
        place = self.keys.admit(key, cell, owner)
        found: Histogram | None = cell.get(place)
        if found is None:
            found = cell[place] = Histogram()
        return found

    def take(self, cell: Cell) -> Taken:
        """Returns the durations of a cell as (counts by bucket, sum) by key, and sets them to zero."""
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
    """Metric series that goes up and down. Without `read` it has the value last set, only in this process."""

    kind = Kind.GAUGE

    def new_cell(self) -> Cell:
        return {}

    def take(self, cell: Cell) -> Taken:
        return {}


counter = Counter
gauge = Gauge
histogram = HistogramSeries


class Group:
    """Metric series of one kind of owner (`level`) that are written together, in this order.

    Arguments of the class: the `level`; the `prefix` of the names; `of`, which for level `PROCESS` makes the
    owner for `read` from the `Now` (None: the families are left out); `detail`: left out if
    `metrics.per_backend` is false; `anywhere`: requests that no service matched, and those of services that
    are not configured any more, have such series, too.
    """

    level: ClassVar[Level]
    series: ClassVar[tuple[Series, ...]]
    of: ClassVar[Callable[[Any], object]]
    detail: ClassVar[bool]
    anywhere: ClassVar[bool]

    def __init_subclass__(
        cls,
        *,
        level: Level,
        prefix: str = PREFIX,
        of: Callable[[Any], object] = lambda now: now,
        detail: bool = False,
        anywhere: bool = False,
    ) -> None:
        cls.level, cls.of, cls.detail, cls.anywhere = level, staticmethod(of), detail, anywhere
        cls.series = tuple(each for each in vars(cls).values() if isinstance(each, Series))
        for each in cls.series:
            each.level, each.prefix = level, prefix


Row: TypeAlias = tuple[tuple[str, ...], Any]
"""Sample of a series: label values, and the number of a counter or a gauge, or the `Histogram`."""


class Family(NamedTuple):
    """Metric family, all samples of one name. `labels` are in alphabetical order, as are the values of a row.
    The rows are read while the family is written, so what they iterate over must not grow meanwhile."""

    kind: Kind
    name: str
    """Name of the metric family with its prefix, without `_total`."""
    description: str
    """Help text of the metric family: a line without quotation marks and backslashes."""
    labels: tuple[str, ...]
    rows: Iterable[Row]
