"""The fleet: all members of all services, changed only by facts and an operator's commands.

Immutable: a fact makes a new fleet, or the same object if it changes nothing. Nothing here forms an offer
(`core.fleet.offer_state`, `core.fleet.offer`) or chooses a backend (`core.decision.selection`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, assert_never, final

from gateway.core.agreement.raised import NOT_RAISED, Raised, read_raised, write_raised
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import FRESHNESS_AFTER_FAILURES, Backend, Member
from gateway.core.fleet.doubt import KNOWN_VERSION, LEGACY_ANSWERS, NO_MISMATCHES
from gateway.core.fleet.member_set import MemberSet, with_items
from gateway.core.fleet.probed_document import ProbedDocument
from gateway.core.fleet.service import Service
from gateway.core.versions.ranges import read_anew
from gateway.core.versions.version import Version


@final
@dataclass(frozen=True, slots=True)
class ProbeSucceeded:
    """Fact: a probe brought an advertisement. `at`: when its first request was sent, in seconds of any
    monotonic clock. A declared backend declares its versions again this way."""

    advertisement: Advertisement
    at: float
    prompted: bool = False
    """Whether a response to a request prompted the probe; if not, it was a regular one."""
    document: ProbedDocument | None = None


@final
@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """Fact: a probe brought no advertisement."""

    error: str
    at: float


@final
@dataclass(frozen=True, slots=True)
class HealthChecked:
    """Fact: the health check of a backend was answered. Independent of versions."""

    error: str | None
    at: float


@final
@dataclass(frozen=True, slots=True)
class PassiveObservation:
    """Fact: a response to a request carried its backend's range. Not a probe, so the freshness stays."""

    advertisement: Advertisement
    at: float


@final
@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """Fact: no connection to the backend could be made for a request. Its known versions stay."""

    at: float
    reason: str = ""


@final
@dataclass(frozen=True, slots=True)
class VersionMismatch:
    """Fact: the response to a request at `version` named another served version (threats V9)."""

    version: Version
    at: float
    path: str = ""
    """First two segments of the request's path: `/v1/nodes`."""


@final
@dataclass(frozen=True, slots=True)
class ServedVersionMissing:
    """Fact: the response to a negotiated request lacked the served version that its API always sends."""

    at: float


@final
@dataclass(frozen=True, slots=True)
class AdvertisementRestored:
    """Fact: the state file holds the backend's advertisement from before a restart. It counts for the offer,
    and the backend gets no request until its first probe has ended (semantics, State across restarts)."""

    advertisement: Advertisement
    at: float


Fact: TypeAlias = (
    ProbeSucceeded
    | ProbeFailed
    | HealthChecked
    | PassiveObservation
    | ConnectFailed
    | VersionMismatch
    | ServedVersionMissing
    | AdvertisementRestored
)


@final
@dataclass(frozen=True, slots=True)
class Pin:
    """Command: set a ceiling at run time in place of the configuration's; None removes it."""

    ceiling: Version | None


@final
@dataclass(frozen=True, slots=True)
class Raise:
    """Command: set a floor at run time in place of the configuration's; None removes it."""

    floor: Version | None
    remembered: Raised | None = None
    """All that is remembered from then on, if the clock or the store gives it; None: a command does."""


@final
@dataclass(frozen=True, slots=True)
class Drain:
    """Command: take a backend out of service, or put it back if `drained` is False."""

    backend: str
    drained: bool = True
    by: str = ""
    """Name of who drains or enables it; empty: not given. Others with a name are kept away (`drains`)."""
    served: bool = False
    """Whether to refuse it if no other backend can serve some version on offer."""


OperatorCommand: TypeAlias = Pin | Raise | Drain


ObservedFact: TypeAlias = tuple[str, str, Fact]
"""Fact with the names of its service and backend: (service, backend, fact)."""


class Learned(NamedTuple):
    """Result of observing facts: the fleet after them, with the names of the services that changed."""

    fleet: Fleet
    services: frozenset[str]


@final
@dataclass(frozen=True, slots=True)
class Fleet:
    """The fleet: the members of all services as one value, by the service's name."""

    member_sets: Mapping[str, MemberSet]

    def observe(self, service: str, backend: str, fact: Fact) -> Fleet:
        """The fleet after one fact; this same object if it changes nothing."""
        return self.observe_all(((service, backend, fact),)).fleet

    def observe_all(self, facts: Iterable[ObservedFact]) -> Learned:
        """The fleet after `facts`, one after the other; this same object if they change nothing. An
        advertisement that was requested before the known one changes nothing (semantics, Knowing), nor does a
        fact about an unknown backend. A member set is made anew once, for all its facts."""
        learned: dict[str, dict[int, Member]] = {}
        for service, backend, fact in facts:
            members = self.member_sets.get(service)
            at = None if members is None else members.positions.get(backend)
            if members is None or at is None:
                continue
            changed = learned.get(service)
            before = (changed.get(at) if changed else None) or members.all[at]
            member = _learn(before, fact)
            if member is not before:
                if changed is None:
                    changed = learned[service] = {}
                changed[at] = member
        if not learned:
            return Learned(self, frozenset())
        member_sets = {
            name: self.member_sets[name].with_members(changed) for name, changed in learned.items()
        }
        return Learned(self._with(member_sets), frozenset(member_sets))

    def apply(self, service: str, command: OperatorCommand) -> Fleet:
        """The fleet after `command`; this same object if it changes nothing that is configured."""
        members = self.member_sets.get(service)
        if members is None:
            return self
        match command:
            case Pin(ceiling):
                commanded = replace(members, pin=ceiling)
            case Raise(floor, raised):
                commanded = replace(members, raised=raised or members.raised.commanded(floor))
            case Drain(backend, drained, by):
                at = members.positions.get(backend)
                if at is None:
                    return self
                by_whom = by if drained else None
                commanded = members.with_members({at: replace(members.all[at], drained_by=by_whom)})
            case _:
                assert_never(command)
        return self if commanded.knows_the_same(members) else self._with({service: commanded})

    def _with(self, member_sets: Mapping[str, MemberSet]) -> Fleet:
        return Fleet(with_items(self.member_sets, member_sets))


def configured_member_set(service: Service, known: MemberSet | None) -> MemberSet:
    """The member set of a configured service. A backend keeps its `known` facts if its name, address, dialect
    and scheme are the same. Drained backends, the pin and the raised floor are kept, too."""
    before = known or MemberSet(())
    members = tuple(_member(service, backend, before) for backend in service.backends)
    pin, raised = before.pin, before.raised
    if before.scheme_id != service.scheme_id:
        scheme, now = service.earlier_scheme(before.scheme_id), service.dialect.scheme
        pin = None if pin is None or scheme is None else now.parse(scheme.format(pin))
        raised = NOT_RAISED if scheme is None else read_raised(write_raised(raised, scheme), now)
    return MemberSet(members, pin, raised, service.scheme_id, undiscovered=service.undiscovered)


def _member(service: Service, backend: Backend, before: MemberSet) -> Member:
    """Make `backend` a member, with what is known of it from the same address and in the same scheme."""
    known = before.member(backend.name)
    if known is not None:
        known = _read_anew(known, service) if known.backend.url == backend.url else None
    unhealthy = known.unhealthy if known is not None and service.probe.health is not None else None
    if known is not None and known.backend.declared is None and backend.declared is None:
        returned = not backend.leaving and (known.returned or known.backend.leaving)
        return replace(known, backend=backend, unhealthy=unhealthy, returned=returned)
    return Member(
        service.name,
        backend,
        None if backend.declared is None else Advertisement(backend.declared),
        drained_by=None if known is None else known.drained_by,
        scheme_id=service.scheme_id,
        unhealthy=unhealthy,
    )


def _read_anew(member: Member, service: Service) -> Member | None:
    """The member with its versions in the scheme of `service`; None: they have no meaning there."""
    if member.scheme_id == service.scheme_id:
        return member
    before, scheme = service.earlier_scheme(member.scheme_id), service.dialect.scheme
    if before is None:
        return None
    known = member.advertisement
    if known is not None:
        default = None if known.default is None else scheme.parse(before.format(known.default))
        known = replace(known, versions=read_anew(known.versions, before, scheme), default=default)
    return replace(member, advertisement=known, mismatches=NO_MISMATCHES, scheme_id=service.scheme_id)


def _learn(member: Member, fact: Fact) -> Member:
    """The member after one fact about it. A declared one learns no versions, but can become suspect."""
    match fact:
        case VersionMismatch() | ServedVersionMissing():
            return _doubted(member, fact)
        case ConnectFailed() | HealthChecked():
            return _less_wanted(member, fact)
        case _ if member.backend.declared is not None:
            return _declared_again(member, fact) if isinstance(fact, ProbeSucceeded) else member
        case ProbeFailed(error):
            learned = replace(
                member,
                failures=min(member.failures + 1, len(FRESHNESS_AFTER_FAILURES) - 1),
                probe_error=error,
                unknown_version=member.unknown_version.after_failed_probe(),
                restored=False,
                returned=False,
            )
            return member if learned == member else learned
        case ProbeSucceeded():
            return _probed(member, fact)
        case AdvertisementRestored(advertisement, at):
            # One that is leaving counts as probed, and needs its last advertisement most of all.
            if member.failures or (member.advertisement is not None and not member.restored):
                return member
            return replace(member, advertisement=advertisement, advertised_at=at, restored=True)
        case PassiveObservation(advertisement, at):
            if at < member.advertised_at:
                return member
            if advertisement.mounts is None and member.advertisement is not None:
                advertisement = replace(advertisement, mounts=member.advertisement.mounts)
            return replace(
                member,
                advertisement=advertisement,
                advertised_at=at,
                restored=False,
                unknown_version=member.unknown_version.after_versions(at, passive=True),
            )
        case _:
            assert_never(fact)


def _less_wanted(member: Member, fact: ConnectFailed | HealthChecked) -> Member:
    if isinstance(fact, HealthChecked):
        return member if member.unhealthy == fact.error else replace(member, unhealthy=fact.error)
    if member.connect_failed or fact.at < member.advertised_at:
        return member
    return replace(member, connect_failed=True, connect_error=fact.reason, connect_failed_at=fact.at)


def _doubted(member: Member, fact: VersionMismatch | ServedVersionMissing) -> Member:
    if member.advertisement is None:
        return member
    if isinstance(fact, VersionMismatch):
        known = member.advertisement.versions
        mismatches = member.mismatches.with_mismatch(fact.version, fact.path, fact.at, known)
        return member if mismatches is member.mismatches else replace(member, mismatches=mismatches)
    if member.legacy or fact.at < member.advertised_at:
        return member
    unknown = member.unknown_version.with_missing(fact.at)
    return member if unknown is member.unknown_version else replace(member, unknown_version=unknown)


def _probed(member: Member, fact: ProbeSucceeded) -> Member:
    """The member after an answered probe. An answer older than the known one proves only that it answers."""
    known, known_at, unknown = member.advertisement, member.advertised_at, member.unknown_version
    advertisement, at, document = fact.advertisement, fact.at, member.document
    if at >= known_at:
        believed = True
        if not advertisement.legacy:
            unknown = unknown.after_versions(at)
        elif known is None or member.legacy:
            unknown = KNOWN_VERSION
        else:  # it has shown versions: one answer without them may come from what only stands in for it
            unknown = unknown.with_legacy_answer(at)
            believed = unknown.legacy_answers >= LEGACY_ANSWERS
            unknown = KNOWN_VERSION if believed else unknown
        if believed:
            if document is None or known != advertisement:
                document = fact.document
            known, known_at = (known if known == advertisement else advertisement), at
    connect_failed = member.connect_failed and at < member.connect_failed_at
    return replace(
        member,
        advertisement=known,
        failures=0,
        probe_error=None,
        connect_failed=connect_failed,
        connect_error=member.connect_error if connect_failed else "",
        mismatches=member.mismatches.after_probe(at, prompted=fact.prompted),
        unknown_version=unknown,
        restored=False,
        returned=False,
        document=document,
        advertised_at=known_at,
    )


def _declared_again(member: Member, fact: ProbeSucceeded) -> Member:
    """The declared member after a probe: a prompted one confirms versions, a regular one clears doubts."""
    at = fact.at
    if fact.prompted:
        if not member.mismatches.wait_for_probe:
            return member
        return replace(member, mismatches=member.mismatches.after_probe(at, prompted=True))
    connect_failed = member.connect_failed and at < member.connect_failed_at
    mismatches = member.mismatches
    if mismatches != NO_MISMATCHES:
        mismatches = mismatches.after_probe(at, prompted=False)
    learned = replace(
        member,
        connect_failed=connect_failed,
        connect_error=member.connect_error if connect_failed else "",
        mismatches=mismatches,
        unknown_version=member.unknown_version.after_versions(at),
    )
    return member if learned == member else learned
