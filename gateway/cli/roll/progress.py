"""The journal of a rolling upgrade: a JSON file from which a second run goes on, and the report of it."""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from time import gmtime, strftime, time
from typing import Any, Final, final
from uuid import uuid4

from gateway.errors import AdminError
from gateway.runtime.terminal import counted, plain

UPGRADED: Final = "upgraded"
"""Result of a step."""
FAILED: Final = "failed"
"""Result of a step whose command was run."""


@final
@dataclass
class Progress:
    """What is done of one rolling upgrade."""

    service: str
    command: str = ""
    """Digest of the commands: their words may hold a secret."""
    id: str = field(default_factory=lambda: uuid4().hex[:8])
    began: float = field(default_factory=time)
    passes: int = 0
    """Number of passes that are finished: commands that were run for every member."""
    prepared: bool = False
    """Whether the command of `--before` has ended well for the next pass."""
    skipped: list[str] = field(default_factory=list)
    """Members that somebody else had drained."""
    complete: bool = False
    steps: list[dict[str, Any]] = field(default_factory=list)
    """What was done at each member, also what failed, in order."""
    refused: dict[str, int] = field(default_factory=dict)
    """Requests that were refused meanwhile, by client."""
    doubt: str = ""
    """Why some of these may be missing."""

    @property
    def finished(self) -> list[str]:
        """Members that were upgraded in the present pass."""
        steps = (step for step in self.steps if step["pass"] == self.passes + 1)
        return [step["member"] for step in steps if step["result"] == UPGRADED]

    def members(self, *results: str) -> list[str]:
        """Members with one of these results in any pass."""
        return list(dict.fromkeys(step["member"] for step in self.steps if step["result"] in results))

    @property
    def lost(self) -> int:
        """Requests that were lost while members were upgraded."""
        return sum(step["lost"] for step in self.steps)

    def write(self, path: Path, report: Path | None = None) -> None:
        """Write the journal, and a report if it is given. Raises `AdminError`."""
        try:
            if report is not None:
                report.write_text("\n".join(report_lines(self)) + "\n", encoding="utf-8")
            new = path.with_name(f"{path.name}.tmp")
            new.write_text(json.dumps(asdict(self), indent=2) + "\n")
            new.replace(path)
        except OSError as problem:
            raise AdminError(f"{problem.filename or path} cannot be written: {problem.strerror}") from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from rolling with this journal. Raises `AdminError` if one does."""
    try:
        lock = path.with_name(f"{path.name}.lock").open("w")
    except OSError as problem:
        raise AdminError(f"the journal {path} cannot be locked: {problem.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AdminError(f"another roll with the journal {path} is running") from None
        yield


def read_progress(path: Path, service: str, commands: Sequence[Sequence[str]]) -> Progress:
    """Read the journal of an upgrade that is not complete; there is none: begin one. Raises `AdminError`."""
    new = Progress(service, sha256(repr(commands).encode()).hexdigest())
    try:
        found = Progress(**json.loads(path.read_text()))
        shape = [type(each) for each in vars(new).values()]
        if shape != [type(each) for each in vars(found).values()]:
            raise TypeError
        done, _ = ", ".join(found.members(UPGRADED)), [*report_lines(found)]
    except FileNotFoundError:
        return new
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise AdminError(f"{path} is no journal of a rolling upgrade: give another --journal") from None
    if found.service != service:
        raise AdminError(f"{path} is the journal of {found.service}: give another --journal")
    if found.complete:
        return new
    if done and found.command != new.command:
        raise AdminError(f"{path} is the journal of another --exec, finished for {done}: give another one")
    found.command = new.command
    return found


def report_lines(progress: Progress) -> Iterator[str]:
    """Make the lines of the report, in Markdown."""
    yield f"# Rolling upgrade of {progress.service}\n"
    began = strftime("%Y-%m-%d %H:%M UTC", gmtime(progress.began))
    state = f"{'' if progress.complete else 'not '}complete"
    steps = counted(len(progress.steps), "step")
    yield f"Roll {progress.id}, {began}, {state}. Lost {progress.lost}, in {steps}.\n"
    yield "| pass | member | before | after | seconds | ended | result | gate | offer | held by |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for step in progress.steps:
        names = ("pass", "member", "before", "after", "seconds", "ended", "result", "gate", "offer", "held")
        yield f"| {' | '.join(_text(step[name]) or '-' for name in names)} |"
    if progress.skipped:
        yield f"\nSkipped, because somebody else had drained them: {_text(', '.join(progress.skipped))}"
    for client, number in sorted(progress.refused.items()):
        yield f"\nRefused meanwhile to {_text(client)}: {number}"
    if not progress.refused:
        yield "\nNothing was refused meanwhile, as far as `usage` knows."
    if progress.doubt:
        yield f"\nClients may be missing: {_text(progress.doubt)}"


def _text(value: object) -> str:
    """Write a value so that Markdown shows it as it is: a client chooses its name."""
    return re.sub(r"([\\`*_<>&|\[\]])", r"\\\1", plain(value))
