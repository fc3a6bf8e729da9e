"""`skewgate reload`: a running gateway reads its file again.

Either the new configuration is applied, or the problems are printed as `check` prints them and the old
configuration stays. The gateway reads its own file; this verb reads none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from gateway.cli import admin_client
from gateway.errors import AdminError
from gateway.terminal import plain, print_error

HELP = "make a running gateway read its configuration again"

REFUSED: Final = 400
"""The status of a response with the problems of the file."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The admin listener."""
    admin_client.arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Reload. Raises `AdminError` when the file is refused or no gateway responds."""
    admin = admin_client.find(options)
    status, body = admin.request("POST", "/-/reload")
    if status == REFUSED and (problems := _texts(body, "problems")):
        print("\n".join(_safe_text(problem) for problem in problems), file=sys.stderr)
        raise AdminError("reload refused, the old configuration stays in force")
    state = admin_client.document_of(admin.url, "/-/reload", status, body)
    generation = state.get("generation")
    print("reloaded" if generation is None else f"reloaded: generation {generation} is in force", flush=True)
    if restart := _texts(body, "restart_needed"):
        print_error(f"warning: not in force before a restart: {plain(', '.join(restart))}")
    return 0


def _texts(body: bytes, key: str) -> Sequence[str]:
    """The list of texts under `key` of a JSON object; empty when there is none."""
    try:
        found = json.loads(body)[key]
    except (ValueError, LookupError, TypeError):
        return ()
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else ()


def _safe_text(problem: str) -> str:
    """Its lines without control characters. Tabs stay, because they keep the carets in their columns."""
    return "\n".join("\t".join(map(plain, line.split("\t"))) for line in problem.split("\n"))
