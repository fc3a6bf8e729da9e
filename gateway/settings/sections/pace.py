"""`offer.for` of a service: named clients with a lower ceiling of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import final

from gateway.core.dialect import Dialect
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.pace import Pace
from gateway.core.versions.version import Version
from gateway.keys.texts import CLIENT_NAMES, DAY, VERSION
from gateway.settings.sections.versions import read_version
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node, child


@final
@dataclass(frozen=True, slots=True)
class WrittenPace:
    """An own pace: clients that are told and served the offer up to a ceiling of their own."""

    clients: tuple[str, ...] = field(
        metadata=CLIENT_NAMES.required(
            "Names of clients, from `clients`. A client may have one own pace in a service.",
            reason="Only the operator knows who cannot move yet.",
            example=["nova-cron"],
        )
    )
    ceiling: str = field(
        metadata=VERSION.required(
            "The highest version on offer to these clients.",
            reason="Only the operator knows what these clients can do.",
            example="1.72",
        )
    )
    until: date | None = DAY.key(
        None,
        "The last day (UTC). On the next day these clients are offered what all others are.",
        reason="Without it, the own pace has no end.",
        example="2099-06-30",
    )


def read_paces(
    written: Sequence[WrittenPace],
    ceiling: Version | None,
    backends: Sequence[Backend],
    dialect: Dialect,
    node: Node | None,
    findings: Findings,
) -> tuple[Pace, ...]:
    """The own paces of clients, whose names `resolve_names` checks. `node`: the key `offer`."""
    scheme, paces = dialect.scheme, []
    declared = [backend.declared for backend in backends if backend.declared]
    lowest = min((one.lowest for one in declared), default=None) if len(declared) == len(backends) else None
    for index, each in enumerate(written):
        place = child(node, "for", index)
        at = child(place, "ceiling")
        own = read_version(each.ceiling, dialect, at, findings)
        if own is None:
            continue
        if lowest is not None and own < lowest:
            findings.add(
                at,
                "ceiling-below-minimum",
                f"the lowest declared version is {scheme.format(lowest)}: nothing would be offered to them",
                "raise the ceiling",
            )
        elif ceiling is not None and own >= ceiling:
            message = f"the ceiling of the service is {scheme.format(ceiling)}: this hides nothing"
            findings.warn(at, "no-effect", message, "lower this ceiling, or remove the entry")
        if each.until is not None and each.until < datetime.now(UTC).date():
            message = "the day has passed: these clients are offered what all others are"
            findings.warn(child(place, "until"), "passed", message, "write a later day, or remove the entry")
        paces.append(Pace(each.clients, own, each.until))
    return tuple(paces)
