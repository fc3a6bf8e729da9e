"""What is told about the neighbours of a gateway: replicas and what they agree on, an engine beside it, names
and sources of backends. Plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final

_MAX_NAMED: Final = 4
"""Replicas that a clause names; the others are only counted."""


@final
class ReplicaReport(NamedTuple):
    """One registered replica, as this one sees it."""

    id: str
    """Of one process."""
    name: str
    host: str
    release: str
    attached: bool
    """It is live for every service that it is registered for."""
    seen_at: float | None
    """Wall-clock seconds of its last sign that this one has seen; None: never."""
    holds: tuple[str, ...] = ()
    """Services of which it holds the next step back: it has not acknowledged, has no vote, votes against a
    change, or is registered and not attached while a version is to be refused."""
    differs: tuple[str, ...] = ()
    """Services about which its configuration differs from this one's in what clients can notice."""


@final
class ServiceReport(NamedTuple):
    """How this replica stands to one service."""

    attached: bool
    since: float
    """Wall-clock seconds since it is attached, or detached."""
    seq: int
    """Of the record that it holds; 0: none."""
    answers_for: float | None = None
    """Seconds for which a detached replica goes on answering; None: it is attached, or has no such end."""
    awaited: tuple[str, ...] = ()
    """Ids of the replicas for which the next step waits."""
    problem: str = ""
    """Why it cannot attach, a sentence: it cannot read what the store holds, for instance."""
    idle: frozenset[str] = frozenset()
    """Drained backends to which no replica has a request in flight."""
    not_idle: Mapping[str, tuple[str, ...]] = {}
    """By drained backend: ids of the live replicas that have requests in flight to it."""
    away: tuple[str, ...] = ()
    """Ids of registered replicas that are not live: nobody knows what they have in flight."""


@final
class AgreementReport(NamedTuple):
    """Everything about it at this moment."""

    id: str
    """This replica's own."""
    store_error: str
    """Why the store does not answer, a sentence; empty: it does."""
    replicas: tuple[ReplicaReport, ...]
    """All registered ones, this one too."""
    services: Mapping[str, ServiceReport]
    forget: float | None = None
    """Seconds for which a detached replica goes on answering; None: for ever."""
    joining: bool = False
    """It has not joined the others since its start, and one TTL has not passed: nobody is sent here yet."""

    @property
    def attached(self) -> bool:
        """Whether this replica is attached for every service."""
        return all(each.attached for each in self.services.values())

    @property
    def since(self) -> float | None:
        """Wall-clock seconds since it is attached for every service, or detached from one. None: it has no
        service."""
        if self.attached:
            return max((each.since for each in self.services.values()), default=None)
        return min(each.since for each in self.services.values() if not each.attached)

    @property
    def answers_for(self) -> float | None:
        """As in `ServiceReport`, of the service that ends first."""
        found = (each.answers_for for each in self.services.values())
        return min((each for each in found if each is not None), default=None)

    def name_of(self, replica: str) -> str:
        """How people know it: its name, with the id where two have that name. Of an id that is not
        registered the id."""
        names = {each.id: each.name for each in self.replicas}
        name = names.get(replica) or replica
        return f"{name} ({replica})" if list(names.values()).count(name) > 1 else name

    def holding(self, service: str) -> tuple[str, ...]:
        """Names of the replicas that hold the next step of a service back."""
        return tuple(self.name_of(each.id) for each in self.replicas if service in each.holds)

    def why_held(self, service: str) -> str:
        """For whom and for what the next step of a service waits, one clause; empty: for nothing that is
        known here. Each replica is named with its id, because `forget` takes one."""
        about = self.services.get(service)
        if about is None:
            return ""
        if not about.attached:
            return f"this replica is detached: {about.problem or self.store_error or 'it has not joined yet'}"
        waits = [each for each in self.replicas if service in each.holds or each.id in about.awaited]
        texts = [f"{each.name} ({each.id}) {_awaited_for(each, about)}" for each in waits[:_MAX_NAMED]]
        if len(waits) > _MAX_NAMED:
            texts.append(f"{len(waits) - _MAX_NAMED} more")
        return f"held back by replicas: {', '.join(texts)}" if texts else ""


def _awaited_for(replica: ReplicaReport, about: ServiceReport) -> str:
    if not replica.attached:
        return "is not attached"
    if replica.id in about.awaited:
        return "has not acknowledged it"
    return "does not vote for it"


@final
class EngineReport(NamedTuple):
    """How an engine stands to the gateway at this moment."""

    name: str
    """`haproxy`."""
    release: str
    """Its own version; empty: it has not answered yet."""
    pid: int | None
    """Of the process that answered last; None: none has."""
    problem: str
    """Why it does not follow, one sentence; empty: it does."""
    rows: Mapping[str, int]
    """By service: ways of asking that go past the gateway."""
    held: Mapping[str, int]
    """By service: the lowest seq of its record by which a process of the engine may serve."""
    draining: int
    """Earlier processes that may still serve."""
    missing: tuple[str, ...]
    """Pools that the engine's configuration lacks."""
    inexpressible: Mapping[str, str]
    """By service: why all of its requests go through the gateway."""
    updates: int
    """Tables that were put in force."""
    failures: int
    """Attempts that failed."""
    in_flight: Mapping[str, int] = {}
    """By key of each drained member: requests that processes of the engine may have there; one at least
    where that is not known."""


def with_engine(in_flight: Mapping[str, int], report: EngineReport | None) -> Mapping[str, int]:
    """Requests in flight by member key: those of the gateway, and what the engine beside it may have."""
    if report is None or not report.in_flight:
        return in_flight
    return {**in_flight, **{key: in_flight.get(key, 0) + more for key, more in report.in_flight.items()}}


class SourceReport(NamedTuple):
    """What one source of backends has said."""

    service: str
    source: str
    listed: int
    """Backends that it lists."""
    unlisted: int
    """Those that it lists no more, and that stay: half of them are leaving already, or they were restored and
    nothing was listed yet."""
    leaving: int
    answers: int
    failures: int
    """Looks without a list: failed, refused or empty."""
    answered_at: float | None
    """Wall-clock seconds; None: never."""
    error: str | None


class NameReport(NamedTuple):
    """What is known of one host name."""

    host: str
    found_at: float | None
    """Wall-clock seconds of the last lookup that found addresses; None: none has."""
    failures: int
