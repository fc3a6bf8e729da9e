"""When which fault is put on the gateway: every fault alone, then several at the same time.

What it does: `COURSES` names the runs. Each has its list of groups. The acts of a group overlap; the groups
follow each other. Behind several workers no fault comes alone: what each of them does alone, the runs with
one process show.

Rules: pure. The same seed gives the same schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, NamedTuple, TypeAlias, final


class Kind(NamedTuple):
    """A fault: its name in the table, what could be served meanwhile, and how long it lasts."""

    title: str
    served: str
    shortest: float
    longest: float


UNEXECUTED: Final = "they may be turned away unexecuted"
UNSAFE: Final = "unsafe requests sent there before a probe failed: 504, in doubt, at most once"
SHORT: Final = "it is too short for its replacement"
NO_PARENT: Final = "no request needs the main process, and it misses no answer of a worker"


class Fault(Enum):
    """Every fault. What could be served is all that the judge does not excuse."""

    FROZEN_READER = Kind("log reader frozen", "everything: a request needs no log", 4.0, 5.0)
    RESOLVER_SILENT = Kind("resolver gives no answer", "everything: the last addresses are right", 5.0, 6.0)
    RESOLVER_DENIES = Kind("resolver denies every name", "everything: the backends still listen", 3.0, 4.0)
    RESOLVER_PARTLY_SILENT = Kind("resolver ignores other names", "everything: nobody needs them", 6.0, 7.0)
    SLOW_PEERS = Kind("slow peers", "everything, the slow requests too: bytes move all the time", 0.0, 0.0)
    FEW_DESCRIPTORS = Kind("few descriptors, a crowd", f"all but new connections: {UNEXECUTED}", 5.0, 6.0)
    BACKEND_STOPPED = Kind("a backend stopped (SIGSTOP)", f"all but {UNSAFE}", 3.0, 4.0)
    GATEWAY_STOPPED = Kind("the gateway stopped (SIGSTOP)", "everything, later by that time", 0.8, 1.2)
    WORKER_STOPPED = Kind(
        "one worker stopped (SIGSTOP)", f"everything, later by that time: {SHORT}", 0.8, 1.2
    )
    PARENT_STOPPED = Kind("the main process stopped (SIGSTOP)", f"everything, at once: {NO_PARENT}", 3.5, 4.5)
    PARTITION = Kind("half of the fleet partitioned", f"all but {UNSAFE}", 4.0, 5.0)


BEGIN: Final = (1.5, 2.5)
"""When the acts of a group begin, in seconds: the slow peers first, which are no newcomers then."""
RESOLVER: Final[tuple[Fault, ...]] = (
    Fault.RESOLVER_SILENT,
    Fault.RESOLVER_DENIES,
    Fault.RESOLVER_PARTLY_SILENT,
)
"""Faults of one name server, which cannot have two at a time."""
APART: Final[tuple[Fault, ...]] = (Fault.BACKEND_STOPPED, Fault.PARTITION)
"""Together, they may take a request twice to a backend that does not answer, and a third try is too late."""
HARMLESS: Final[tuple[Fault, ...]] = (Fault.FROZEN_READER, Fault.SLOW_PEERS, Fault.FEW_DESCRIPTORS)
"""To whom another fault may come at any moment."""
OF_WORKERS: Final[tuple[Fault, ...]] = (Fault.WORKER_STOPPED, Fault.PARENT_STOPPED)
"""One process is both."""


PAIRED: Final[tuple[tuple[Fault, ...], ...]] = (
    (Fault.SLOW_PEERS, Fault.RESOLVER_PARTLY_SILENT),
    (Fault.FEW_DESCRIPTORS, Fault.FROZEN_READER),
    (Fault.BACKEND_STOPPED, Fault.RESOLVER_DENIES),
    (Fault.PARTITION,),
    (Fault.GATEWAY_STOPPED, Fault.RESOLVER_SILENT),
)
"""Of those in a group, one at most may cost a request anything."""

PAIRED_WITH_WORKERS: Final[tuple[tuple[Fault, ...], ...]] = (
    (Fault.SLOW_PEERS, Fault.RESOLVER_PARTLY_SILENT, Fault.PARENT_STOPPED),
    *PAIRED[1:-1],
    (*PAIRED[-1], Fault.WORKER_STOPPED),
)
"""The same behind several workers. While the main process is stopped nobody probes, so no backend is lost
then."""


@final
@dataclass(frozen=True, slots=True)
class Act:
    """One fault, the time at which it begins in its group, and its duration."""

    fault: Fault
    begin: float
    seconds: float


Group: TypeAlias = tuple[Act, ...]


def schedule(seed: int) -> list[Group]:
    """Every fault of one process alone in the order of `Fault`. Then each again, in groups and from moments
    by chance."""
    rng = Random(seed)
    alone = [(Act(fault, 0.0, _seconds(fault, rng)),) for fault in Fault if fault not in OF_WORKERS]
    return [*alone, *_together(Fault.GATEWAY_STOPPED, rng)]


def compact_schedule(seed: int) -> list[Group]:
    """Every fault once, and then again: as `schedule`, but what harms nobody comes with another fault."""
    return [*_paired(PAIRED, Random(f"{seed}/compact")), *schedule(seed)[-len(APART) :]]


def paired_schedule(seed: int) -> list[Group]:
    """Every fault once, for several workers: as the beginning of `compact_schedule`."""
    return _paired(PAIRED_WITH_WORKERS, Random(f"{seed}/paired"))


def overlapping_schedule(seed: int) -> list[Group]:
    """The end of `schedule`, for several workers."""
    return _together(Fault.WORKER_STOPPED, Random(f"{seed}/overlapping"))


class Course(NamedTuple):
    """One run: whether clients and backends speak TLS, how many workers there are, and its schedule."""

    tls: bool
    workers: int
    schedule: Callable[[int], list[Group]]


COURSES: Final[Mapping[str, Course]] = {
    "plain": Course(tls=False, workers=1, schedule=schedule),
    "tls": Course(tls=True, workers=1, schedule=compact_schedule),
    "plain-2-workers": Course(tls=False, workers=2, schedule=paired_schedule),
    "tls-2-workers": Course(tls=True, workers=2, schedule=overlapping_schedule),
}


def _together(stopped: Fault, rng: Random) -> list[Group]:
    """All that can come together, in as many groups as there are faults that cannot."""
    again = [*HARMLESS, stopped, rng.choice(RESOLVER)]
    rng.shuffle(again)
    groups = [
        [first, *again[number :: len(APART)]] for number, first in enumerate(rng.sample(APART, len(APART)))
    ]
    return [tuple(_act(fault, rng) for fault in faults) for faults in groups]


def _paired(pairs: Sequence[Sequence[Fault]], rng: Random) -> list[Group]:
    """Those of a group begin a second apart."""
    return [
        tuple(Act(fault, float(number), _seconds(fault, rng)) for number, fault in enumerate(faults))
        for faults in pairs
    ]


def _act(fault: Fault, rng: Random) -> Act:
    begin = 0.0 if fault is Fault.SLOW_PEERS else round(rng.uniform(*BEGIN), 3)
    return Act(fault, begin, _seconds(fault, rng))


def _seconds(fault: Fault, rng: Random) -> float:
    return round(rng.uniform(fault.value.shortest, fault.value.longest), 3)
