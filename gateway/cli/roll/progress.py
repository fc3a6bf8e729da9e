"""The journal of a rolling upgrade: a JSON file from which a second run goes on, and the report of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import gmtime, strftime, time
from typing import Any, final
from uuid import uuid4

from gateway.errors import AdminError


@final
@dataclass
class Progress:
    """What is done of one rolling upgrade."""

    service: str
    id: str = field(default_factory=lambda: uuid4().hex[:8])
    began: float = field(default_factory=time)
    finished: list[str] = field(default_factory=list)
    drained: str = ""
    """Member that this upgrade has drained and not enabled again; empty: none."""
    prepared: bool = False
    """Whether the command of `--before` has ended well."""
    complete: bool = False
    steps: list[dict[str, Any]] = field(default_factory=list)
    """What was done at each member, also what failed, in order."""
    refused: dict[str, int] = field(default_factory=dict)
    """Requests that were refused meanwhile, by client."""

    @property
    def lost(self) -> int:
        """Requests that were lost while members were upgraded."""
        return sum(step["lost"] for step in self.steps)

    def write(self, path: Path, report: Path | None = None) -> None:
        """Write the journal, and a report if it is given. Raises `AdminError`."""
        try:
            if report is not None:
                report.write_text("\n".join(report_lines(self)) + "\n")
            path.with_suffix(".tmp").write_text(json.dumps(asdict(self), indent=2) + "\n")
            path.with_suffix(".tmp").replace(path)
        except OSError as problem:
            raise AdminError(f"the journal {path} cannot be written: {problem.strerror}") from None


def read_progress(path: Path, service: str) -> Progress:
    """Read the journal of an upgrade that is not complete; there is none: begin one. Raises `AdminError`."""
    try:
        found = Progress(**json.loads(path.read_text()))
    except FileNotFoundError:
        return Progress(service)
    except (OSError, ValueError, TypeError):
        raise AdminError(f"{path} is no journal of a rolling upgrade: give another --journal") from None
    if found.service != service:
        raise AdminError(f"{path} is the journal of {found.service}: give another --journal")
    return Progress(service) if found.complete else found


def report_lines(progress: Progress) -> Iterator[str]:
    """Make the lines of the report, in Markdown."""
    yield f"# Rolling upgrade of {progress.service}\n"
    began = strftime("%Y-%m-%d %H:%M UTC", gmtime(progress.began))
    state = f"{'' if progress.complete else 'not '}complete"
    yield f"Roll {progress.id}, {began}, {state}. Lost {progress.lost}, in {len(progress.steps)} steps.\n"
    yield "| member | before | after | seconds | result | gate | offer | held by |"
    yield "|---|---|---|---|---|---|---|---|"
    for step in progress.steps:
        names = ("member", "before", "after", "seconds", "result", "gate", "offer", "held")
        yield f"| {' | '.join(str(step[name]).replace('|', '/') or '-' for name in names)} |"
    for client, number in sorted(progress.refused.items()):
        yield f"\nRefused meanwhile to {client}: {number}"
    if not progress.refused:
        yield "\nNothing was refused meanwhile, as far as `usage` knows."
