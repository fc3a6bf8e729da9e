"""Texts about the effects of an operator's command: for the operations page before it, and as the warning of
the endpoints after it.

The view after the command is computed by the rules that the command itself follows, and compared with the
present one, so the text is true. Pure: a view and the last hour's counts in, one text out, whose parts are
separated by `; `.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.fleet import Drain, Fleet, OperatorCommand, Pin
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.offer_state import policy_set
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, joined
from gateway.core.versions.version import Version
from gateway.telemetry.recent import LastHour

NOTHING: Final = "nothing changes"
"""First words of a text about a command that changes nothing a client can notice now."""


def beneath(view: ServiceView) -> VersionSet:
    """Returns the versions that would be on offer without a ceiling."""
    return _state(view).within(None, view.offer.floor)


def above_maximum(view: ServiceView, floor: Version, now: float) -> str | None:
    """Returns why a floor is refused; None: it is not. `now`: seconds since the epoch."""
    versions, scheme = _state(view).within(view.offer.ceiling, None), view.service.dialect.scheme
    own = [
        (f"of {', '.join(pace.clients)} (`offer.for`)", versions.up_to(pace.ceiling))
        for pace in view.service.paces
        if now < pace.ends_at
    ]
    for whose, found in (("on offer", versions), *own):
        if found and floor > found.highest:
            return (
                f"the floor {scheme.format(floor)} is above the maximum "
                f"{scheme.format(found.highest)} {whose}: nothing could be served"
            )
    return None


def refuses_unversioned(service: Service, floor: Version) -> str | None:
    """Returns why a floor needs the operator's word about requests without a version; None: it does not."""
    scheme, version = service.dialect.scheme, service.written_for
    if version is None or version >= floor:
        return None
    return (
        f"clients that name no version rely on {scheme.format(version)}, which is beneath the floor "
        f"{scheme.format(floor)}: set `default_version`, or confirm it (`--yes`, `?yes`)"
    )


def _state(view: ServiceView) -> VersionSet:
    """Returns the versions that would be on offer without ceiling and floor."""
    if view.agreed is None or not view.agreed.voting:
        return view.offer_state.versions
    return NO_VERSIONS if view.agreed.record is None else view.agreed.record.state


def below_minimum(view: ServiceView, ceiling: Version) -> str | None:
    """Returns why a pin to `ceiling` is refused; None: it is not."""
    versions, scheme = beneath(view), view.service.dialect.scheme
    if not versions or ceiling >= versions.lowest:
        return None
    return (
        f"the ceiling {scheme.format(ceiling)} is below the minimum "
        f"{scheme.format(versions.lowest)} on offer: nothing could be served"
    )


def hides_nothing(view: ServiceView, pin: Version | None) -> str | None:
    """Warns of a pin above all known versions, which has no effect and may be a mistake."""
    known = beneath(view) | view.offer.reachable
    if pin is None or not known or pin <= known.highest:
        return None
    scheme = view.service.dialect.scheme
    return (
        f"the ceiling {scheme.format(pin)} has no effect now: "
        f"no known backend serves more than {scheme.format(known.highest)}"
    )


def leaves_unserved(view: ServiceView) -> str | None:
    """Warns of versions on offer that no backend in service serves: a drain takes nothing off the offer."""
    unserved = view.offer.versions - view.offer.reachable
    if not unserved:
        return None
    text = unserved.format(view.service.dialect.scheme)
    return f"{text} stays on offer, but no backend in service serves it: such requests get 503 until one does"


def warning_of(view: ServiceView, command: OperatorCommand) -> str | None:
    """Warns of an effect of `command`, which is in force, that an operator may not expect."""
    if isinstance(command, Drain) and command.drained:
        return leaves_unserved(view)
    return hides_nothing(view, command.ceiling) if isinstance(command, Pin) else None


def pin(view: ServiceView, ceiling: Version, last_hour: LastHour) -> str:
    """Describes the effect of a pin to `ceiling` that `below_minimum` does not refuse."""
    version = view.service.dialect.scheme.format(ceiling)
    if ceiling == view.members.pin:
        return f"{NOTHING}: it is already pinned to {version}"
    after = beneath(view).up_to(ceiling)
    text = "; ".join(_changes(view, after, last_hour)) or f"{NOTHING} now"
    held_back = f"versions above {version} will not be offered until it is unpinned"
    return f"{text}; {hides_nothing(view, ceiling) or held_back}"


def unpin(view: ServiceView, last_hour: LastHour) -> str:
    """Describes the effect of removing the pin, after which a configured ceiling applies again."""
    if view.members.pin is None:
        return f"{NOTHING}: there is no pin"
    ceiling = view.service.ceiling
    text = "; ".join(_changes(view, beneath(view).within(ceiling, None), last_hour)) or f"{NOTHING} now"
    if ceiling is None:
        return f"{text}; no ceiling limits the offer any more"
    return f"{text}; the configured ceiling {view.service.dialect.scheme.format(ceiling)} applies again"


def drain(view: ServiceView, member: Member) -> str:
    """Describes the effect of draining `member`."""
    backend = member.backend.name
    if member.drained:
        return f"{NOTHING}: {backend} is already drained"
    after = _after(view, Drain(backend))
    parts = [f"{backend} gets no new requests; requests in flight finish", *_later(view, after)]
    if not any(other.in_service for other in after.all):
        parts.append(f"no backend of {view.service.name} is left in service")
    parts.append(leaves_unserved(ServiceView.of(view.service, after, view.offer_state, view.agreed)) or "")
    return "; ".join(filter(None, parts))


def enable(view: ServiceView, member: Member) -> str:
    """Describes the effect of putting `member` into service again."""
    backend = member.backend.name
    if not member.drained:
        return f"{NOTHING}: {backend} is already in service"
    return "; ".join(
        [_gets_requests(member, view), *_later(view, _after(view, Drain(backend, drained=False)))]
    )


def share(part: float) -> str:
    """Writes a share for people: `14 %`; `< 1 %` or `> 99 %` if rounding would be untrue."""
    if 0.0 < part < 0.01:
        return "< 1 %"
    return f"{100.0 * part:.0f} %" if part <= 0.99 or part == 1.0 else "> 99 %"


def _after(view: ServiceView, command: Drain) -> MemberSet:
    """Returns a service's backends after a drain or its end, by the rules that the command itself follows."""
    name = view.service.name
    return Fleet({name: view.members}).apply(name, command).member_sets[name]


def _changes(view: ServiceView, after: VersionSet, last_hour: LastHour) -> Iterable[str]:
    """Describes which versions leave the offer, and which join it, with the agreement as it is now."""
    scheme, now = view.service.dialect.scheme, view.offer.versions
    if gone := now - after:
        yield f"{gone.format(scheme)} will be refused"
        count = last_hour.requests(scheme, lambda version: version in gone)
        yield f"{_asked(count, last_hour)} asked for them or got them as the latest"
    if more := after - now:
        yield f"{more.format(scheme)} will be offered"


def _asked(count: int, last_hour: LastHour) -> str:
    """Writes a share of requests as `14 % of the last hour's requests`."""
    if not count:
        return f"no request {'of the last hour' if last_hour.is_whole else 'since the start'}"
    whose = "the last hour's requests" if last_hour.is_whole else "the requests since the start"
    return f"{share(count / last_hour.total)} of {whose}"


def _later(view: ServiceView, after: MemberSet) -> Iterable[str]:
    """Describes how the offer may move later: versions that a drain or enabling adds have to last first."""
    scheme, service, offer = view.service.dialect.scheme, view.service, view.offer
    versions = _state(view)
    if not versions:
        return
    given = joined(versions, policy_set(service, after), scheme) - versions
    waiting = joined(versions, policy_set(service, view.members), scheme) - versions
    more, less = (each.within(offer.ceiling, None) for each in (given - waiting, waiting - given))
    if offer.floor is not None:
        more, less = more.down_to(offer.floor), less.down_to(offer.floor)
    if more:
        yield f"{more.format(scheme)} will be offered after {service.stabilization:g} s at the earliest"
    if less:
        yield f"{less.format(scheme)} was about to be offered and will not be"
    if not more and not less:
        yield "the offer does not change"


def _gets_requests(member: Member, view: ServiceView) -> str:
    """Describes the requests that a backend gets once it is no longer drained."""
    name = member.backend.name
    if member.advertisement is None or member.restored:
        return f"{name} gets requests once a probe has shown its versions"
    if member.freshness is Freshness.DOWN:
        return f"{name} is down and gets requests only as a last resort"
    versions = member.advertisement.versions & view.offer.versions
    if view.offer.versions and not versions and not member.legacy:
        return f"{name} is in service again but gets no requests: it serves nothing that is on offer"
    return f"{name} gets requests again"
