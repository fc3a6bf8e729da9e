"""Writes one log line for every change of the fleet and its offers.

The lines report which versions a backend serves and how reliable that is, drains, offers, and what holds an
offer back. A subscriber of the snapshot holder, so it also reports what requests have shown. Frequent changes
are summarized (`controlplane.flap_damping`); commands of operators are always logged at once. It logs changes
only, not probes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, TypeAlias, assert_never, final

from gateway.controlplane.flap_damping import BURST, Damped, FlapDamping
from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.doubt import KNOWN_VERSION
from gateway.core.fleet.offer import HeldRule
from gateway.core.fleet.offer_state import advertised_versions, last_reports
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, union
from gateway.core.versions.version import Scheme
from gateway.runtime.timer import Timer
from gateway.telemetry.access_log import printable
from gateway.telemetry.process_log import about, by_operator, outage
from gateway.telemetry.recent import LastHour

_backend_log = logging.getLogger("skewgate.prober")
_offer_log = logging.getLogger("skewgate.offer")

_MAX_NAMED: Final = 4
"""Largest number of backends that a log line names; the others are only counted."""


Line: TypeAlias = tuple[int, str]
"""Level and text of a log line about a backend."""


@final
class ChangeLog:
    """Log of changes of the fleet and its offers. `clock` must be the snapshot holder's; `last_hour` returns
    what a service has served lately, `replicas` what the next step of a service waits for."""

    def __init__(
        self,
        clock: Callable[[], float],
        last_hour: Callable[[str], LastHour],
        replicas: Callable[[str], str] | None = None,
    ) -> None:
        self._replicas = replicas
        """Returns for which replicas a service waits; None: this gateway has no replicas."""
        self._clock = clock
        self._last_hour = last_hour
        self._snapshot: Snapshot | None = None
        """Newest snapshot that this log has received."""
        self._backends = FlapDamping()
        """Damping of log lines about backends, by `Member.key`."""
        self._offers = FlapDamping()
        """Damping of log lines about offered versions, by service."""
        self._holds = FlapDamping()
        """Damping of log lines about the reasons that hold an unchanged offer, by service."""
        self._moving: dict[str, ServiceView] = {}
        """Services whose offer moves in steps, as they were before: one line reports all steps."""
        self._timer = Timer()
        self._started = False

    def start(self, snapshot: Snapshot) -> None:
        """Log the drains and offers in force, and begin to log due summaries, on the running loop."""
        self._started = True
        self.log_initial(snapshot)

    def close(self) -> None:
        """Log the changes that were only counted, so that the last line about everything is true."""
        self._started = False
        self._set_timer()
        now = self._clock()
        for name, before in self._moving.items():
            if self._snapshot is not None and (view := self._snapshot.views.get(name)) is not None:
                self._log_moved(before, view)
        self._moving.clear()
        self._log_damped(*(damping.take_due(now, everything=True) for damping in self._all))

    def log_initial(self, snapshot: Snapshot) -> None:
        """Log the drains and offers at the start: what is configured and what the state file restored."""
        self._snapshot = snapshot
        for view in snapshot.views.values():
            self._log_new_service(view)

    def log_changes(self, before: Snapshot, after: Snapshot) -> None:
        """Log how `after` differs from `before`; a subscriber of the snapshot holder."""
        self._snapshot = after
        if after.routes is not before.routes:  # another configuration
            for name in [name for name in before.views if name not in after.views]:
                self._forget_service(before.views[name])
                # An outage of a removed service is over, or the page's timeline would show it as going on.
                extra = outage(name, begins=False) if _outage(before.views[name]) else about(name)
                _offer_log.info("%s: no longer configured", name, extra=extra)
        for old, view in after.news_since(before):
            if old is None:
                self._log_new_service(view)
            else:
                self._log_service(old, view)

    def log_due(self) -> None:
        """Log summaries of changes that were only counted and are due now."""
        now = self._clock()
        self._log_damped(*(damping.take_due(now) for damping in self._all))
        self._set_timer()

    @property
    def _all(self) -> tuple[FlapDamping, FlapDamping, FlapDamping]:
        return self._backends, self._offers, self._holds

    def _set_timer(self) -> None:
        self._timer.cancel()
        due = min((due for damping in self._all if (due := damping.next_due) is not None), default=None)
        if due is not None and self._started:
            self._timer.set(due - self._clock(), self.log_due)

    def _log_new_service(self, view: ServiceView) -> None:
        for member in view.members.all:
            _log_drain(None, member, view)
        limits = [text for text in _limits(view) if text not in _NO_LIMITS]
        self._write_offer_line(view, [*limits, f"offer {_offered(view)}"])
        _log_suspended(None, view)
        _log_skew(None, view)

    def _log_service(self, before: ServiceView, view: ServiceView) -> None:
        scheme = view.service.dialect.scheme
        if before.service is not view.service:
            self._log_removed_backends(before, view)
        for old, member in view.members.news_since(before.members):
            lines = [
                *_advertisement_or_freshness(old, member, scheme),
                *_suspicion(old, member, scheme),
                *_unknown_version(old, member, scheme),
                *_health(old, member),
            ]
            if lines and self._may_log(self._backends, member.key):
                for level, text in lines:
                    _backend_log.log(level, "%s: %s", member.key, text, extra=about(member.key))
            _log_drain(old, member, view)
        moved_from = self._moving.pop(view.service.name, before)
        if view.offer.moving:
            self._moving[view.service.name] = moved_from
        else:
            self._log_moved(moved_from, view)
        _log_outage(before, view)
        _log_suspended(before, view)
        _log_skew(before, view)

    def _log_removed_backends(self, before: ServiceView, view: ServiceView) -> None:
        for member in before.members.all:
            if view.members.member(member.backend.name) is None:
                self._backends.forget(member.key)
                drain = ", its drain is forgotten" if member.drained else ""
                if drain or not member.backend.source:  # `discovery` logs backends that come and go
                    about_it = about(member.key)
                    _backend_log.info("%s: no longer configured%s", member.key, drain, extra=about_it)

    def _log_moved(self, before: ServiceView, view: ServiceView) -> None:
        if _offer_facts(before) == _offer_facts(view):
            return
        old, new = _offered(before), _offered(view)
        limits = [text for text in _limits(view) if text not in _limits(before)]
        if not limits:  # an operator's change is logged at once
            damping = self._holds if old == new else self._offers
            # Every backend of a fleet may change the offer in turn.
            if not self._may_log(damping, view.service.name, len(view.members.all)):
                return
        changes = [f"offer {new}" if old == new else f"offer {old} -> {new}"]
        unpinned = ["unpinned"] if before.offer.pinned and not view.offer.pinned else []
        old_members, members, warning = before.members, view.members, self._lower_maximum(before, view)
        raised = old_members.raised.floor != members.raised.floor and view.offer.sunset is None
        commanded = raised or old_members.pin != members.pin
        self._write_offer_line(view, [*unpinned, *limits, *changes], warning, commanded=commanded)
        if flapping := _flapping(before, view):
            _offer_log.warning("%s: %s", view.service.name, flapping, extra=about(view.service.name))

    def _may_log(self, damping: FlapDamping, key: str, backends: int = 1) -> bool:
        if damping.change(key, self._clock(), BURST * backends):
            return True
        self._set_timer()
        return False

    def _forget_service(self, view: ServiceView) -> None:
        for member in view.members.all:
            self._backends.forget(member.key)
        self._offers.forget(view.service.name)
        self._holds.forget(view.service.name)
        self._moving.pop(view.service.name, None)

    def _log_damped(
        self, backends: Iterable[Damped], offers: Iterable[Damped], holds: Iterable[Damped]
    ) -> None:
        views = self._snapshot.views if self._snapshot is not None else {}
        for damped in backends:
            service, _, name = damped.key.partition("/")
            if (view := views.get(service)) is not None and (member := view.members.member(name)) is not None:
                state = _state(member, view.service.dialect.scheme)
                text = f"{damped}, now {state}"
                _backend_log.warning("%s: %s", member.key, text, extra=about(member.key))
        for damped in chain(offers, holds):  # one after the other: a line about an offer has all of it
            if (view := views.get(damped.key)) is not None:
                self._write_offer_line(view, [f"offer {_offered(view)}"], warning=str(damped))

    def _write_offer_line(
        self, view: ServiceView, changes: list[str], warning: str = "", *, commanded: bool = False
    ) -> None:
        """Write a log line with the whole state of an offer, which replaces all summaries."""
        for damping in (self._offers, self._holds):
            damping.clear(view.service.name, self._clock())
        level = logging.WARNING if warning else logging.INFO
        if is_blocked(view):
            level = logging.ERROR
        name = view.service.name
        if view.offer.held.rule is not HeldRule.AGREEMENT:
            held = reason_held(view, self._clock())
        elif self._replicas is None:
            held = "some workers, or another process that still serves, have not acknowledged it yet"
        else:
            held = self._replicas(name) or "other replicas, or their workers, have not acknowledged it yet"
        parts = [", ".join([*changes, f"phase {view.offer.phase}"]), warning, held]
        extra = by_operator(name) if commanded else about(name)
        _offer_log.log(level, "%s: %s", name, "; ".join(filter(None, parts)), extra=extra)

    def _lower_maximum(self, before: ServiceView, view: ServiceView) -> str:
        """Describe why the offer's maximum fell (UPGRADE-back-late), if not by its ceiling; else empty."""
        pairs = (
            (before.offer.versions, view.offer.versions),
            (before.offer_state.versions, view.offer_state.versions),
        )
        if not all(old and new and new.highest < old.highest for old, new in pairs):
            return ""
        scheme, highest = view.service.dialect.scheme, view.offer.versions.highest
        hour = self._last_hour(view.service.name)
        above = hour.requests(scheme, lambda version: version > highest)
        requests = f"{above} request{'' if above == 1 else 's'} above {scheme.format(highest)}"
        since = "in the last hour" if hour.is_whole else "since the start"
        gone = before.offer.versions - view.offer_state.versions
        why = (
            f"the policy no longer gives {gone.format(scheme)}"
            if gone & last_reports(view.members)
            else f"no backend serves {gone.format(scheme)} any more"
        )
        return f"{why}, requests for these versions are refused now; {requests} served {since}"


def _advertisement_or_freshness(before: Member | None, member: Member, scheme: Scheme) -> Iterator[Line]:
    freshness_before = before.freshness if before is not None else Freshness.UNKNOWN
    if before is not None and before.advertisement != member.advertisement:
        old = f"{_served_versions(before, scheme)} -> " if before.advertisement else ""
        new = _served_versions(member, scheme)
        yield logging.INFO, f"serves {old}{new}, {member.freshness}"
    elif freshness_before is not member.freshness:
        if member.freshness is Freshness.FRESH:
            yield logging.INFO, f"answers again, serves {_served_versions(member, scheme)}"
        elif member.freshness is not Freshness.UNKNOWN:
            yield logging.WARNING, _freshness(member, scheme)
    first_failure = member.failures == 1 and (before is None or not before.failures)
    if member.freshness is Freshness.UNKNOWN and first_failure:
        yield logging.WARNING, _freshness(member, scheme)


def _freshness(member: Member, scheme: Scheme) -> str:
    error = printable(member.error or "no reason was given")
    match member.freshness:
        case Freshness.FRESH:
            return f"fresh, serves {_served_versions(member, scheme)}"
        case Freshness.STALE:
            return f"stale (probe failed): {error}"
        case Freshness.DOWN:
            down = "down (3 failed probes), used only as a last resort"
            return f"{down}; check {member.backend.url}: {error}"
        case Freshness.UNKNOWN:
            return f"gets no requests, its versions are unknown; check {member.backend.url}: {error}"
        case _:
            assert_never(member.freshness)


def _suspicion(before: Member | None, member: Member, scheme: Scheme) -> Iterator[Line]:
    if member.connect_failed and not (before is not None and before.connect_failed):
        yield logging.WARNING, _connect_failed(member)
    mismatched = member.mismatched - (before.mismatched if before is not None else NO_VERSIONS)
    if mismatched:
        yield logging.ERROR, _mismatched(member, mismatched, scheme)


def _connect_failed(member: Member) -> str:
    check = f"{member.backend.url}{': ' if member.connect_error else ''}{member.connect_error}"
    return f"a request could not connect, used only as a last resort {_until(member)}; check {check}"


def _mismatched(member: Member, versions: VersionSet, scheme: Scheme) -> str:
    return (
        f"served another version than the requested {versions.format(scheme)}, "
        f"gets no requests at that version {_until(member)}; check whether two servers share "
        f"{member.backend.url}, and whether anything on the way rewrites version headers"
    )


def _until(member: Member) -> str:
    return "until a probe answers" if member.backend.declared is None else "for a while"


def _unknown_version(before: Member | None, member: Member, scheme: Scheme) -> Iterator[Line]:
    was, now = before.unknown_version if before is not None else KNOWN_VERSION, member.unknown_version
    if now.holds and (not was.holds or now.legacy_answers > was.legacy_answers):
        yield logging.WARNING, _version_unknown(member)
    elif was.holds and not now.holds and before is not None and before.advertisement == member.advertisement:
        yield logging.INFO, f"reports its versions again, serves {_served_versions(member, scheme)}"


_UNHEALTHY: Final = ": gets no new requests while another backend that serves the version is usable"


def _health(before: Member | None, member: Member) -> Iterator[Line]:
    was = before.unhealthy if before is not None else None
    if member.unhealthy is not None and member.unhealthy != was:
        yield logging.WARNING, f"{member.unhealthy}{_UNHEALTHY}"
    elif was is not None and member.unhealthy is None:
        yield logging.INFO, "its health check passes again"


def _version_unknown(member: Member) -> str:
    return f"{member.error}; gets no negotiated requests, check what answers at {member.backend.url}"


def _state(member: Member, scheme: Scheme) -> str:
    """Describe all that is known of a backend, for a log line that replaces several."""
    parts = [_freshness(member, scheme)]
    if member.version_unknown:
        parts.append(_version_unknown(member))
    if member.connect_failed:
        parts.append(_connect_failed(member))
    if member.unhealthy is not None:
        parts.append(f"{member.unhealthy}{_UNHEALTHY}")
    if member.mismatched:
        parts.append(_mismatched(member, member.mismatched, scheme))
    return "; ".join(parts)


def _log_drain(before: Member | None, member: Member, view: ServiceView) -> None:
    if member.drained_by == (None if before is None else before.drained_by):
        return
    if not member.drained:
        _backend_log.info("%s: in service again", member.key, extra=by_operator(member.key))
        return
    by = f" by {member.drained_by}" if member.drained_by else ""
    line = f"{member.key}: drained{by}, gets no new requests; `skewgate enable {member.key}` puts it back"
    level = logging.INFO
    if all(other.drained for other in view.members.all):
        line += f"; no backend of {view.service.name} is left in service"
        level = logging.WARNING
    _backend_log.log(level, "%s", line, extra=by_operator(member.key))


def _served_versions(member: Member, scheme: Scheme) -> str:
    """Describe the versions of a backend: `1.1-1.58`, `1.1 (legacy)`, or `none` before anything is known."""
    if member.advertisement is None:
        return "none"
    return member.advertisement.versions.format(scheme) + (" (legacy)" if member.legacy else "")


def _offer_facts(view: ServiceView) -> tuple[object, ...]:
    """All values that a log line about an offer depends on: while they are equal, no line is due."""
    offer = view.offer
    limits = offer.ceiling, offer.pinned, offer.floor, offer.raised, offer.sunset
    facts = offer.versions, offer.phase, offer.transparent, limits, offer.held.rule
    if offer.held.rule is HeldRule.CEILING:
        # The line then names what the ceiling hides, not who differs: in an upgrade every backend does.
        return (*facts, view.offer_state.versions)
    return (*facts, offer.held.by, offer.pending)


def _offered(view: ServiceView) -> str:
    """Describe an offer: `1.1-1.58`, `none`, or that nothing is negotiated."""
    if view.offer.transparent:
        return "transparent (every backend is legacy)"
    return view.offer.versions.format(view.service.dialect.scheme)


def _limits(view: ServiceView) -> tuple[str, str]:
    """Describe the ceiling and the floor."""
    offer, scheme = view.offer, view.service.dialect.scheme
    ceiling, floor = _NO_LIMITS
    if offer.ceiling is not None:
        ceiling = f"{'pinned to' if offer.pinned else 'configured ceiling'} {scheme.format(offer.ceiling)}"
    if offer.floor is not None:
        by = "" if offer.sunset is None else f" by its sunset of {offer.sunset}"
        floor = f"{'raised to' if offer.raised else 'configured floor'} {scheme.format(offer.floor)}{by}"
    return ceiling, floor


_NO_LIMITS: Final = ("no ceiling", "no floor")


def _log_suspended(before: ServiceView | None, view: ServiceView) -> None:
    """Log when a floor is suspended, and when it holds again."""
    was, offer, name = before is not None and before.offer.suspended, view.offer, view.service.name
    if offer.suspended is was:
        return
    if offer.suspended and offer.floor is not None:
        floor = view.service.dialect.scheme.format(offer.floor)
        text = f"the floor {floor} is suspended: all versions that could be on offer are beneath it"
        _offer_log.error("%s: %s", name, text, extra=about(name))
    else:
        _offer_log.info("%s: the floor is not suspended any more", name, extra=about(name))


def _log_skew(before: ServiceView | None, view: ServiceView) -> None:
    """Log when releases in service get too far apart, and when they are not any more."""
    was, problem = (each.skew.problem if each and each.skew else None for each in (before, view))
    if problem != was:
        level, name = logging.WARNING if problem else logging.INFO, view.service.name
        _offer_log.log(level, "%s: %s", name, problem or "no release is too new any more", extra=about(name))


def _flapping(before: ServiceView, view: ServiceView) -> str:
    """Describe versions that left the offer repeatedly, and who serves them no more; empty: none."""
    left = before.offer_state.versions - view.offer_state.versions
    fallen = left - last_reports(view.members)
    again = [(part, doublings) for part, doublings in view.offer_state.falls.split(fallen) if doublings > 1]
    versions = VersionSet.of(one for part, _ in again for one in part.ranges)
    members = [
        member
        for old, member in view.members.news_since(before.members)
        if old is not None and versions & (advertised_versions(old) - advertised_versions(member))
    ]
    if not members:
        return ""
    seconds = view.service.stabilization * 2.0 ** max(doublings for _, doublings in again)
    text = versions.format(view.service.dialect.scheme)
    return (
        f"{text} left the offer again and will wait {seconds:.3g} s once it is back; no longer served by "
        f"{_names(members, view)}: check whether it flaps, or two servers share its address"
    )


def unserved(view: ServiceView) -> VersionSet:
    """Versions on offer that no backend can serve now: all that advertise them are down or drained."""
    summaries = (group.summary for group in view.members.groups)
    answering = (each for each in summaries if each.in_service and each.freshness is not Freshness.DOWN)
    return view.offer.versions - union(each.usable for each in answering)


def why_unserved(view: ServiceView, versions: VersionSet) -> str:
    """Describe why no backend can serve `versions`: `all backends for 1.1 are down: requests get 503`."""
    summaries = [group.summary for group in view.members.groups]
    owners = [each for each in summaries if each.advertised is not None and each.advertised & versions]
    text = versions.format(view.service.dialect.scheme)
    if owners and all(each.drained for each in owners):
        return f"all backends for {text} are drained: requests get 503"
    if owners and all(each.drained or each.freshness is Freshness.DOWN for each in owners):
        return f"all backends for {text} are down: requests get 503"
    return f"no backend can serve {text} now: requests get 503"


def _outage(view: ServiceView) -> VersionSet:
    """Versions on offer that no backend can serve; none before the first probes after a start have ended."""
    if view.offer.transparent or any(group.summary.restored for group in view.members.groups):
        return NO_VERSIONS
    return unserved(view)


def _log_outage(before: ServiceView, view: ServiceView) -> None:
    was, now = _outage(before), _outage(view)
    name = view.service.name
    if now and now != was:
        _offer_log.error("%s: %s", name, why_unserved(view, now), extra=outage(name, begins=True))
    elif was and not now:
        again = (was & view.offer.versions).format(view.service.dialect.scheme)
        text = f"{again} is served again" if was & view.offer.versions else "what is on offer is served again"
        _offer_log.info("%s: %s", name, text, extra=outage(name, begins=False))


def is_blocked(view: ServiceView) -> bool:
    """Whether a ceiling below the minimum leaves nothing to offer."""
    ceiling, beneath = view.offer.ceiling, view.offer_state.versions
    return ceiling is not None and bool(beneath) and not beneath.up_to(ceiling)


def reason_held(view: ServiceView, now: float) -> str:
    """Describe what holds the offer where it is, and what an operator can do about it; empty: nothing does.
    `now`: seconds of the clock by which offers stabilize."""
    if is_blocked(view):
        return _blocked_by_ceiling(view)
    match view.offer.held.rule:
        case HeldRule.CEILING if view.offer.pinned:
            offers = _offer_without_pin(view).format(view.service.dialect.scheme)
            return f"held by the pin; `skewgate unpin {view.service.name}` offers {offers}"
        case HeldRule.CEILING:
            offered = view.offer_state.versions.within(None, view.offer.floor)
            without = offered.format(view.service.dialect.scheme)
            return f"held by offer.ceiling; without it the offer is {without}"
        case HeldRule.STABILIZATION:
            return _held_by_stabilization(view, now)
        case HeldRule.STATE | HeldRule.GUARANTEED | HeldRule.AT_LEAST:
            return _held_by_backends(view)
        case HeldRule.AGREEMENT | None:
            return ""  # the change log knows the replicas
        case _:
            assert_never(view.offer.held.rule)


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
    if not view.offer.pinned:
        return NO_VERSIONS
    beneath, configured = view.offer_state.versions, view.service.ceiling
    return beneath.within(configured, view.offer.floor)


def _held_by_stabilization(view: ServiceView, now: float) -> str:
    scheme, ceiling = view.service.dialect.scheme, view.offer.ceiling
    limit = "the pin" if view.offer.pinned else "offer.ceiling"
    parts = []
    for pending in view.offer_state.pending:
        seconds = max(0.0, pending.since + view.service.stabilization - now)
        below = pending.versions.within(ceiling, None)
        if below:
            parts.append(f"{below.format(scheme)} will be offered in {seconds:.3g} s")
        if above := pending.versions - below:
            parts.append(f"{above.format(scheme)} could be offered in {seconds:.3g} s without {limit}")
    return f"{', '.join(parts)}, unless the fleet changes"


def _held_by_backends(view: ServiceView) -> str:
    held = view.offer.held
    versions = held.versions.format(view.service.dialect.scheme)
    by = frozenset(held.by)
    members = [member for member in view.members.all if member.backend.name in by]
    names = _names(members, view)
    if not held.versions <= view.offer.versions:
        if not members:
            return f"{versions} is not offered, it would leave a gap"
        advice = "upgrade or remove" if held.rule is HeldRule.STATE else "upgrade or drain"
        return f"{versions} is held back by {names}: {advice}"
    if not members:
        return f"{versions} stays on offer, no known backend serves it"
    if all(held.versions & advertised_versions(member) for member in members):
        return f"{versions} stays on offer because {names} last reported it: bring back, upgrade or remove"
    return f"{versions} stays on offer although it is not served by {names}: upgrade or drain"


def _names(members: Sequence[Member], view: ServiceView) -> str:
    """List backends with their versions: `api-1 (1.1-1.58) and api-2 (1.1-1.90)`."""
    scheme = view.service.dialect.scheme
    texts = [
        f"{member.backend.name} ({advertised_versions(member).format(scheme)}"
        f"{', leaving' if member.backend.leaving else ''})"
        for member in members[:_MAX_NAMED]
    ]
    if len(members) > _MAX_NAMED:
        texts.append(f"{len(members) - _MAX_NAMED} more")
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
