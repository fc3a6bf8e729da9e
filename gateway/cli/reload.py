"""`skewgate reload`: a running gateway reads its file again.

Either the new configuration is applied, or the problems are printed as `check` prints them and the old
configuration stays. The gateway reads its own file; this verb reads none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from time import monotonic, sleep
from typing import Final

from gateway.cli import admin_client
from gateway.cli.admin_client import AdminClient, Where
from gateway.cli.command import file_argument, verb
from gateway.cli.operator_commands import warn_of_pending
from gateway.errors import AdminError, TokenError
from gateway.runtime.terminal import plain

TOKEN_WAIT: Final = 5.0
"""Seconds for which a changed token is given time to be known."""
REFUSED: Final = 400
"""The status of a response with the problems of the file."""


@verb("reload")
@file_argument
@admin_client.options
def command(*, where: Where) -> int:
    """Reload. Raises `AdminError` when the file is refused or no gateway responds."""
    admin = admin_client.find(where)
    status, body = _request(admin)
    if status == REFUSED and (problems := _texts(body, "problems")):
        print("\n".join(_safe_text(problem) for problem in problems), file=sys.stderr)
        raise AdminError("reload refused, the old configuration stays in force")
    document = admin_client.document_of(admin.url, "/-/reload", status, body)
    state = admin_client.require_state(admin.url, document)
    warn_of_pending(state)
    print(f"reloaded: generation {state['generation']} is in force", flush=True)
    return 0


def _request(admin: AdminClient) -> tuple[int, bytes]:
    """A token that is read from a file may be newer than the gateway's, which takes it within seconds."""
    end = monotonic() + TOKEN_WAIT
    while True:
        try:
            return admin.request("POST", "/-/reload")
        except TokenError:
            if admin.token_from == admin_client.TOKEN_VARIABLE or monotonic() > end:
                raise
        sleep(0.2)


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
