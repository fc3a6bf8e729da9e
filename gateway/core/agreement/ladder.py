"""The rules that move a service's record one step, by the votes of all live replicas.

    OFFERED 3   ▲ │    One step moves each version by at most one level. The next step is taken only when
    ACCEPTED 2  │ │    every live replica has acknowledged this one. So two attached replicas hold the same
    UNDECIDED 1 │ │    record or neighbours, and no version is offered by one and refused by another.
    REFUSED 0   │ ▼    1 -> 0 also waits for every registered replica that is not attached.

Any replica may compute the next record; all compute the same one from the same values. The caller writes it
only if nothing has changed since it read those values. Nothing here knows a store or a backend.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import Final, NamedTuple, final

from gateway.core.agreement.record import AgreedRecord, decides_nothing, seq_of
from gateway.core.fleet.lifecycle import Line
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, joined, unbroken, union
from gateway.core.versions.version import Scheme, Version


@final
@dataclass(frozen=True, slots=True)
class Vote:
    """Vote of one replica on an offer, by its own knowledge and its own clock (`core.agreement.votes`)."""

    rule: str
    """The replica's offer policy with its number: `at_least 2`."""
    floor: VersionSet
    """Versions of the shared offer state that the replica would keep."""
    want: VersionSet
    """Versions that the replica votes to add to those it would keep; if it keeps none, a whole new offer."""
    gives: VersionSet
    """Versions that the replica's offer policy gives by the backends that it sees."""
    cap: Version | None = None
    least: Version | None = None
    """Floor in the replica's file; None: it has none, or a live replica could not read it."""
    passed: Line | None = None
    """Enforced sunset in the replica's file that has come by its clock; None: as for `least`."""


@final
@dataclass(frozen=True, slots=True)
class LiveReplica:
    """One attached replica as the others see it in the shared store: its acknowledgement and its vote."""

    ack: int
    """Number of the agreed record that the replica and all its workers hold; 0: none."""
    vote: Vote | None = None
    """The replica's vote; None: its first round of probes brought no advertisement yet. Steps wait for it."""
    transparent: bool = False
    """Whether the replica sees legacy backends only, and nothing is on offer. Its vote is None then."""


class Target(NamedTuple):
    """Goal of the steps of an agreed record: the policy, versions and limits that they lead to."""

    rule: str
    state: VersionSet
    limit: Version | None
    """Highest version that the steps may offer to clients; None: the highest of `state`."""
    floor: Version | None = None
    """Lowest such version, unless that leaves nothing; None: the lowest of `state`."""

    @property
    def wanted(self) -> VersionSet:
        """Versions on offer when the agreed record has reached this target."""
        return self.state.within(self.limit, self.floor)


FIRST_SEQ: Final = 1


def next_record(
    record: AgreedRecord | None,
    live: Mapping[str, LiveReplica],
    registered: Collection[str],
    pin: Version | None,
    scheme: Scheme,
    raised: Version | None = None,
) -> AgreedRecord | None:
    """The agreed record that follows `record`; None: nothing is to be changed, or something is still awaited.
    `live` and `registered` are by replica id. All values are of one moment of the store."""
    seq = seq_of(record)
    votes = [replica.vote for replica in live.values() if replica.vote is not None]
    if not live or len(votes) < len(live) or any(replica.ack != seq for replica in live.values()):
        return None
    all_attached = all(replica in live for replica in registered)
    towards = target(record, votes, pin, scheme, raised)
    if record is not None and not towards.state and not all_attached:
        # What would be left could end nowhere: it would be 503 until the last one is back.
        towards = towards._replace(state=record.state)
    return step(record, towards, scheme, all_attached=all_attached)


def target(
    record: AgreedRecord | None,
    votes: Sequence[Vote],
    pin: Version | None,
    scheme: Scheme,
    raised: Version | None = None,
) -> Target:
    """The policy, versions and limits that `votes`, of every live replica, agree on. `pin` and `raised`: the
    operator's limits at run time, in place of those in the replicas' files."""
    rule, state = _agreed_state(record, votes, scheme)
    caps = [vote.cap for vote in votes if vote.cap is not None]
    floors = [vote.least for vote in votes if vote.least is not None]
    return Target(
        rule,
        state,
        min(caps, default=None) if pin is None else pin,
        max(floors, default=None) if raised is None else raised,
    )


def _agreed_state(
    record: AgreedRecord | None, votes: Sequence[Vote], scheme: Scheme
) -> tuple[str, VersionSet]:
    """The policy and versions that the votes agree on, by the first four rules of votes, in their order."""
    rules = sorted({vote.rule for vote in votes})
    wanted = reduce(and_, (vote.want for vote in votes))
    if record is None:
        return rules[0], unbroken(wanted, scheme)
    rule, state = record.rule, record.state
    if len(rules) == 1 and rules[0] != rule:
        rule = rules[0]
        state &= union(vote.gives for vote in votes) or state
    state = unbroken(state & union(vote.floor for vote in votes), scheme)
    return rule, joined(state, wanted, scheme) if state else unbroken(wanted, scheme)


def step(
    record: AgreedRecord | None, towards: Target, scheme: Scheme, *, all_attached: bool
) -> AgreedRecord | None:
    """The agreed record one step nearer to `towards`; None: it is there, or the rest must wait.
    `all_attached`: every registered replica is live, so a version may become refused."""
    if record is None or record.is_empty:
        return _begun(record, towards)
    state, wanted = towards.state, towards.wanted
    offered, accepted, opened = record.offered, record.accepted, record.open
    staying, rising = offered & wanted, (accepted - offered) & wanted
    after = replace(
        record,
        rule=towards.rule,
        state=state,
        offered=joined(staying, rising, scheme) if staying else unbroken(rising, scheme),
        accepted=offered | (opened & wanted),
        open=accepted | wanted | (NO_VERSIONS if all_attached else opened),
    )
    return None if after == record else replace(after, seq=record.seq + 1)


def _begun(record: AgreedRecord | None, towards: Target) -> AgreedRecord | None:
    """The first record that offers versions about which nothing was decided. All replicas answer 503 until
    they hold it, which is one level below `ACCEPTED` and one above `REFUSED`."""
    state = towards.state
    if record is None:
        return AgreedRecord(FIRST_SEQ, towards.rule, state, NO_VERSIONS, state, state) if state else None
    if not state and towards.rule == record.rule:
        return None
    return replace(
        record,
        seq=record.seq + 1,
        rule=towards.rule,
        state=state,
        offered=NO_VERSIONS,
        accepted=state,
        open=state,
    )


def all_transparent(record: AgreedRecord | None, live: Iterable[LiveReplica]) -> bool:
    """Whether nothing is negotiated: nothing is on offer, and each live replica sees legacy backends only."""
    return decides_nothing(record) and all(replica.transparent for replica in live)


def legacy_only(record: AgreedRecord | None, live: Iterable[LiveReplica]) -> bool:
    """Whether requests go to legacy backends only: nothing is on offer, and a live replica sees no others."""
    return decides_nothing(record) and any(replica.transparent for replica in live)


def awaited(record: AgreedRecord | None, live: Mapping[str, LiveReplica]) -> tuple[str, ...]:
    """Ids of the live replicas that a record's next step waits for: not acknowledged, or without a vote."""
    seq = seq_of(record)
    return tuple(sorted(name for name, replica in live.items() if replica.ack != seq or replica.vote is None))
