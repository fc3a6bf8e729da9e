"""wrk with enough connections for several workers, and how evenly these are spread over them."""

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from bench.admin import connections_by_worker
from bench.figure import CPU, KERNEL, MEMORY, P50, P99, RATE, UNEVEN, Figure
from bench.load import Run, Subject
from bench.loads.wrk import Wrk

CONNECTIONS = 64


@dataclass(frozen=True)
class Shares(Wrk):
    """Connections are counted in the middle of the run. All of them send as fast as they get responses, so a
    worker with twice as many has twice the work. Other proxies do not tell how many each of theirs has."""

    columns: tuple[Figure, ...] = (CPU, KERNEL, RATE, P50, P99, MEMORY, UNEVEN)

    def drive(self, subject: Subject, seconds: int) -> Run:
        with ThreadPoolExecutor(1) as background:
            driven = background.submit(super().drive, replace(subject, connections=CONNECTIONS), seconds)
            time.sleep(seconds / 2)
            found = connections_by_worker("gateway", subject.slot.admin) if subject.is_gateway else ()
            run = driven.result()
        return replace(run, figures={**run.figures, UNEVEN.name: _farthest(found) if found else math.nan})


def _farthest(connections: Sequence[int]) -> float:
    """By how much the worker that is farthest from an equal share is away from it: per cent of that."""
    share = sum(connections) / len(connections)
    return max(abs(each - share) / share * 100 for each in connections) if share else 0.0
