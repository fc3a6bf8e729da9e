"""Reports about the neighbours of a gateway: replicas and their agreement, an engine beside it, names and
sources of backends. Plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, final

from gateway.telemetry.process_log import named


@final
class ReplicaReport(NamedTuple):
    """One registered replica, as this replica sees it."""

    id: str
    name: str
    host: str
    release: str
    attached: bool
    """Whether the replica is live for every service that it is registered for."""
    seen_at: float | None
    """Wall-clock seconds of the replica's last heartbeat that this one has seen; None: never."""
    holds: tuple[str, ...] = ()
    """Services whose next step the replica holds back: it has not acknowledged, has no vote, votes against a
    change, or is registered and not attached while a version is to be refused."""
    differs: tuple[str, ...] = ()
    """Services for which the replica's configuration differs from this one's in what clients can notice."""


@final
class ServiceReport(NamedTuple):
    """State of this replica in the agreement of replicas about one service."""

    attached: bool
    since: float
    """Wall-clock seconds at which this replica attached to the agreement or detached from it."""
    seq: int
    """Number of the agreed record that this replica holds; 0: none."""
    answers_for: float | None = None
    """Seconds for which a detached replica still answers; None: it is attached, or has no such end."""
    awaited: tuple[str, ...] = ()
    """Ids of the replicas whose acknowledgement the next step of the offer waits for."""
    problem: str = ""
    """Sentence that says why this replica cannot attach: it cannot read what the store holds, for example."""
    busy: Mapping[str, tuple[str, ...]] = {}
    """Ids of the live replicas that have requests in flight to a drained backend, by backend."""
    away: tuple[str, ...] = ()
    """Ids of registered replicas that are not live, whose requests in flight are unknown."""


@final
class AgreementReport(NamedTuple):
    """State of the agreement of several replicas at this moment."""

    id: str
    store_error: str
    """Sentence that says why the shared store does not respond; empty: it does."""
    replicas: tuple[ReplicaReport, ...]
    services: Mapping[str, ServiceReport]
    forget: float | None = None
    """Seconds for which a detached replica still answers; None: for ever."""
    joining: bool = False
    """Whether this replica has yet to join the others after its start, within one TTL: it is not ready."""

    @property
    def attached(self) -> bool:
        """Whether this replica is attached for every service."""
        return all(each.attached for each in self.services.values())

    @property
    def since(self) -> float | None:
        """Wall-clock seconds at which this replica last attached, or first detached; None: no service."""
        if self.attached:
            return max((each.since for each in self.services.values()), default=None)
        return min(each.since for each in self.services.values() if not each.attached)

    @property
    def answers_for(self) -> float | None:
        """Least seconds for which this detached replica still answers for a service; None: no such end."""
        found = (each.answers_for for each in self.services.values())
        return min((each for each in found if each is not None), default=None)

    def name_of(self, replica: str) -> str:
        """Returns the name of a replica, with its id if it is ambiguous; its id if it is not registered."""
        names = {each.id: each.name for each in self.replicas}
        name = names.get(replica) or replica
        return f"{name} ({replica})" if list(names.values()).count(name) > 1 else name

    def holding(self, service: str) -> tuple[str, ...]:
        """Names of the replicas that hold the next step of a service back."""
        return tuple(self.name_of(each.id) for each in self.replicas if service in each.holds)

    def why_held(self, service: str) -> str:
        """Describes what a service's next step waits for, with replica ids for `forget`; empty: unknown."""
        about = self.services.get(service)
        if about is None:
            return ""
        if not about.attached:
            return f"this replica is detached: {about.problem or self.store_error or 'it has not joined yet'}"
        waits = [each for each in self.replicas if service in each.holds or each.id in about.awaited]
        texts = [f"{each.name} ({each.id}) {_awaited_for(each, about)}" for each in waits]
        return f"held back by replicas: {named(texts)}" if texts else ""


def _awaited_for(replica: ReplicaReport, about: ServiceReport) -> str:
    if not replica.attached:
        return "is not attached"
    if replica.id in about.awaited:
        return "has not acknowledged it"
    return "does not vote for it"


@final
class EngineReport(NamedTuple):
    """State of an engine, which forwards requests beside the gateway, at this moment."""

    name: str
    """Name of the engine's product: `haproxy`."""
    release: str
    """Version of the engine; empty: it has not answered yet."""
    pid: int | None
    """Id of the engine's process that answered last; None: none has."""
    problem: str
    """Sentence that says why the engine does not have the present tables; empty: it has."""
    rows: Mapping[str, int]
    """Number of rows in the engine's tables by service: kinds of requests that bypass the gateway."""
    held: Mapping[str, int]
    """Lowest number of the agreed record by which a process of the engine may serve, by service."""
    draining: int
    missing: tuple[str, ...]
    """Names of route sets (server pools) that the engine's tables need and its configuration lacks."""
    inexpressible: Mapping[str, str]
    """Reasons, by service, why all of its requests go through the gateway."""
    updates: int
    failures: int
    in_flight: Mapping[str, int] = {}
    """Requests in flight of the engine by drained member; at least 1 if the number is not known."""


def with_engine(in_flight: Mapping[str, int], report: EngineReport | None) -> Mapping[str, int]:
    """Adds the requests in flight of an engine to those of the gateway, by member key."""
    if report is None or not report.in_flight:
        return in_flight
    return {**in_flight, **{key: in_flight.get(key, 0) + more for key, more in report.in_flight.items()}}


class SourceReport(NamedTuple):
    """State of one source that lists backends."""

    service: str
    source: str
    listed: int
    unlisted: int
    """Number of backends that stay unlisted: half are leaving already, or the source listed nothing yet."""
    leaving: int
    answers: int
    failures: int
    """Number of queries to the source that gave no list: failed, refused or empty."""
    answered_at: float | None
    """Wall-clock seconds of the source's last list; None: never."""
    error: str | None


class NameReport(NamedTuple):
    """State of the lookups of one host name."""

    host: str
    found_at: float | None
    """Wall-clock seconds of the last lookup that found addresses of the host; None: never."""
    failures: int
