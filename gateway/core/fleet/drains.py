"""Decides whether a drain, or its end, may be given: by who has drained what, and what would stay served.

Pure, and judged by the drains that are passed: with replicas those that the command's own transaction reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.fleet import Drain, OperatorCommand
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import union


def refusal(view: ServiceView, drained: Mapping[str, str], command: OperatorCommand) -> str | None:
    """Reason to refuse `command` while these backends are drained, as in `MemberSet.drained`; None: none."""
    if not isinstance(command, Drain):
        return None
    for name, by in drained.items() if command.by else ():
        # A name also keeps others with names away: there is one upgrade of a service at a time.
        if by != command.by and (name == command.backend or (by and command.drained)):
            return f"{by or 'somebody else'} has drained {name}"
    member = view.members.member(command.backend)
    if member is None or not command.served or command.backend in drained:
        return None
    others = (each for each in view.members.all if each.backend.name not in {command.backend, *drained})
    up = (each.usable_versions for each in others if each.freshness is not Freshness.DOWN)
    unserved = (view.offer.versions & member.usable_versions) - union(up)
    versions = unserved.format(view.service.dialect.scheme)
    return f"no other backend that is up and in service serves {versions}" if unserved else None
