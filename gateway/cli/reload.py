"""`skewgate reload`: a running gateway reads its file anew.

Applied, or the reasons are printed as `check` prints them and the old configuration stays. The file is the
gateway's own, not ours.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from gateway.cli import asking
from gateway.cli.printing import complain, plain
from gateway.errors import AdminError

HELP = "make a running gateway read its configuration anew"

REFUSED: Final = 400
"""The status with which the admin listener tells what is wrong with the file."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Where to ask."""
    asking.arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Ask once. Raises `AdminError` when it was refused or nobody answers."""
    admin = asking.find(options)
    status, body = admin.ask("POST", "/-/reload")
    if status == REFUSED and (problems := _texts(body, "problems")):
        print("\n".join(_harmless(problem) for problem in problems), file=sys.stderr)
        raise AdminError("reload refused, the old configuration stays in force")
    state = asking.document_of(admin.url, "/-/reload", status, body)
    generation = state.get("generation")
    print("reloaded" if generation is None else f"reloaded: generation {generation} is in force", flush=True)
    if restart := _texts(body, "restart_needed"):
        complain(f"warning: not in force before a restart: {plain(', '.join(restart))}")
    return 0


def _texts(body: bytes, key: str) -> Sequence[str]:
    """The list of texts under `key` of a JSON object; empty when there is none."""
    try:
        found = json.loads(body)[key]
    except (ValueError, LookupError, TypeError):
        return ()
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else ()


def _harmless(problem: str) -> str:
    """Its lines, without anything that a terminal would obey; tabs stay, or carets would stand elsewhere."""
    return "\n".join("\t".join(map(plain, line.split("\t"))) for line in problem.split("\n"))
