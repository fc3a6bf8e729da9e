"""`usage`: the record of who uses which version, where it is kept and for how long."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, final

from gateway.keys.kinds import Either, Text, matching, reject, section
from gateway.keys.texts import FILE_PATH, FLAG, count, off
from gateway.settings.sections.state import check_state_path
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, child

_DAYS: Final = "[1-9][0-9]{0,2}d"


def read_days(text: str) -> int:
    """Read a number of days: `30d`."""
    if re.fullmatch(_DAYS, text, re.ASCII) is None:
        reject("not a number of days", "write a whole number and `d`, from 1d to 999d: 30d")
    return int(text[:-1])


@final
@dataclass(frozen=True, slots=True)
class UsageSettings:
    """Settings of the usage record: which clients use which versions, by UTC day."""

    path: str | None = FILE_PATH.key(
        None,
        "The SQLite database of the record. Without this key it is beside the `state` file, as "
        "`state.json.usage`. If there is no `state` either, the record is in memory, since the start.",
        reason="One folder holds all that the gateway keeps.",
        example="/var/lib/skewgate/usage.db",
    )
    keep: int = Text(read_days, matching(_DAYS)).key(
        "30d",
        "How many days of the record are kept.",
        reason="Clients that come once a month are in it.",
        example="90d",
    )
    rows: int = count(1_000, 10_000_000).key(
        200_000,
        "Most rows of the record. From 80 % of it, the operations of new rows are counted together, and at "
        "the bound their clients, except those with a name. The record says so, as an incomplete day.",
        reason="So many rows take some 30 MB.",
        example=1_000_000,
    )
    addresses: bool = FLAG.key(
        default=False,
        meaning="Whether the record has up to four client addresses for each row.",
        reason="Addresses are personal data.",
        example=True,
    )


USAGE_OR_OFF: Final = Either(off(), section(UsageSettings, title="Usage"))


def check_usage(
    usage: UsageSettings | None, state: str | None, root: MappingNode, findings: Findings
) -> None:
    """Report a database that could not be written, or that would overwrite the state file."""
    node = child(root, "usage", "path")
    if usage is not None and usage.path is not None:
        check_state_path(usage.path, node, findings)
        if usage.path == state:
            message = "this is the `state` file"
            findings.contradiction(node, message, "name a file of its own for the database")
