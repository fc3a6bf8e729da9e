"""One kind of figure: its name in a run, its heading with the unit, and how it is written."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    name: str
    heading: str
    digits: int = 0

    def text(self, value: float) -> str:
        """A figure that this peer does not have (not a number) is a dash."""
        return "-" if math.isnan(value) else f"{value:,.{self.digits}f}"


CPU = Figure("cpu", "CPU µs/request", 1)
KERNEL = Figure("kernel", "of it kernel", 1)
RATE = Figure("rate", "requests/s")
P50 = Figure("p50", "p50 ms", 2)
P99 = Figure("p99", "p99 ms", 2)
MEMORY = Figure("memory", "memory MiB")
BUSY = Figure("busy", "core busy %")
CPU_PER_GIB = Figure("cpu_per_gib", "CPU ms/GiB")
GIB_RATE = Figure("gib_rate", "GiB/s", 2)
CPU_PER_SECOND = Figure("cpu_per_second", "CPU ms/s", 1)
PER_IDLE = Figure("per_idle", "KiB/idle connection", 1)
HANDSHAKE = Figure("handshake", "CPU µs/handshake")
HANDSHAKE_RATE = Figure("handshake_rate", "handshakes per CPU second")
UNEVEN = Figure("uneven", "farthest worker from its share %", 1)
P50_US = Figure("p50_us", "p50 µs")
P99_US = Figure("p99_us", "p99 µs")
