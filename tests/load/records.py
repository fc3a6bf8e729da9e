"""What is written down while the load runs: the values, and how they stand in files.

What it does: `Request` is one request as its client saw it, `Execution` what a backend did with one, both a
line of JSON each; `Sample`, `Outage`, `Serving` and `Span` are what the story itself knows.

Rules: all times are seconds of the system's monotonic clock, which every process on the machine shares. A
writer never buffers what has happened already: a backend's lines must survive its SIGKILL.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, final

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
LATEST: Final = "latest"


@final
@dataclass(frozen=True, slots=True)
class Request:
    """One request of one client, and what it was told."""

    ident: str
    kind: str
    method: str
    asked: str
    """The version header's text; empty: none was sent."""
    began: float
    """Before its first byte was written."""
    ended: float
    """After its reply's last byte was read, or when it was clear that none comes."""
    status: int
    """0: no whole reply came."""
    served: str = ""
    lowest: str = ""
    highest: str = ""
    fault: str = ""
    """What is wrong with the reply, or why there is none; empty: nothing."""
    streamed: bool = False
    """Its body is larger than what a gateway holds, so nobody can send it twice."""

    @property
    def resendable(self) -> bool:
        """Whether a gateway may send it again after a backend that had it died without a reply."""
        return self.method in SAFE and not self.streamed

    def __str__(self) -> str:
        told = f"{self.status} at {self.served or 'no version'} of {self.lowest}-{self.highest}"
        said = f"{self.method} asking {self.asked or 'nothing'}: {told if self.status else 'no reply'}"
        return f"{self.ident}, {said}" + (f" ({self.fault})" if self.fault else "")


@final
@dataclass(frozen=True, slots=True)
class Execution:
    """What one backend did with one request, written down at the moment when it took effect."""

    ident: str
    backend: str
    version: str
    at: float
    refused: bool = False
    """It answered 406 for the version; nothing was executed."""


class Offer(NamedTuple):
    """A range that clients are told."""

    lowest: str
    highest: str

    def holds(self, version: str) -> bool:
        return number(self.lowest) <= number(version) <= number(self.highest)


class Sample(NamedTuple):
    """One reading of /status. What it says was true at a moment between `sent` and `came`."""

    sent: float
    came: float
    offer: Offer
    phase: str


class How(Enum):
    """What was done to a backend."""

    TERMINATED = "SIGTERM"
    KILLED = "SIGKILL"
    HUNG = "SIGSTOP"


class Span(NamedTuple):
    """A stretch of time, both ends within."""

    since: float
    until: float

    def meets(self, since: float, until: float) -> bool:
        return self.since <= until and since <= self.until


class Outage(NamedTuple):
    """A backend was taken away; `span` ends when no request can be hurt by it any more."""

    backend: str
    how: How
    span: Span


class Serving(NamedTuple):
    """A backend that was up, in service and known to the gateway, up to `highest`, all of `span`."""

    backend: str
    highest: str
    span: Span


def number(version: str) -> tuple[int, ...]:
    """A version's numbers, for comparing."""
    return tuple(int(part) for part in version.split("."))


Line = TypeVar("Line", Request, Execution)


def line_of(record: Request | Execution) -> bytes:
    return json.dumps(asdict(record)).encode() + b"\n"


def read_lines(path: Path, kind: type[Line]) -> Iterator[Line]:
    """Every record of a file; none when nobody has written it."""
    if path.exists():
        for line in path.read_bytes().splitlines():
            yield kind(**json.loads(line))


class Journal:
    """A file to which whole lines are added, each by one write, by several processes one after another."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, record: Request | Execution) -> None:
        os.write(self._file, line_of(record))
