"""What the admin listener shows, as plain JSON values and texts made from one snapshot.

The shape of `/status` is a public contract (design section 5). Pure: no request, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway.core.backend import Member
from gateway.core.explanation import ends
from gateway.core.ranges import NOTHING, VersionSet
from gateway.core.snapshot import ServiceView, Snapshot
from gateway.core.version import Scheme


def status(
    snapshot: Snapshot,
    config: Mapping[str, Any],
    last_probe_at: Mapping[tuple[str, str], float],
    load: Mapping[str, int],
) -> dict[str, Any]:
    """`GET /status`. `last_probe_at`: wall-clock seconds by (service, backend); `load`: in flight by member
    key."""
    return {
        "generation": snapshot.generation,
        "config": dict(config),
        "services": {name: _service(view, last_probe_at, load) for name, view in snapshot.views.items()},
    }


def _service(
    view: ServiceView, last_probe_at: Mapping[tuple[str, str], float], load: Mapping[str, int]
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
                member, scheme, last_probe_at.get((member.service, member.backend.name)), load
            )
            for member in view.pool.members
        },
    }


def _backend(
    member: Member, scheme: Scheme, last_probe_at: float | None, load: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "url": member.backend.url,
        "standing": member.standing.value,
        "drained": member.drained,
        "silent": member.silent,
        **_range(member.advert.versions if member.advert is not None else NOTHING, scheme),
        "last_probe_at": last_probe_at,
        "error": member.error,
        "in_flight": load.get(member.key, 0),
    }


def _range(versions: VersionSet, scheme: Scheme) -> dict[str, str | None]:
    lowest, highest = ends(versions, scheme)
    return {"min": lowest, "max": highest}


class Condition(NamedTuple):
    """One thing that must hold before the gateway is ready."""

    name: str
    holds: bool
    why: str
    """What is missing, for people."""


def conditions(snapshot: Snapshot, *, draining: bool) -> tuple[Condition, ...]:
    """All that must hold for `/readyz`. One service that can be served is enough: the others answer for
    themselves."""
    serving = any(_serves(view) for view in snapshot.views.values())
    return (
        Condition("configuration", bool(snapshot.views), "no service is configured"),
        Condition("lifecycle", not draining, "the gateway is shutting down"),
        Condition("offer", serving, _why_nothing(snapshot)),
    )


def _why_nothing(snapshot: Snapshot) -> str:
    """Why no service can be served, when none can."""
    unknown = ", ".join(name for name, view in snapshot.views.items() if not _known(view))
    empty = ", ".join(name for name, view in snapshot.views.items() if _known(view) and not _serves(view))
    reasons = [
        *([f"nothing is known of the backends of {unknown}"] if unknown else ()),
        *([f"no version can be offered for {empty}"] if empty else ()),
    ]
    return ", ".join(reasons) or "no service is configured"


def _known(view: ServiceView) -> bool:
    return any(member.advert is not None for member in view.pool.members)


def _serves(view: ServiceView) -> bool:
    return _known(view) and (bool(view.offer.versions) or view.offer.transparent)
