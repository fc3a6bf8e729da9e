"""Texts about an offer (what it is, what holds it, what comes next), and its versions as bars on an axis.

The change log has the words for what holds an offer, so that page and log say the same. Pure: views in,
values of `model` out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final, assert_never, final

from gateway.admin.effects import beneath
from gateway.admin.ui.model import Bar, OfferCard
from gateway.controlplane.change_log import reason_held, unserved
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.offer import HeldRule, Offer
from gateway.core.fleet.service import Policy, Service
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.axis import Axis, Tick
from gateway.core.versions.ranges import VersionRange, VersionSet, joined, union
from gateway.core.versions.version import Scheme, Version
from gateway.telemetry.status import ServiceStatus

NOTHING: Final = "nothing"
NOT_NEGOTIATED: Final = "not negotiated"
"""Text for a service whose backends are all legacy: requests pass unchanged."""

MAX_WHO: Final = 8
"""Maximum backends or replicas named as holding an offer; the others are only counted."""

MAX_TEXT: Final = 300
"""Maximum characters shown of versions or of a backend's error."""

MAX_BARS: Final = 60
"""Maximum bars for one set of versions: more cannot be distinguished."""

_ADDRESS: Final = re.compile(r"(?: to|; check) \S+?(?=: )")

_MINUTE: Final = 60.0
_HOUR: Final = 3600.0

_MANY: Final = 10.0
"""Requests per second from which on tenths are not shown."""

_TOUCHING: Final = 1e-9
"""Share of the axis of versions below which a gap between two bars is only a rounding error."""


def cut(text: str) -> str:
    """Cuts a text from outside to the length that has room on the page."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def without_address(text: str) -> str:
    """Removes the address of its backend from an error, so that equal errors of several are shown once."""
    return _ADDRESS.sub("", text)


def ranges(versions: VersionSet, scheme: Scheme) -> str:
    """Writes versions as `1.1-1.58` or `nothing`."""
    return cut(versions.format(scheme)) if versions else NOTHING


def duration(seconds: float) -> str:
    """Writes seconds as `15 s`, `3 min`, `23 h`: rounded up, so that a page does not change every second."""
    seconds = max(0.0, seconds)
    if seconds <= _MINUTE:
        return f"{ceil(seconds / 5) * 5} s"
    return f"{ceil(seconds / _MINUTE)} min" if seconds <= 2 * _HOUR else f"{ceil(seconds / _HOUR)} h"


def rate(each: float) -> float:
    """Rounds requests per second, so that a page does not change with digits that nobody reads."""
    return round(each, 0 if each >= _MANY else 1 if each >= 1.0 else 2)


@final
@dataclass(frozen=True, slots=True)
class Drawing:
    """The axis of one service's versions, and sets of versions as bars on it."""

    axis: Axis
    scheme: Scheme

    @classmethod
    def of(cls, view: ServiceView) -> Drawing:
        """Makes the drawing of a service; its axis has all versions that are on offer or advertised."""
        sets = {each for group in view.members.groups if (each := group.summary.advertised)}
        return cls(Axis([*sets, view.offer.versions, beneath(view)]), view.service.dialect.scheme)

    def bars(self, versions: VersionSet) -> tuple[Bar, ...]:
        """Draws `versions` as bars: one for each part without a gap that some backend serves."""
        found: list[tuple[float, float, Version, Version]] = []
        for begin, end, first, last in self.axis.spans(versions):
            if found and not self.scheme.contiguous and begin - found[-1][1] < _TOUCHING:
                found[-1] = (found[-1][0], end, found[-1][2], last)
            else:
                found.append((begin, end, first, last))
        return tuple(
            Bar(begin, end, VersionRange(first, last).format(self.scheme))
            for begin, end, first, last in found[:MAX_BARS]
        )

    def labels(self, offered: VersionSet) -> tuple[Tick, ...]:
        """Orders the labels of the axis: those of its ends, of the offer's ends, then all others."""
        ticks = self.axis.ticks(self.scheme)
        ends = [self.axis.at(end) for end in ((offered.highest, offered.lowest) if offered else ())]
        first = [tick for tick in ticks if tick.at in ends]
        return tuple(dict.fromkeys((*ticks[:1], *ticks[-1:], *sorted(first, reverse=True), *ticks)))


def offer_card(service: ServiceStatus, drawing: Drawing) -> OfferCard:
    """Makes the texts and bars of a service's offer."""
    view, scheme = service.view, service.scheme
    offer, ceiling, missing = view.offer, view.service.ceiling, unserved(view)
    by = "" if offer.sunset is None else f" by its sunset of {offer.sunset}"
    by += ", suspended" * offer.suspended
    return OfferCard(
        range=offered(offer, scheme),
        phase=offer.phase.value,
        progress=progress(view),
        why=why(service),
        who=_who(service),
        then=_then(view),
        pin="" if view.members.pin is None else scheme.format(view.members.pin),
        ceiling="" if ceiling is None else scheme.format(ceiling),
        notes=tuple(_notes(view.service, service.gateway.now)),
        floor="" if offer.floor is None else scheme.format(offer.floor) + by,
        bars=drawing.bars(offer.versions - missing),
        unserved=drawing.bars(missing),
    )


def _notes(service: Service, now: float) -> Iterator[tuple[str, str]]:
    scheme = service.dialect.scheme
    if service.lifecycle is not None:
        yield "Announced", service.lifecycle.sentence(scheme, now)
    yield from (("Own pace", each.sentence(scheme)) for each in service.paces)
    for bridge in service.bridges:  # a name stays as it is written, so no sentence begins with it
        yield "Bridge", f"client{'s' if len(bridge.clients) > 1 else ''} {bridge.sentence()}"


def progress(view: ServiceView) -> str:
    """Writes an upgrade's progress as `1 of 4 serve 1.90`, for the highest version; empty: no comparison."""
    groups = [group for group in view.members.groups if not group.summary.absent]
    total = sum(group.number for group in groups)
    served = [group.summary.advertised for group in groups if group.summary.advertised]
    if total < 2 or not served or view.offer.transparent:
        return ""
    newest = max(versions.highest for versions in served)
    number = sum(
        group.number for group in groups if group.summary.advertised and newest in group.summary.advertised
    )
    return f"{number} of {total} serve {view.service.dialect.scheme.format(newest)}"


def offered(offer: Offer, scheme: Scheme) -> str:
    """Writes an offer as `1.1-1.58`, `nothing` or `not negotiated`."""
    return NOT_NEGOTIATED if offer.transparent else ranges(offer.versions, scheme)


def why(service: ServiceStatus) -> str:
    """Describes the policy and what holds the offer, in one sentence without a full stop."""
    if service.view.offer.transparent:
        return "every backend in service is legacy: nothing is negotiated, and requests pass unchanged"
    return f"{_policy(service.view.service)}; {held(service) or 'nothing holds it'}"


def _policy(service: Service) -> str:
    match service.policy:
        case Policy.GUARANTEED:
            return "the offer rises to what every backend in service serves"
        case Policy.REACHABLE:
            return "the offer rises to what any backend in service serves"
        case Policy.AT_LEAST:
            least = service.at_least
            number = f"{least.number} %" if least.percent else f"{least.number}"
            return f"the offer rises to what at least {number} of the backends in service serve"
        case _:
            assert_never(service.policy)


def held(service: ServiceStatus) -> str:
    """Describes what holds the offer, or why there is none; empty: nothing holds it."""
    view, now, agreement = service.view, service.gateway.monotonic, service.gateway.agreement
    rule = view.offer.held.rule
    if rule is HeldRule.STABILIZATION:
        return _waits(view, now)
    if rule is HeldRule.AGREEMENT:
        waits = agreement.why_held(service.name) if agreement is not None else ""
        return waits or "the next step waits until all replicas and their workers have acknowledged it"
    if rule is not None:
        return reason_held(view, now)
    return "" if view.offer.is_made else _why_nothing(view.members)


def _why_nothing(members: MemberSet) -> str:
    if not members.all:
        return "there is no backend"
    if all(summary.drained for summary in members.by_summary):
        return "every backend is drained"
    if not any(summary.probed for summary in members.by_summary):
        return "no probe has ended yet"
    if all(summary.advertised is None for summary in members.by_summary):
        return "no backend has reported its versions yet"
    return "the first offer is not made yet"


def _waits(view: ServiceView, now: float) -> str:
    """Describes versions that wait to be offered, without seconds, which would change all the time."""
    scheme, service, ceiling = view.service.dialect.scheme, view.service, view.offer.ceiling
    waiting = [part for part in view.offer_state.pending if part.versions.within(ceiling, None)]
    if any(part.doublings for part in waiting):
        seconds = max(part.due(service.stabilization) for part in waiting) - now
        wait = f"waits up to {duration(seconds)} more because it left the offer before"
    else:
        wait = f"is offered once it has been served for {service.stabilization:g} s"
    versions = union(part.versions for part in waiting).within(ceiling, None)
    return f"{cut(versions.format(scheme))} {wait}"


def _who(service: ServiceStatus) -> tuple[str, ...]:
    names: tuple[str, ...] = service.view.offer.held.by
    if service.view.offer.held.rule is HeldRule.AGREEMENT and service.gateway.agreement is not None:
        names = service.held_by_replicas
    if len(names) <= MAX_WHO:
        return names
    return (*names[:MAX_WHO], f"{len(names) - MAX_WHO} more")


def _then(view: ServiceView) -> str:
    """Versions on offer once nothing holds the offer any more; empty: the same as now."""
    offer, scheme, held = view.offer, view.service.dialect.scheme, view.offer.held
    more = held.versions - offer.versions
    if held.rule in {None, HeldRule.CEILING} or not more:
        return ""
    if held.rule is HeldRule.AGREEMENT:
        after = joined(offer.versions - held.versions, more, scheme) if offer.versions else more
    else:
        after = joined(offer.versions, more, scheme)
    after = after.within(offer.ceiling, offer.floor)
    return "" if after == offer.versions else ranges(after, scheme)
