"""Decides whether a drain, or its end, may be given: by who has drained what, and what would stay served.

Pure, and judged by the drains that are passed: with replicas those that the command's own transaction reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.fleet import Drain, OperatorCommand
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import VersionSet, held_by_at_least

ROLL: Final = "roll "
"""Beginning of the names that whole rolling upgrades give to their drains."""


def refusal(view: ServiceView, drained: Mapping[str, str], command: OperatorCommand) -> str | None:
    """Reason to refuse `command` while these backends are drained, as in `MemberSet.drained`; None: none."""
    if not isinstance(command, Drain):
        return None
    for name, by in drained.items() if command.by else ():
        # A name also keeps others with names away: there is one upgrade of a service at a time. A whole
        # rolling upgrade leaves out members that somebody else has drained, so only another one stops it.
        keeps_away = by.startswith(ROLL) or bool(by and not command.by.startswith(ROLL))
        if by != command.by and (name == command.backend or (keeps_away and command.drained)):
            return f"{by or 'somebody else'} has drained {name}"
    unserved = served_alone(view, drained).get(command.backend) if command.served else None
    if unserved is None:
        return None
    return f"no other backend that is up and in service serves {unserved.format(view.service.dialect.scheme)}"


def served_alone(view: ServiceView, drained: Mapping[str, str]) -> dict[str, VersionSet]:
    """Versions on offer that no other backend in service can serve, by backend; one that is down cannot."""
    members = [each for each in view.members.all if each.backend.name not in drained]
    up = [(each.usable_versions, 1) for each in members if each.freshness is not Freshness.DOWN]
    once, twice = (held_by_at_least(up, number) for number in (1, 2))
    found = {
        each.backend.name: view.offer.versions
        & each.usable_versions - (once if each.freshness is Freshness.DOWN else twice)
        for each in members
    }
    return {name: versions for name, versions in found.items() if versions}
