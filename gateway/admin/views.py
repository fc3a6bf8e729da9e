"""What the admin listener shows, as plain JSON values and texts made from one snapshot.

The shape of `/status` is a public contract: scripts of other people read it. Pure: no request, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.core.decision.explanation import ends
from gateway.core.fleet.backend import Member
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Scheme


def status(
    snapshot: Snapshot,
    config: Mapping[str, Any],
    last_probe_at: Mapping[tuple[str, str], float],
    in_flight_by_member: Mapping[str, int],
) -> dict[str, Any]:
    """The document of `GET /status`. `last_probe_at`: wall-clock seconds by (service, backend).
    `in_flight_by_member`: requests in flight by member key."""
    return {
        "generation": snapshot.generation,
        "config": dict(config),
        "services": {
            name: _service(view, last_probe_at, in_flight_by_member) for name, view in snapshot.views.items()
        },
    }


def _service(
    view: ServiceView, last_probe_at: Mapping[tuple[str, str], float], in_flight_by_member: Mapping[str, int]
) -> dict[str, Any]:
    offer, scheme = view.offer, view.service.dialect.scheme
    return {
        "dialect": view.service.dialect.name,
        "phase": offer.phase.value,
        "pin": scheme.format(view.pool.pin) if view.pool.pin is not None else None,
        "offer": {
            **_range(offer.versions, scheme),
            "policy": offer.policy.value,
            "ceiling": scheme.format(offer.ceiling) if offer.ceiling is not None else None,
            "held_by": list(offer.held_by),
            "held_rule": offer.held_rule.value if offer.held_rule is not None else None,
        },
        "guaranteed": _range(offer.guaranteed, scheme),
        "reachable": _range(offer.reachable, scheme),
        "backends": {
            member.backend.name: _backend(
                member, scheme, last_probe_at.get((member.service, member.backend.name)), in_flight_by_member
            )
            for member in view.pool.members
        },
    }


def _backend(
    member: Member, scheme: Scheme, last_probe_at: float | None, in_flight_by_member: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "url": member.backend.url,
        "freshness": member.freshness.value,
        "drained": member.drained,
        "legacy": member.legacy,
        **_range(member.advertisement.versions if member.advertisement is not None else NO_VERSIONS, scheme),
        "last_probe_at": last_probe_at,
        "error": member.error,
        "in_flight": in_flight_by_member.get(member.key, 0),
    }


def _range(versions: VersionSet, scheme: Scheme) -> dict[str, str | None]:
    lowest, highest = ends(versions, scheme)
    return {"min": lowest, "max": highest}


class Condition(NamedTuple):
    """One condition of readiness."""

    name: str
    holds: bool
    reason: str
    """Why it does not hold, for people."""


def conditions(snapshot: Snapshot, *, draining: bool) -> tuple[Condition, ...]:
    """All conditions of `/readyz`. One service that can be served is enough: requests for the others get
    their own errors."""
    serving = any(_serves(view) for view in snapshot.views.values())
    return (
        Condition("configuration", bool(snapshot.views), "no service is configured"),
        Condition("lifecycle", not draining, "the gateway is shutting down"),
        Condition("offer", serving, _why_nothing_is_served(snapshot)),
    )


def _why_nothing_is_served(snapshot: Snapshot) -> str:
    """Why no service can be served."""
    unknown = ", ".join(name for name, view in snapshot.views.items() if not _known(view))
    empty = ", ".join(name for name, view in snapshot.views.items() if _known(view) and not _serves(view))
    reasons = [
        *([f"no backend of {unknown} has reported its versions yet"] if unknown else ()),
        *([f"no version can be offered for {empty}"] if empty else ()),
    ]
    return ", ".join(reasons) or "no service is configured"


def _known(view: ServiceView) -> bool:
    return any(member.advertisement is not None for member in view.pool.members)


def _serves(view: ServiceView) -> bool:
    return _known(view) and (bool(view.offer.versions) or view.offer.transparent)
