"""Writes one log line for every change of the fleet and its offers.

The lines report which versions a backend serves and how far that can be relied on, who is drained, what is
offered, and what holds the offer where it is. A subscriber of the snapshot holder, so it also reports what
requests brought. It logs changes only, not probes, and it changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, assert_never, final

from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.doubt import KNOWN_VERSION
from gateway.core.fleet.offer import HeldRule
from gateway.core.fleet.offer_state import advertised_versions, reachable_versions
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Scheme, Version
from gateway.telemetry.access_log import printable
from gateway.telemetry.recent import SPAN, LastHour

_backend_log = logging.getLogger("skewgate.prober")
_offer_log = logging.getLogger("skewgate.offer")

_MAX_NAMED: Final = 4
"""Backends that a line names; the others are only counted."""

_WHOLE_HOUR: Final = 0.98 * SPAN
"""Seconds from which on counts are called those of the last hour: samples are taken once a minute."""


@final
class ChangeLog:
    """Writes the lines. `clock` must be the snapshot holder's; `last_hour` returns what a service has served
    lately."""

    def __init__(self, clock: Callable[[], float], last_hour: Callable[[str], LastHour]) -> None:
        self._clock = clock
        self._last_hour = last_hour

    def log_initial(self, snapshot: Snapshot) -> None:
        """Log what is in force at the start: what the configuration declares and the state file restored."""
        for view in snapshot.views.values():
            self._log_new_service(view)

    def log_changes(self, before: Snapshot, after: Snapshot) -> None:
        """Log how `after` differs from `before`; a subscriber of the snapshot holder."""
        for name in before.views:
            if name not in after.views:
                _offer_log.info("%s: no longer configured", name)
        for name, view in after.views.items():
            old = before.views.get(name)
            if old is None:
                self._log_new_service(view)
            elif old is not view:
                self._log_service(old, view)

    def _log_new_service(self, view: ServiceView) -> None:
        for member in view.pool.members:
            _log_drain(None, member, view)
        ceiling = [_ceiling(view)] if view.offer.ceiling is not None else []
        self._write_offer_line(view, [*ceiling, f"offer {_offered(view)}"])

    def _log_service(self, before: ServiceView, view: ServiceView) -> None:
        scheme = view.service.dialect.scheme
        _log_removed_backends(before, view)
        for member in view.pool.members:
            old = before.pool.member(member.backend.name)
            _log_advertisement_or_freshness(old, member, scheme)
            _log_suspicion(old, member, scheme)
            _log_unknown_version(old, member, scheme)
            _log_drain(old, member, view)
        self._log_offer(before, view)

    def _log_offer(self, before: ServiceView, view: ServiceView) -> None:
        """The offer, the phase of the upgrade, the ceiling or what holds the offer changed."""
        if _offer_facts(before) == _offer_facts(view):
            return
        old, new = _offered(before), _offered(view)
        changes = [f"offer {new}" if old == new else f"offer {old} -> {new}"]
        if _ceiling(before) != _ceiling(view):
            unpinned = ["unpinned"] if before.offer.pinned and not view.offer.pinned else []
            changes = [*unpinned, _ceiling(view), *changes]
        self._write_offer_line(view, changes, warning=self._lower_maximum(before, view))
        if flapping := _flapping(before, view):
            _offer_log.warning("%s: %s", view.service.name, flapping)

    def _write_offer_line(self, view: ServiceView, changes: list[str], warning: str = "") -> None:
        level = logging.WARNING if warning else logging.INFO
        if _is_blocked(view):
            level = logging.ERROR
        parts = [
            ", ".join([*changes, f"phase {view.offer.phase}"]),
            warning,
            _reason_held(view, self._clock()),
        ]
        _offer_log.log(level, "%s: %s", view.service.name, "; ".join(filter(None, parts)))

    def _lower_maximum(self, before: ServiceView, view: ServiceView) -> str:
        """How many requests are refused now because the maximum fell (UPGRADE-back-late). Empty while it
        stands, or a ceiling alone has lowered it."""
        if not _maximum_fell(before, view):
            return ""
        scheme, highest = view.service.dialect.scheme, view.offer.versions.highest
        hour = self._last_hour(view.service.name)
        above = sum(count for text, count in hour.served.items() if _is_above(highest, text, scheme))
        requests = f"{above} request{'' if above == 1 else 's'} above {scheme.format(highest)}"
        since = "in the last hour" if hour.seconds >= _WHOLE_HOUR else "since the start"
        gone = before.offer.versions - view.offer_state.versions
        why = (
            f"{gone.format(scheme)} is not what the policy gives"
            if gone & reachable_versions(view.pool.members)
            else f"no backend serves {gone.format(scheme)} any more"
        )
        return f"{why}, requests for these versions are refused now; {requests} served {since}"


# --- backends ---------------------------------------------------------------------------------------------


def _log_advertisement_or_freshness(before: Member | None, member: Member, scheme: Scheme) -> None:
    """What probes and responses changed: the advertisement, or how far it can be relied on."""
    freshness_before = before.freshness if before is not None else Freshness.UNKNOWN
    if before is not None and before.advertisement != member.advertisement:
        old = f"{_served_versions(before, scheme)} -> " if before.advertisement else ""
        _backend_log.info(
            "%s: serves %s%s, %s", member.key, old, _served_versions(member, scheme), member.freshness
        )
    elif freshness_before is not member.freshness:
        _log_freshness(member, scheme)
    first_failure = member.failures == 1 and (before is None or not before.failures)
    if member.freshness is Freshness.UNKNOWN and first_failure:
        _backend_log.warning(
            "%s: gets no requests, its versions are unknown; check %s: %s",
            *(member.key, member.backend.url, _probe_error(member)),
        )


def _log_freshness(member: Member, scheme: Scheme) -> None:
    match member.freshness:
        case Freshness.FRESH:
            _backend_log.info("%s: answers again, serves %s", member.key, _served_versions(member, scheme))
        case Freshness.STALE:
            _backend_log.warning("%s: stale, its last probe failed: %s", member.key, _probe_error(member))
        case Freshness.LOST:
            _backend_log.warning(
                "%s: lost after three failed probes, tried last until it answers; check %s: %s",
                *(member.key, member.backend.url, _probe_error(member)),
            )
        case Freshness.UNKNOWN:
            pass
        case _:
            assert_never(member.freshness)


def _log_suspicion(before: Member | None, member: Member, scheme: Scheme) -> None:
    """What requests found that no probe reports."""
    until = "until a probe answers" if member.backend.declared is None else "for a while"
    if member.connect_failed and not (before is not None and before.connect_failed):
        _backend_log.warning(
            "%s: a request could not connect to it, tried last %s; check %s",
            *(member.key, until, member.backend.url),
        )
    mismatched = member.mismatched - (before.mismatched if before is not None else NO_VERSIONS)
    if mismatched:
        _backend_log.error(
            "%s: served another version than the requested %s, gets no requests at that version %s; "
            "check whether two servers share %s, and whether anything on the way rewrites version headers",
            *(member.key, mismatched.format(scheme), until, member.backend.url),
        )


def _log_unknown_version(before: Member | None, member: Member, scheme: Scheme) -> None:
    """A response or a legacy answer has shown that an older server may run there, or versions came again."""
    was, now = before.unknown_version if before is not None else KNOWN_VERSION, member.unknown_version
    if now.holds and (not was.holds or now.legacy_answers > was.legacy_answers):
        _backend_log.warning(
            "%s: %s; gets no negotiated requests, check what answers at %s",
            *(member.key, member.error, member.backend.url),
        )
    elif was.holds and not now.holds and before is not None and before.advertisement == member.advertisement:
        _backend_log.info(
            "%s: shows its versions again, serves %s", member.key, _served_versions(member, scheme)
        )


def _log_drain(before: Member | None, member: Member, view: ServiceView) -> None:
    """An operator took it out of service, or put it back."""
    if member.drained == (before is not None and before.drained):
        return
    if not member.drained:
        _backend_log.info("%s: in service again", member.key)
        return
    line = f"{member.key}: drained, gets no new requests; `skewgate enable {member.key}` puts it back"
    if all(other.drained for other in view.pool.members):
        _backend_log.warning("%s; no backend of %s is left in service", line, view.service.name)
    else:
        _backend_log.info("%s", line)


def _log_removed_backends(before: ServiceView, view: ServiceView) -> None:
    """A reload took them away."""
    for member in before.pool.members:
        if view.pool.member(member.backend.name) is None:
            drain = ", its drain is forgotten" if member.drained else ""
            _backend_log.info("%s: no longer configured%s", member.key, drain)


def _served_versions(member: Member, scheme: Scheme) -> str:
    """`1.1-1.58`, `1.1 (legacy)`, or `none` before anything is known."""
    if member.advertisement is None:
        return "none"
    return member.advertisement.versions.format(scheme) + (" (legacy)" if member.legacy else "")


def _probe_error(member: Member) -> str:
    return printable(member.error or "no reason was given")


# --- offers -----------------------------------------------------------------------------------------------


def _offer_facts(view: ServiceView) -> tuple[object, ...]:
    """All that a line about an offer depends on: while it is the same, no line is due."""
    offer = view.offer
    facts = offer.versions, offer.phase, offer.transparent, offer.ceiling, offer.pinned, offer.held_rule
    if offer.held_rule is HeldRule.CEILING:
        # The line then names what the ceiling hides, not who differs: in an upgrade every backend does.
        return (*facts, view.offer_state.versions)
    return (*facts, offer.held_by, offer.pending)


def _offered(view: ServiceView) -> str:
    """`1.1-1.58`, `none`, or that nothing is negotiated."""
    if view.offer.transparent:
        return "transparent (every backend is legacy)"
    return view.offer.versions.format(view.service.dialect.scheme)


def _ceiling(view: ServiceView) -> str:
    """The ceiling in force."""
    offer = view.offer
    if offer.ceiling is None:
        return "no ceiling"
    version = view.service.dialect.scheme.format(offer.ceiling)
    return f"pinned to {version}" if offer.pinned else f"configured ceiling {version}"


def _flapping(before: ServiceView, view: ServiceView) -> str:
    """Which versions fell that had fallen before, and who no longer serves them; empty if none did."""
    left = before.offer_state.versions - view.offer_state.versions
    fallen = left - reachable_versions(view.pool.members)
    again = [(part, doublings) for part, doublings in view.offer_state.falls.split(fallen) if doublings > 1]
    versions = VersionSet.of(one for part, _ in again for one in part.ranges)
    members = [
        member
        for member in view.pool.members
        if (old := before.pool.member(member.backend.name)) is not None
        and versions & (advertised_versions(old) - advertised_versions(member))
    ]
    if not members:
        return ""
    seconds = view.service.stabilization * 2.0 ** max(doublings for _, doublings in again)
    text = versions.format(view.service.dialect.scheme)
    return (
        f"{text} fell again and waits {seconds:.3g} s when it is back; no longer served by "
        f"{_names(members, view)}: check whether it flaps, or two servers share its address"
    )


def _maximum_fell(before: ServiceView, view: ServiceView) -> bool:
    """The maximum is lower, and not by a ceiling alone."""
    pairs = (
        (before.offer.versions, view.offer.versions),
        (before.offer_state.versions, view.offer_state.versions),
    )
    return all(old and new and new.highest < old.highest for old, new in pairs)


def _is_above(highest: Version, text: str, scheme: Scheme) -> bool:
    version = scheme.parse(text)
    return version is not None and version > highest


def _is_blocked(view: ServiceView) -> bool:
    """True: a ceiling below the minimum leaves nothing to offer."""
    return bool(view.offer_state.versions) and not view.offer.versions


def _reason_held(view: ServiceView, now: float) -> str:
    """What holds the offer where it is, and what an operator can do about it; empty if nothing holds it.
    `now`: seconds of the clock by which offers stabilize."""
    if _is_blocked(view):
        return _blocked_by_ceiling(view)
    match view.offer.held_rule:
        case HeldRule.CEILING:
            return _held_by_ceiling(view)
        case HeldRule.STABILIZATION:
            return _held_by_stabilization(view, now)
        case HeldRule.STATE | HeldRule.GUARANTEED | HeldRule.AT_LEAST:
            return _held_by_backends(view)
        case None:
            return ""
        case _:
            assert_never(view.offer.held_rule)


def _blocked_by_ceiling(view: ServiceView) -> str:
    scheme, beneath = view.service.dialect.scheme, view.offer_state.versions
    unpinned = _offer_without_pin(view)
    advice = (
        f"`skewgate unpin {view.service.name}` offers {unpinned.format(scheme)}"
        if unpinned
        else f"`skewgate pin {view.service.name} {scheme.format(beneath.highest)}` offers "
        f"{beneath.format(scheme)}"
    )
    return f"the ceiling is below the minimum {scheme.format(beneath.lowest)}, requests get 503; {advice}"


def _offer_without_pin(view: ServiceView) -> VersionSet:
    """What `unpin` would offer; empty if there is no pin."""
    if not view.offer.pinned:
        return NO_VERSIONS
    beneath, configured = view.offer_state.versions, view.service.ceiling
    return beneath if configured is None else beneath.up_to(configured)


def _held_by_ceiling(view: ServiceView) -> str:
    scheme, name = view.service.dialect.scheme, view.service.name
    if view.offer.pinned:
        return f"held by the pin; `skewgate unpin {name}` offers {_offer_without_pin(view).format(scheme)}"
    return f"held by offer.ceiling; without it the offer is {view.offer_state.versions.format(scheme)}"


def _held_by_stabilization(view: ServiceView, now: float) -> str:
    scheme, ceiling = view.service.dialect.scheme, view.offer.ceiling
    limit = "the pin" if view.offer.pinned else "offer.ceiling"
    parts = []
    for pending in view.offer_state.pending:
        seconds = max(0.0, pending.since + view.service.stabilization - now)
        below = pending.versions if ceiling is None else pending.versions.up_to(ceiling)
        if below:
            parts.append(f"{below.format(scheme)} will be offered in {seconds:.3g} s")
        if above := pending.versions - below:
            parts.append(f"{above.format(scheme)} could be offered in {seconds:.3g} s without {limit}")
    return f"{', '.join(parts)}, unless the fleet changes"


def _held_by_backends(view: ServiceView) -> str:
    """Whom an operator must upgrade, revive or remove for the offer to move: as in `/status`."""
    held = view.offer.held
    versions = held.versions.format(view.service.dialect.scheme)
    by = frozenset(held.by)
    members = [member for member in view.pool.members if member.backend.name in by]
    names = _names(members, view)
    if not held.versions <= view.offer.versions:
        if not members:
            return f"{versions} is not offered, it would leave a gap"
        advice = "upgrade or remove" if held.rule is HeldRule.STATE else "upgrade or drain"
        return f"{versions} is held back by {names}: {advice}"
    if not members:
        return f"{versions} stays on offer, nobody is known to serve it"
    if all(held.versions & advertised_versions(member) for member in members):
        return f"{versions} stays on offer by the last word of {names}: revive, upgrade or remove"
    return f"{versions} stays on offer although it is not served by {names}: upgrade or drain"


def _names(members: Sequence[Member], view: ServiceView) -> str:
    """`api-1 (1.1-1.58) and api-2 (1.1-1.90)`."""
    scheme = view.service.dialect.scheme
    texts = [
        f"{member.backend.name} ({advertised_versions(member).format(scheme)})"
        for member in members[:_MAX_NAMED]
    ]
    if len(members) > _MAX_NAMED:
        texts.append(f"{len(members) - _MAX_NAMED} more")
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
