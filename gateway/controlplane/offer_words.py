"""What the log says of a service's offer, in one line that an operator can act on: what is offered, where the
upgrade stands, what holds it there, and what to do or to wait for.

Pure: views and times in, texts out. When such a line is written is `journal`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from gateway.core.backend import Member
from gateway.core.memory import served
from gateway.core.offer import HeldRule
from gateway.core.ranges import VersionSet
from gateway.core.snapshot import ServiceView

NAMED: Final = 4
"""Backends that are named before the rest is only counted."""


def told(view: ServiceView) -> tuple[object, ...]:
    """What a line is about: when it is the same, there is nothing new to say."""
    offer = view.offer
    about = offer.versions, offer.phase, offer.transparent, offer.ceiling, offer.pinned, offer.held_rule
    if offer.held_rule is HeldRule.CEILING:
        # Said then: what stands above it. Who differs is not, and in an upgrade that is every backend.
        return (*about, view.memory.versions)
    return (*about, offer.held_by, offer.pending)


def offered(view: ServiceView) -> str:
    """`1.1-1.58`, `none`, or that nothing is negotiated."""
    if view.offer.transparent:
        return "transparent (every backend is silent about versions)"
    return view.offer.versions.format(view.service.dialect.scheme)


def ceiling(view: ServiceView) -> str:
    """Which ceiling is in force."""
    offer = view.offer
    if offer.ceiling is None:
        return "no ceiling"
    text = view.service.dialect.scheme.format(offer.ceiling)
    return f"pinned to {text}" if offer.pinned else f"ceiling {text} of the configuration"


def blocked(view: ServiceView) -> bool:
    """True: a ceiling below the minimum leaves nothing to offer."""
    return bool(view.memory.versions) and not view.offer.versions


def why(view: ServiceView, now: float) -> str:
    """What keeps the offer where it is, and what changes that; empty where nothing does. `now`: seconds of
    the clock by which offers settle."""
    if blocked(view):
        return _blocked(view)
    match view.offer.held_rule:
        case HeldRule.CEILING:
            return _capped(view)
        case HeldRule.SETTLE:
            return _settling(view, now)
        case HeldRule.MEMORY:
            return _remembered(view)
        case HeldRule.GUARANTEED:
            return _held_back(view)
        case None:
            return _differing(view)
        case _:
            assert_never(view.offer.held_rule)


def _blocked(view: ServiceView) -> str:
    scheme, beneath = view.service.dialect.scheme, view.memory.versions
    way_out = _without_pin(view)
    advice = (
        f"`skewgate unpin {view.service.name}` offers {way_out.format(scheme)}"
        if way_out
        else f"`skewgate pin {view.service.name} {scheme.format(beneath.highest)}` offers "
        f"{beneath.format(scheme)}"
    )
    lowest = scheme.format(beneath.lowest)
    return f"the ceiling is below the minimum {lowest}, requests get 503; {advice}"


def _without_pin(view: ServiceView) -> VersionSet:
    """What `unpin` would show; nothing where there is no pin."""
    if not view.offer.pinned:
        return VersionSet()
    beneath, configured = view.memory.versions, view.service.ceiling
    return beneath if configured is None else beneath.up_to(configured)


def _capped(view: ServiceView) -> str:
    scheme, name = view.service.dialect.scheme, view.service.name
    if view.offer.pinned:
        return f"the pin holds it; `skewgate unpin {name}` offers {_without_pin(view).format(scheme)}"
    return f"offer.ceiling holds it; without it the offer is {view.memory.versions.format(scheme)}"


def _settling(view: ServiceView, now: float) -> str:
    scheme, settle, ceiling = view.service.dialect.scheme, view.service.settle, view.offer.ceiling
    limit = "the pin" if view.offer.pinned else "offer.ceiling"
    waits = []
    for each in view.memory.growing:
        when = f"offered in {max(0.0, each.since + settle - now):.3g} s"
        shown = each.versions if ceiling is None else each.versions.up_to(ceiling)
        if shown:
            waits.append(f"{shown.format(scheme)} will be {when}")
        if above := each.versions - shown:
            waits.append(f"{above.format(scheme)} could be {when} but for {limit}")
    return f"{', '.join(waits)}, unless the fleet changes"


def _remembered(view: ServiceView) -> str:
    versions = view.offer.versions
    lacking = [member for member in _speaking(view) if not versions <= served(member)]
    rest = (versions - view.offer.guaranteed).format(view.service.dialect.scheme)
    return f"{rest} stays on offer although {_names(lacking, view)} would not serve it: upgrade or drain"


def _held_back(view: ServiceView) -> str:
    more = view.offer.reachable - view.offer.versions
    lacking = [member for member in _speaking(view) if not more <= served(member)]
    if not lacking:
        return _differing(view)
    text = more.format(view.service.dialect.scheme)
    return f"{text} is held back by {_names(lacking, view)}: upgrade or drain"


def _differing(view: ServiceView) -> str:
    names = frozenset(view.offer.held_by)
    members = [member for member in view.pool.members if member.backend.name in names]
    return f"differing: {_names(members, view)}" if members else ""


def _speaking(view: ServiceView) -> list[Member]:
    return [member for member in view.pool.in_service if served(member)]


def _names(members: Sequence[Member], view: ServiceView) -> str:
    """`api-1 (1.1-1.58) and api-2 (1.1-1.90)`."""
    scheme = view.service.dialect.scheme
    texts = [f"{each.backend.name} ({served(each).format(scheme)})" for each in members[:NAMED]]
    if len(members) > NAMED:
        texts.append(f"{len(members) - NAMED} more")
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
