"""What a load is: something that is sent to a running peer, and the figures that come of it."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from bench.figure import Figure
from bench.processes import Usage
from bench.slot import Slot


@dataclass(frozen=True)
class Subject:
    """A running peer as a load sees it. `core`: where the load runs; `usage`: of the peer's processes.
    `is_gateway`: its admin listener can be asked."""

    slot: Slot
    core: int
    connections: int
    usage: Callable[[], Usage]
    is_gateway: bool


@dataclass(frozen=True)
class Run:
    """The figures of one run by name, the right responses, and the wrong ones or those that never came."""

    figures: Mapping[str, float]
    requests: int
    errors: int


class Load(Protocol):
    """`columns`: the figures of a run, the first of which is the one that counts."""

    @property
    def columns(self) -> tuple[Figure, ...]: ...

    def drive(self, subject: Subject, seconds: int) -> Run:
        """Load the peer for about so long.

        Raises:
            BenchError: the load could not be made, or a response was wrong.
        """
        ...


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Keep this thread on one core during the block, as the programs of the bench are."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
