"""What /metrics is made of: families of samples, as values. `exposition` writes them.

This module knows no metric, no count and no format.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from gateway.telemetry.histogram import Histogram

PREFIX: Final = "skewgate_"
"""The beginning of all names but those that every exporter has (`process_*`)."""


class Kind(Enum):
    """The types of families that there are here, by their names in both formats."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""Label values and the value of each sample of a counter or a gauge."""

Histograms: TypeAlias = Iterable[tuple[tuple[str, ...], Histogram]]
"""Label values and the counts of each histogram."""


class Family(NamedTuple):
    """All samples of one name. `labels` are in alphabetical order, and the values of a row in the same order.
    The rows are read while the family is written: what they iterate over must not grow meanwhile."""

    kind: Kind
    name: str
    """Without `prefix`, and without `_total`."""
    description: str
    """One line without quotation marks and backslashes."""
    labels: tuple[str, ...]
    samples: Samples = ()
    histograms: Histograms = ()
    prefix: str = PREFIX

    @property
    def full_name(self) -> str:
        """The name with its prefix, without `_total`."""
        return self.prefix + self.name
