"""What an operator's command changes, in words: what the operations page says before it, and what it leaves
unserved or unchanged, which the endpoints say afterwards.

What will change is worked out as the view that will be, and compared with the present one. So what the page
says before a command is what the gateway does by it. Changes nothing. Pure: a view and the last hour's counts
in, one text out. Its parts are divided by `; `.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.fleet.backend import Freshness, Member
from gateway.core.fleet.fleet import Drain, Fleet
from gateway.core.fleet.member_set import MemberSet
from gateway.core.fleet.offer_state import policy_set
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, joined
from gateway.core.versions.version import Version
from gateway.telemetry.recent import LastHour

NOTHING: Final = "nothing changes"
"""How a text begins when the command changes nothing that a client can notice now."""


def beneath(view: ServiceView) -> VersionSet:
    """What is on offer beneath the ceiling."""
    if view.agreed is None or not view.agreed.voting:
        return view.offer_state.versions
    return NO_VERSIONS if view.agreed.record is None else view.agreed.record.state


def below_minimum(view: ServiceView, ceiling: Version) -> str | None:
    """Why a pin to `ceiling` is refused; None: it is not."""
    versions, scheme = beneath(view), view.service.dialect.scheme
    if not versions or ceiling >= versions.lowest:
        return None
    return (
        f"the ceiling {scheme.format(ceiling)} is below the minimum "
        f"{scheme.format(versions.lowest)} on offer: nothing could be served"
    )


def hides_nothing(view: ServiceView, pin: Version | None) -> str | None:
    """A pin above all that is known hides nothing, which may be a slip. None: it hides something, or there is
    no pin."""
    known = beneath(view) | view.offer.reachable
    if pin is None or not known or pin <= known.highest:
        return None
    scheme = view.service.dialect.scheme
    return (
        f"no known backend serves more than {scheme.format(known.highest)}: "
        f"the ceiling {scheme.format(pin)} hides nothing now"
    )


def leaves_unserved(view: ServiceView) -> str | None:
    """What stays on offer although no backend in service serves it: a drain takes nothing off the offer.
    None: there is no such version."""
    unserved = view.offer.versions - view.offer.reachable
    if not unserved:
        return None
    text = unserved.format(view.service.dialect.scheme)
    return f"{text} stays on offer, and no backend in service serves it: such requests are 503 until one does"


def pin(view: ServiceView, ceiling: Version, last_hour: LastHour) -> str:
    """What a pin to `ceiling`, which `below_minimum` does not refuse, changes."""
    version = view.service.dialect.scheme.format(ceiling)
    if ceiling == view.members.pin:
        return f"{NOTHING}: it is pinned to {version} already"
    after = beneath(view).up_to(ceiling)
    text = "; ".join(_changes(view, after, last_hour)) or f"{NOTHING} now"
    held_back = f"versions above {version} will not be offered until it is unpinned"
    return f"{text}; {hides_nothing(view, ceiling) or held_back}"


def unpin(view: ServiceView, last_hour: LastHour) -> str:
    """What it changes that the pin goes. The ceiling of the configuration holds again, if there is one."""
    if view.members.pin is None:
        return f"{NOTHING}: there is no pin"
    ceiling, versions = view.service.ceiling, beneath(view)
    after = versions if ceiling is None else versions.up_to(ceiling)
    text = "; ".join(_changes(view, after, last_hour)) or f"{NOTHING} now"
    if ceiling is None:
        return f"{text}; no ceiling holds the offer any more"
    return f"{text}; the configured ceiling {view.service.dialect.scheme.format(ceiling)} holds again"


def drain(view: ServiceView, member: Member) -> str:
    """What it changes that `member` gets no new requests any more."""
    backend = member.backend.name
    if member.drained:
        return f"{NOTHING}: {backend} is drained already"
    after = _after(view, Drain(backend))
    parts = [f"{backend} gets no new requests, those in flight are finished", *_later(view, after)]
    if not any(other.in_service for other in after.all):
        parts.append(f"no backend of {view.service.name} is left in service")
    parts.append(leaves_unserved(ServiceView.of(view.service, after, view.offer_state, view.agreed)) or "")
    return "; ".join(filter(None, parts))


def enable(view: ServiceView, member: Member) -> str:
    """What it changes that `member` may get requests again."""
    backend = member.backend.name
    if not member.drained:
        return f"{NOTHING}: {backend} is in service already"
    return "; ".join(
        [_gets_requests(member, view), *_later(view, _after(view, Drain(backend, drained=False)))]
    )


def share(count: int, total: int) -> str:
    """`14 %`; `no`, `less than 1 %` and `more than 99 %` where a rounded number would be untrue."""
    if not count:
        return "no"
    if count == total:
        return "100 %"
    percent = 100.0 * count / total
    if percent < 1.0:
        return "less than 1 %"
    return "more than 99 %" if percent > 99.0 else f"{percent:.0f} %"


def _after(view: ServiceView, command: Drain) -> MemberSet:
    """The members after the command, by the rule that the command itself goes by."""
    name = view.service.name
    return Fleet({name: view.members}).apply(name, command).member_sets[name]


def _changes(view: ServiceView, after: VersionSet, last_hour: LastHour) -> Iterable[str]:
    """What will be refused that is on offer, and what will be offered that is not. What the agreement of
    several replicas still takes away, or adds, counts as it is now."""
    scheme, now = view.service.dialect.scheme, view.offer.versions
    if gone := now - after:
        yield f"{gone.format(scheme)} will be refused"
        count = last_hour.requests(scheme, lambda version: version in gone)
        yield f"{_asked(count, last_hour)} asked for them or got them as the latest"
    if more := after - now:
        yield f"{more.format(scheme)} will be offered"


def _asked(count: int, last_hour: LastHour) -> str:
    """`14 % of the last hour's requests`."""
    part = share(count, last_hour.total)
    if last_hour.is_whole:
        return "no request of the last hour" if not count else f"{part} of the last hour's requests"
    return "no request since the start" if not count else f"{part} of the requests since the start"


def _later(view: ServiceView, after: MemberSet) -> Iterable[str]:
    """What the policy will give in another way once the members are `after`: a drain and an enabling take
    nothing off the offer, and what they add has to stand for the stabilization first."""
    scheme, service, ceiling = view.service.dialect.scheme, view.service, view.offer.ceiling
    versions = beneath(view)
    if not versions:
        return
    given = joined(versions, policy_set(service, after), scheme) - versions
    waiting = joined(versions, policy_set(service, view.members), scheme) - versions
    more, less = given - waiting, waiting - given
    if ceiling is not None:
        more, less = more.up_to(ceiling), less.up_to(ceiling)
    if more:
        yield f"{more.format(scheme)} will be offered after {service.stabilization:g} s at the earliest"
    if less:
        yield f"{less.format(scheme)} waits to be offered and will not be"
    if not more and not less:
        yield "the offer stays"


def _gets_requests(member: Member, view: ServiceView) -> str:
    """What becomes of a member that is no longer drained."""
    name = member.backend.name
    if member.advertisement is None or member.restored:
        return f"{name} gets requests once a probe has shown its versions"
    if member.freshness is Freshness.DOWN:
        return f"{name} is down and gets requests where no other can take them"
    versions = member.advertisement.versions & view.offer.versions
    if view.offer.versions and not versions and not member.legacy:
        return f"{name} is in service again and gets no requests: it serves nothing that is on offer"
    return f"{name} gets requests again"
