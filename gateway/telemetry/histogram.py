"""Value of a histogram: durations by bucket. Compiled, because each request adds to three of them."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

BUCKETS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the histogram buckets in seconds: from a document on loopback to a slow power action."""


@final
class Histogram:
    """Histogram of durations: counts by bucket (the last: all above the last bound), and sum in seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds
