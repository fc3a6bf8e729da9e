"""No load: what a gateway spends on its own, which is mostly its probes."""

import time
from dataclasses import dataclass

from bench.figure import CPU_PER_SECOND, MEMORY, Figure
from bench.load import Run, Subject


@dataclass(frozen=True)
class Quiet:
    columns: tuple[Figure, ...] = (CPU_PER_SECOND, MEMORY)

    def drive(self, subject: Subject, seconds: int) -> Run:
        before, began = subject.usage().cpu, time.monotonic()
        time.sleep(seconds)
        after, taken = subject.usage(), time.monotonic() - began
        figures = {
            CPU_PER_SECOND.name: (after.cpu - before) * 1e3 / taken,
            MEMORY.name: after.memory / 2**20,
        }
        return Run(figures, 0, 0)
