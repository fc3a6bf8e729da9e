"""All that is known of all backends, and the one door by which facts enter: `Fleet.observe`.

Immutable: a fact makes a new fleet, or none when it says nothing new. What follows from the knowledge
(offers, who may be chosen) is `core.offer` and `core.selection`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias, assert_never, final

from gateway.core.backend import STANDING_AFTER_FAILURES, Backend, Member
from gateway.core.dialect import Advert
from gateway.core.service import Service


@final
@dataclass(frozen=True, slots=True)
class Answered:
    """A probe brought an advert. `at`: when its first request was sent, seconds of any monotonic clock."""

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


Fact: TypeAlias = Answered | Failed | Overheard


@final
@dataclass(frozen=True, slots=True)
class Pool:
    """The members of one service, in the configuration's order."""

    members: tuple[Member, ...]
    opened: bool = False
    """True: an offer could be made before a reload, and something that was heard then still counts. A backend
    that joins and has not been asked yet does not take the offer back."""

    @property
    def in_service(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.in_service)

    @property
    def heard_out(self) -> bool:
        """True once every member's first probe has ended and at least one advert is known: an offer can be
        made."""
        begun = self.opened or all(member.probed for member in self.members)
        return begun and any(member.advert for member in self.members)

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
        scheme, without which the known versions would mean others. So is the word of an operator who drained
        it.
        """
        pools = {}
        for service in services:
            before = (known.pools.get(service.name) if known else None) or Pool(())
            members = tuple(_enlist(service, backend, before) for backend in service.backends)
            kept = any(member.advert for member in members if member.backend.declared is None)
            pools[service.name] = Pool(members, opened=before.heard_out and kept)
        return cls(MappingProxyType(pools))

    def observe(self, service: str, backend: str, fact: Fact) -> Fleet:
        """The fleet that knows `fact`, too; this same object when it changes nothing.

        A fact about a backend that is no longer configured changes nothing, and neither does an advert whose
        request was sent before the one that brought what is known (design section 2, Knowing).
        """
        pool = self.pools.get(service)
        member = pool.member(backend) if pool else None
        if pool is None or member is None or member.backend.declared is not None:
            return self
        learned = _learn(member, fact)
        if learned is member:
            return self
        members = tuple(learned if each is member else each for each in pool.members)
        return Fleet(MappingProxyType({**self.pools, service: Pool(members, opened=pool.opened)}))


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
    """What one fact makes of one member."""
    match fact:
        case Failed(error):
            failures = min(member.failures + 1, len(STANDING_AFTER_FAILURES) - 1)
            if (failures, error) == (member.failures, member.error):
                return member
            return replace(member, failures=failures, error=error)
        case Answered(advert, at):
            if (
                at < member.heard_at
            ):  # what we know is newer; the answer still proves that the backend answers
                return replace(member, failures=0, error=None)
            return replace(member, advert=advert, failures=0, error=None, heard_at=at)
        case Overheard(advert, at):
            if at < member.heard_at:
                return member
            return replace(member, advert=advert, heard_at=at)
        case _:
            assert_never(fact)
