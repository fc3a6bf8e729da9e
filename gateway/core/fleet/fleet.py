"""All that is known of all backends, and the two methods that change it: `Fleet.observe` for facts, and
`Fleet.apply` for an operator's commands.

Immutable: a fact makes a new fleet, or the same object when it changes nothing. Nothing here forms an offer
(`core.fleet.offer_state`, `core.fleet.offer`) or chooses a backend (`core.decision.selection`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias, assert_never, final

from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import FRESHNESS_AFTER_FAILURES, Backend, Member
from gateway.core.fleet.service import Service
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Version

MAX_MISMATCHED_RANGES: Final = 256
"""Separate ranges of mismatched versions; a member with more gets no negotiated request at all. Clients
choose these versions, and each range makes every later fact cost more."""


@final
@dataclass(frozen=True, slots=True)
class ProbeSucceeded:
    """A probe brought an advertisement. `at`: when its first request was sent, in seconds of any monotonic
    clock. For a declared backend: it is no longer suspect."""

    advertisement: Advertisement
    at: float


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


Fact: TypeAlias = ProbeSucceeded | ProbeFailed | PassiveObservation | ConnectFailed | VersionMismatch


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

    @property
    def offer_ready(self) -> bool:
        """True once the initial offer can be formed: all are probed, and at least one advertisement is
        known."""
        return self.all_probed and any(member.advertisement for member in self.members)

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
            pin = before.pin if before.scheme_id == service.scheme_id else None
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
    if known is not None and (known.backend.url, known.scheme_id) != (backend.url, service.scheme_id):
        known = None
    if known is not None and known.backend.declared is None and backend.declared is None:
        return replace(known, backend=backend)
    return Member(
        service.name,
        backend,
        None if backend.declared is None else Advertisement(backend.declared),
        drained=known is not None and known.drained,
        scheme_id=service.scheme_id,
    )


def _learn(member: Member, fact: Fact) -> Member:
    """The member after one fact. A declared member learns no advertisement; it can become suspect, and
    trusted again."""
    match fact:
        case VersionMismatch():
            return _mismatched(member, fact)
        case ConnectFailed(at):
            if member.connect_failed or at < member.advertised_at:
                return member
            return replace(member, connect_failed=True, suspected_at=at)
        case _ if member.backend.declared is not None:
            cleared = isinstance(fact, ProbeSucceeded) and member.suspect and fact.at >= member.suspected_at
            return _trusted(member) if cleared else member
        case ProbeFailed(error):
            failures = min(member.failures + 1, len(FRESHNESS_AFTER_FAILURES) - 1)
            if (failures, error) == (member.failures, member.error):
                return member
            return replace(member, failures=failures, error=error)
        case ProbeSucceeded(advertisement, at):
            checked = member if at < member.suspected_at else _trusted(member)
            if at < member.advertised_at:  # the known one is newer; this one proves that the backend answers
                return replace(checked, failures=0, error=None)
            return replace(checked, advertisement=advertisement, failures=0, error=None, advertised_at=at)
        case PassiveObservation(advertisement, at):
            if at < member.advertised_at:
                return member
            return replace(member, advertisement=advertisement, advertised_at=at)
        case _:
            assert_never(fact)


def _mismatched(member: Member, fact: VersionMismatch) -> Member:
    """It gets no request at that version; at too many separate versions, no negotiated request at all."""
    if fact.version in member.mismatched or fact.at < member.advertised_at:
        return member
    mismatched = member.mismatched | VersionSet.only(fact.version)
    if len(mismatched.ranges) > MAX_MISMATCHED_RANGES and member.advertisement is not None:
        mismatched = member.advertisement.versions
    return replace(member, mismatched=mismatched, suspected_at=fact.at)


def _trusted(member: Member) -> Member:
    """The member without failed connections and mismatches."""
    return replace(member, connect_failed=False, mismatched=NO_VERSIONS)
