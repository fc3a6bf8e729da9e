"""All that is known of all backends, and the two doors by which it changes.

Facts enter by `Fleet.observe`, an operator's orders by `Fleet.obey`.

Immutable: a fact makes a new fleet, or none when it says nothing new. What follows from the knowledge
(offers, who may be chosen) is `core.memory`, `core.offer` and `core.selection`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias, assert_never, final

from gateway.core.backend import STANDING_AFTER_FAILURES, Backend, Member
from gateway.core.dialect import Advert
from gateway.core.ranges import NOTHING, VersionSet
from gateway.core.service import Service
from gateway.core.version import Version

MOST_CONTRADICTED: Final = 256
"""Gaps that contradictions leave in what a member serves: who contradicts more is believed in nothing.
Clients choose the versions, and every one would make all further ones dearer."""


@final
@dataclass(frozen=True, slots=True)
class Answered:
    """A probe brought an advert. `at`: when its first request was sent, seconds of any monotonic clock. Of a
    declared backend: it is believed again."""

    advert: Advert
    at: float


@final
@dataclass(frozen=True, slots=True)
class Failed:
    """A probe brought nothing that can be believed."""

    error: str
    at: float


@final
@dataclass(frozen=True, slots=True)
class Overheard:
    """An ordinary reply said what its backend serves. Says nothing about probes, so standing stays."""

    advert: Advert
    at: float


@final
@dataclass(frozen=True, slots=True)
class Unreached:
    """No connection could be made to it for a request. Says nothing about what it serves."""

    at: float


@final
@dataclass(frozen=True, slots=True)
class Contradicted:
    """A reply said that it served another version than `version`, which it was asked for (hardening V9)."""

    version: Version
    at: float


Fact: TypeAlias = Answered | Failed | Overheard | Unreached | Contradicted


@final
@dataclass(frozen=True, slots=True)
class Pin:
    """A ceiling at run time, which stands instead of the configuration's; None takes it away."""

    ceiling: Version | None


@final
@dataclass(frozen=True, slots=True)
class Drain:
    """Take a backend out of service, or (`drained` False) put it back."""

    backend: str
    drained: bool = True


Order: TypeAlias = Pin | Drain


@final
@dataclass(frozen=True, slots=True)
class Pool:
    """The members of one service, in the configuration's order."""

    members: tuple[Member, ...]
    pin: Version | None = None
    """An operator's ceiling at run time."""
    language: tuple[object, ...] = ()
    """In which `pin` was read, see `Member.language`."""

    @property
    def in_service(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.in_service)

    @property
    def asked(self) -> bool:
        """True once every member's first probe has ended, either way."""
        return all(member.probed for member in self.members)

    @property
    def heard_out(self) -> bool:
        """True once that is so and at least one advert is known: an offer can be made."""
        return self.asked and any(member.advert for member in self.members)

    def member(self, backend: str) -> Member | None:
        return next((each for each in self.members if each.backend.name == backend), None)


@final
@dataclass(frozen=True, slots=True)
class Fleet:
    """Every service's pool by the service's name."""

    pools: Mapping[str, Pool]

    @classmethod
    def of(cls, services: Iterable[Service], known: Fleet | None = None) -> Fleet:
        """The fleet of a configuration.

        Knowledge of a backend that stays is kept: same service, name and address, and the same dialect and
        scheme, without which the known versions would mean others. So are the words of an operator: who is
        drained, and the pin.
        """
        pools = {}
        for service in services:
            before = (known.pools.get(service.name) if known else None) or Pool(())
            members = tuple(_enlist(service, backend, before) for backend in service.backends)
            pin = before.pin if before.language == service.language else None
            pools[service.name] = Pool(members, pin, service.language)
        return cls(MappingProxyType(pools))

    def observe(self, service: str, backend: str, fact: Fact) -> Fleet:
        """The fleet that knows `fact`, too; this same object when it changes nothing.

        A fact about a backend that is no longer configured changes nothing, and neither does an advert whose
        request was sent before the one that brought what is known (design section 2, Knowing).
        """
        pool = self.pools.get(service)
        member = pool.member(backend) if pool else None
        if pool is None or member is None:
            return self
        learned = _learn(member, fact)
        return self if learned is member else self._with(pool, member, learned)

    def obey(self, service: str, order: Order) -> Fleet:
        """The fleet under `order`; this same object when it changes nothing, or is about what is not
        configured."""
        pool = self.pools.get(service)
        if pool is None:
            return self
        match order:
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
                assert_never(order)

    def _with(self, pool: Pool, member: Member, learned: Member) -> Fleet:
        members = tuple(learned if each is member else each for each in pool.members)
        return Fleet(MappingProxyType({**self.pools, member.service: replace(pool, members=members)}))


def _enlist(service: Service, backend: Backend, before: Pool) -> Member:
    """`backend` as a member, with what is known of it: read at the same address and in the same language."""
    known = before.member(backend.name)
    if known is not None and (known.backend.url, known.language) != (backend.url, service.language):
        known = None
    if known is not None and known.backend.declared is None and backend.declared is None:
        return replace(known, backend=backend)
    return Member(
        service.name,
        backend,
        None if backend.declared is None else Advert(backend.declared),
        drained=known is not None and known.drained,
        language=service.language,
    )


def _learn(member: Member, fact: Fact) -> Member:
    """What one fact makes of one member. Of a declared one only doubts are learned, and when they end."""
    match fact:
        case Contradicted():
            return _contradicted(member, fact)
        case Unreached(at):
            if member.refusing or at < member.heard_at:
                return member
            return replace(member, refusing=True, doubted_at=at)
        case _ if member.backend.declared is not None:
            ends = isinstance(fact, Answered) and member.doubted and fact.at >= member.doubted_at
            return _believed(member) if ends else member
        case Failed(error):
            failures = min(member.failures + 1, len(STANDING_AFTER_FAILURES) - 1)
            if (failures, error) == (member.failures, member.error):
                return member
            return replace(member, failures=failures, error=error)
        case Answered(advert, at):
            believed = member if at < member.doubted_at else _believed(member)
            if at < member.heard_at:  # what we know is newer; the answer still proves that it answers
                return replace(believed, failures=0, error=None)
            return replace(believed, advert=advert, failures=0, error=None, heard_at=at)
        case Overheard(advert, at):
            if at < member.heard_at:
                return member
            return replace(member, advert=advert, heard_at=at)
        case _:
            assert_never(fact)


def _contradicted(member: Member, fact: Contradicted) -> Member:
    """It gets no request at that version; and at none, where there are too many of them."""
    if fact.version in member.contradicted or fact.at < member.heard_at:
        return member
    contradicted = member.contradicted | VersionSet.only(fact.version)
    if len(contradicted.ranges) > MOST_CONTRADICTED and member.advert is not None:
        contradicted = member.advert.versions
    return replace(member, contradicted=contradicted, doubted_at=fact.at)


def _believed(member: Member) -> Member:
    """Without the doubts that requests raised."""
    return replace(member, refusing=False, contradicted=NOTHING)
