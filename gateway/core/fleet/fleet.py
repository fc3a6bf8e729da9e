"""All that is known of all backends, and the two methods that change it: `Fleet.observe` for facts, and
`Fleet.apply` for an operator's commands.

Immutable: a fact makes a new fleet, or the same object when it changes nothing. Nothing here forms an offer
(`core.fleet.offer_state`, `core.fleet.offer`) or chooses a backend (`core.decision.selection`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias, assert_never, final

from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import FRESHNESS_AFTER_FAILURES, Backend, Member
from gateway.core.fleet.doubt import KNOWN_VERSION, LEGACY_ANSWERS, NO_MISMATCHES
from gateway.core.fleet.service import Service
from gateway.core.versions.ranges import read_anew
from gateway.core.versions.version import Version


@final
@dataclass(frozen=True, slots=True)
class ProbeSucceeded:
    """A probe brought an advertisement. `at`: when its first request was sent, in seconds of any monotonic
    clock. For a declared backend: what is declared was declared again."""

    advertisement: Advertisement
    at: float
    prompted: bool = False
    """True: not a regular probe, but one that a response asked for."""


@final
@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """A probe brought no advertisement."""

    error: str
    at: float


@final
@dataclass(frozen=True, slots=True)
class PassiveObservation:
    """A response to a request carried its backend's range. It is not a probe, so the freshness stays."""

    advertisement: Advertisement
    at: float


@final
@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """No connection to the backend could be made for a request. What it serves stays known."""

    at: float


@final
@dataclass(frozen=True, slots=True)
class VersionMismatch:
    """The response to a request at `version` named another served version (threats V9)."""

    version: Version
    at: float
    path: str = ""
    """The first two segments of the request's path: `/v1/nodes`."""


@final
@dataclass(frozen=True, slots=True)
class ServedVersionMissing:
    """The response to a negotiated request lacked the served version, which its API's servers always send."""

    at: float


@final
@dataclass(frozen=True, slots=True)
class AdvertisementRestored:
    """The state file holds what the backend advertised before a restart. It counts for the offer, and the
    backend gets no request until its first probe has ended (semantics, State across restarts)."""

    advertisement: Advertisement
    at: float


Fact: TypeAlias = (
    ProbeSucceeded
    | ProbeFailed
    | PassiveObservation
    | ConnectFailed
    | VersionMismatch
    | ServedVersionMissing
    | AdvertisementRestored
)


@final
@dataclass(frozen=True, slots=True)
class Pin:
    """A ceiling at run time in place of the configuration's; None removes it."""

    ceiling: Version | None


@final
@dataclass(frozen=True, slots=True)
class Drain:
    """Take a backend out of service, or (`drained` False) put it back."""

    backend: str
    drained: bool = True


OperatorCommand: TypeAlias = Pin | Drain


@final
@dataclass(frozen=True, slots=True)
class Pool:
    """The members of one service, in the configuration's order."""

    members: tuple[Member, ...]
    pin: Version | None = None
    """An operator's ceiling at run time."""
    scheme_id: tuple[object, ...] = ()
    """The scheme in which `pin` was read, see `Member.scheme_id`."""

    @property
    def in_service(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.in_service)

    @property
    def all_probed(self) -> bool:
        """True once every member's first probe has ended, in success or failure."""
        return all(member.probed for member in self.members)

    def member(self, backend: str) -> Member | None:
        return next((member for member in self.members if member.backend.name == backend), None)


@final
@dataclass(frozen=True, slots=True)
class Fleet:
    """Every service's pool by the service's name."""

    pools: Mapping[str, Pool]

    @classmethod
    def of(cls, services: Iterable[Service], known: Fleet | None = None) -> Fleet:
        """The fleet of a configuration.

        What is `known` of a backend is kept if its service, name, address, dialect and scheme are the same:
        in another scheme the known versions would be others. An operator's commands are kept, too: drained
        backends, and the pin.
        """
        pools = {}
        for service in services:
            before = (known.pools.get(service.name) if known else None) or Pool(())
            members = tuple(_member(service, backend, before) for backend in service.backends)
            pin = _pin(service, before)
            pools[service.name] = Pool(members, pin, service.scheme_id)
        return cls(MappingProxyType(pools))

    def observe(self, service: str, backend: str, fact: Fact) -> Fleet:
        """The fleet after `fact`; this same object when it changes nothing.

        A fact about a backend that is not configured changes nothing. Neither does an advertisement whose
        request was sent before the one that brought the known advertisement (semantics, Knowing).
        """
        pool = self.pools.get(service)
        member = pool.member(backend) if pool else None
        if pool is None or member is None:
            return self
        learned = _learn(member, fact)
        return self if learned is member else self._with(pool, member, learned)

    def apply(self, service: str, command: OperatorCommand) -> Fleet:
        """The fleet after `command`; this same object when it changes nothing, or concerns a service or
        backend that is not configured."""
        pool = self.pools.get(service)
        if pool is None:
            return self
        match command:
            case Pin(ceiling):
                if ceiling == pool.pin:
                    return self
                return Fleet(MappingProxyType({**self.pools, service: replace(pool, pin=ceiling)}))
            case Drain(backend, drained):
                member = pool.member(backend)
                if member is None or member.drained is drained:
                    return self
                return self._with(pool, member, replace(member, drained=drained))
            case _:
                assert_never(command)

    def _with(self, pool: Pool, member: Member, learned: Member) -> Fleet:
        members = tuple(learned if other is member else other for other in pool.members)
        return Fleet(MappingProxyType({**self.pools, member.service: replace(pool, members=members)}))


def _member(service: Service, backend: Backend, before: Pool) -> Member:
    """`backend` as a member, with what is known of it from the same address and in the same scheme."""
    known = before.member(backend.name)
    if known is not None:
        known = _read_anew(known, service) if known.backend.url == backend.url else None
    if known is not None and known.backend.declared is None and backend.declared is None:
        return replace(known, backend=backend)
    return Member(
        service.name,
        backend,
        None if backend.declared is None else Advertisement(backend.declared),
        drained=known is not None and known.drained,
        scheme_id=service.scheme_id,
    )


def _pin(service: Service, before: Pool) -> Version | None:
    """The pin, if it has the same meaning in the scheme of `service`."""
    if before.pin is None or before.scheme_id == service.scheme_id:
        return before.pin
    scheme = service.earlier_scheme(before.scheme_id)
    return None if scheme is None else service.dialect.scheme.parse(scheme.format(before.pin))


def _read_anew(member: Member, service: Service) -> Member | None:
    """The member in the scheme of `service`; None: what is known of it has no meaning there."""
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
    """The member after one fact. A declared member learns no advertisement; it can become suspect, and
    trusted again."""
    match fact:
        case VersionMismatch() | ServedVersionMissing():
            return _doubted(member, fact)
        case ConnectFailed(at):
            if member.connect_failed or at < member.advertised_at:
                return member
            return replace(member, connect_failed=True, connect_failed_at=at)
        case _ if member.backend.declared is not None:
            return _declared_again(member, fact) if isinstance(fact, ProbeSucceeded) else member
        case ProbeFailed(error):
            failures = min(member.failures + 1, len(FRESHNESS_AFTER_FAILURES) - 1)
            unknown = member.unknown_version.after_failed_probe()
            if (failures, error, unknown) == (member.failures, member.probe_error, member.unknown_version):
                return member
            return replace(
                member, failures=failures, probe_error=error, unknown_version=unknown, restored=False
            )
        case ProbeSucceeded():
            return _probed(member, fact)
        case AdvertisementRestored(advertisement, at):
            if member.probed:
                return member
            return replace(member, advertisement=advertisement, advertised_at=at, restored=True)
        case PassiveObservation(advertisement, at):
            if at < member.advertised_at:
                return member
            return replace(
                member,
                advertisement=advertisement,
                advertised_at=at,
                restored=False,
                unknown_version=member.unknown_version.after_versions(at, passive=True),
            )
        case _:
            assert_never(fact)


def _doubted(member: Member, fact: VersionMismatch | ServedVersionMissing) -> Member:
    """After a response that does not fit the advertisement."""
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
    """After a probe that was answered. An older answer than the known one proves only that it answers."""
    advertisement, at = fact.advertisement, fact.at
    answered = replace(
        member,
        failures=0,
        probe_error=None,
        restored=False,
        connect_failed=member.connect_failed and at < member.connect_failed_at,
        mismatches=member.mismatches.after_probe(at, prompted=fact.prompted),
    )
    if at < member.advertised_at:
        return answered
    if not advertisement.legacy:
        unknown = member.unknown_version.after_versions(at)
    elif member.advertisement is None or member.legacy:
        unknown = KNOWN_VERSION
    else:  # it has shown versions: one answer without them may come from something that only stands in for it
        unknown = member.unknown_version.with_legacy_answer(at)
        if unknown.legacy_answers < LEGACY_ANSWERS:
            return replace(answered, unknown_version=unknown)
        unknown = KNOWN_VERSION
    return replace(answered, advertisement=advertisement, advertised_at=at, unknown_version=unknown)


def _declared_again(member: Member, fact: ProbeSucceeded) -> Member:
    """The declaration stands in for a probe: a prompted one confirms the versions, the next regular one
    clears everything."""
    at = fact.at
    if fact.prompted:
        if not member.mismatches.wait_for_probe:
            return member
        return replace(member, mismatches=member.mismatches.after_probe(at, prompted=True))
    connect_failed = member.connect_failed and at < member.connect_failed_at
    mismatches = (
        member.mismatches.after_probe(at, prompted=False)
        if member.mismatches != NO_MISMATCHES
        else member.mismatches
    )
    unknown = member.unknown_version.after_versions(at)
    learned = replace(member, connect_failed=connect_failed, mismatches=mismatches, unknown_version=unknown)
    return member if learned == member else learned
