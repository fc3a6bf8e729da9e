"""Value of a histogram: durations by bucket. Compiled, because each request adds to three of them.

Most durations fall into the bucket of the one before. Comparing its two bounds costs a fifth of a search.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import Final, final

# Not a tuple of 15 floats for the compiler, which would make it anew for each search.
BUCKETS: Final[tuple[float, ...]] = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the histogram buckets in seconds: from a document on loopback to a slow power action."""


@final
class Histogram:
    """Histogram of durations: counts by bucket (the last: all above the last bound), and sum in seconds."""

    __slots__ = ("_above", "_index", "_up_to", "counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0
        self._index = 0
        """Index of the bucket of the last duration."""
        self._above = -inf
        """Lower bound of the bucket of the last duration; not a part of it."""
        self._up_to = BUCKETS[0]
        """Upper bound of the bucket of the last duration; a part of it."""

    def add(self, seconds: float) -> None:
        if not self._above < seconds <= self._up_to:
            index = self._index = bisect_left(BUCKETS, seconds)
            self._above = BUCKETS[index - 1] if index else -inf
            self._up_to = BUCKETS[index] if index < len(BUCKETS) else inf
        self.counts[self._index] += 1
        self.total += seconds
