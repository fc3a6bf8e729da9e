"""The records of a load run, and their format in files.

What it does: `Request` is one request as its client saw it, and `Execution` is what a backend did with one.
Both are lines of JSON in files. `Outage`, `Serving` and `Span` come from the scenario itself.

Rules: all times are seconds of the system's monotonic clock, which all processes of a machine share. A writer
never buffers: the lines of a backend must survive its SIGKILL.
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
    """One request of one client, and the response that the client got."""

    ident: str
    kind: str
    method: str
    requested: str
    """The text of the version field; empty: the request had none."""
    began: float
    """Before its first byte was written."""
    ended: float
    """After the last byte of the response was read, or when it was clear that none comes."""
    status: int
    """0: there was no complete response."""
    served: str = ""
    lowest: str = ""
    highest: str = ""
    fault: str = ""
    """What is wrong with the response, or why there is none; empty: nothing."""
    streamed: bool = False
    """The body is larger than what a gateway keeps, so it cannot be sent twice."""
    answered: str = ""
    """The request that the backend's response names; empty: it names none."""
    established: bool = False
    """The connection had completed a request before this one."""
    evicted: bool = False
    """The gateway had closed the client's established connection while it was idle, without a word, and the
    client has had no response since."""
    dripped: bool = False
    """The head of the response comes byte by byte, so a gateway may have seen its beginning."""
    slow: bool = False
    """The client or the backend is slow on purpose, so the duration says nothing about the gateway."""

    @property
    def resendable(self) -> bool:
        """Whether a gateway may send it again after a backend died without a response."""
        return self.method in SAFE and not self.streamed

    def __str__(self) -> str:
        version = f"at {self.requested}" if self.requested else "without a version"
        response = f"{self.status} at {self.served or 'no version'} of {self.lowest}-{self.highest}"
        text = f"{self.ident}, {self.method} {version}: {response if self.status else 'no response'}"
        return text + (f" ({self.fault})" if self.fault else "")


@final
@dataclass(frozen=True, slots=True)
class Execution:
    """What one backend did with one request, written when the request took effect."""

    ident: str
    backend: str
    version: str
    at: float
    refused: bool = False
    """The backend responded 406 because of the version, and executed nothing."""


class How(Enum):
    TERMINATED = "SIGTERM"
    KILLED = "SIGKILL"
    HUNG = "SIGSTOP"
    PARTITIONED = "partition"
    """Packets to it and from it vanish."""


class Span(NamedTuple):
    """A period of time, including both ends."""

    since: float
    until: float

    def overlaps(self, since: float, until: float) -> bool:
        return self.since <= until and since <= self.until


class Outage(NamedTuple):
    """A backend was taken away. `span` ends when the outage cannot affect a request any more."""

    backend: str
    how: How
    span: Span


class Death(NamedTuple):
    """A process of the gateway has ended."""

    at: float
    killed: bool
    """By SIGKILL, with all that it was doing. Otherwise it was replaced in order."""


class Delay(NamedTuple):
    """What happened in `span` may delay a request by so many seconds."""

    span: Span
    seconds: float


class Serving(NamedTuple):
    """A backend that was up, in service and known to the gateway up to `highest`, during all of `span`."""

    backend: str
    highest: str
    span: Span


Line = TypeVar("Line", Request, Execution)


def line_of(record: Request | Execution) -> bytes:
    return json.dumps(asdict(record)).encode() + b"\n"


def read_lines(path: Path, kind: type[Line]) -> Iterator[Line]:
    """Every record of a file; none if the file does not exist."""
    if path.exists():
        for line in path.read_bytes().splitlines():
            yield kind(**json.loads(line))


class RecordFile:
    """A file to which several processes append whole lines, each line with one write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, record: Request | Execution) -> None:
        os.write(self._file, line_of(record))
