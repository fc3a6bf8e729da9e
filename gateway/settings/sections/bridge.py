"""`bridge` of a service: named clients whose requests are executed at another version than they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import final

from gateway.core.fleet.bridge import WARNED, Bridge, BridgeMatch
from gateway.keys.kinds import ListOf, Text
from gateway.keys.texts import DAY, FLAG, NAME, member_of
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node, child


@final
@dataclass(frozen=True, slots=True)
class WrittenBridge:
    """A bridge: clients whose requests for a version that is not on offer are executed at the nearest one."""

    clients: tuple[str, ...] = field(
        metadata=ListOf(Text(NAME.read, NAME.json), least=1).required(
            "Names of clients, from `clients`. A client may have one bridge in a service.",
            reason="Only the operator knows who cannot be changed.",
            example=["old-ci"],
        )
    )
    match: BridgeMatch = field(
        metadata=member_of(BridgeMatch).required(
            "The version on offer that counts. nearest_later lifts what is below the offer; nearest_earlier "
            "lowers what is above it; nearest does both. Never bridged: requests without a version, "
            "malformed and signed ones, and documents without a version in their path.",
            reason="Only the operator knows which differences these clients can bear.",
            example="nearest_later",
        )
    )
    until: date = field(
        metadata=DAY.required(
            "The last day (UTC). On the next day such requests are refused. The log warns 30 and 7 days "
            "before.",
            reason="A bridge without an end is never taken down.",
            example="2099-06-30",
        )
    )
    across_majors: bool = FLAG.key(
        default=False,
        meaning="Whether the version may have another number before its first dot.",
        reason="A new major is another API.",
        example=True,
    )


def read_bridges(
    written: Sequence[WrittenBridge], node: Node | None, findings: Findings
) -> tuple[Bridge, ...]:
    """The bridges of clients, whose names `resolve_names` checks. `node`: the key `bridge`."""
    for index, each in enumerate(written):
        left, place = (each.until - datetime.now(UTC).date()).days, child(node, index, "until")
        if left < 0:
            message = "the day has passed: the versions that these clients ask for are refused"
            findings.warn(place, "passed", message, "write a later day, or remove the entry")
        elif left < WARNED:
            message = f"in {left + 1} days the versions that these clients ask for are refused"
            findings.warn(place, "ends-soon", message, "change the clients, or write a later day")
    return tuple(Bridge(each.clients, each.match, each.until, each.across_majors) for each in written)
