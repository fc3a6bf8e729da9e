"""What is in the two logs, as docs/logs.md says it: every field of a line of JSON, in its order.

Tests hold these tables against the lines that are written, and against the examples for log stores under
deploy/. The same name means the same in both logs.
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from tests.docs.pages import page, rows, section


@final
class LogField(NamedTuple):
    """One key of a line."""

    name: str
    kind: str
    """`time`, `text`, `word` (a text out of few), `integer` or `seconds`."""
    meaning: str
    null: str
    """When it is null; empty: never. In the process log and for client certificates: then it is not there."""


def _fields(heading: str) -> tuple[LogField, ...]:
    return tuple(
        LogField(name.strip("`"), kind, meaning, "" if null == "never" else null)
        for name, kind, meaning, null in rows(section(page("docs/logs.md"), heading))
    )


ACCESS_LOG: Final = _fields("Fields of the access log")
PROCESS_LOG: Final = _fields("Fields of the process log")

LEFT_OUT: Final = frozenset({"client_name", "client_subject", "client_fingerprint"})
"""Of the access log: where others are null, these are not in the line."""
