"""One replica of the agreement's model: what can happen to it, and the rules of the protocol.

Nothing is timed: a message may land at any time, a deadline pass at any time. What the arithmetic of
`core.agreement.attachment` promises about the order of a deadline and a removal is the rule `removal_waits`.
All replicas of a service together are `tests.model.agreement_model`.

    mode       out: it answers nothing; down: it has crashed, and has a state file
    current    what it holds is the newest record; while it reads to join, what it has read
    live       0: not in the store; 1: with an older ack; 2: with the ack of the newest record
    flight     what of its own is under way; a replica does one thing at a time
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple, TypeAlias

OUT, ATTACHED, DETACHED, DOWN = range(4)
MODES: Final = ("out", "attached", "detached", "down")
NOTHING, READ, ACK, BEAT, LATE_BEAT = range(5)
FLIGHTS: Final = ("", "read", "ack", "beat", "late beat")


@dataclass(frozen=True)
class Rules:
    """The rules of the protocol. False: it is taken away."""

    acknowledged: bool = True
    """A step waits until every live replica has acknowledged the record before."""
    registered: bool = True
    """A step from 1 to 0 waits until every registered replica is live."""
    one_level: bool = True
    """A step moves a version by one level at most."""
    guarded_step: bool = True
    """A step is written only if nothing has changed since its writer read."""
    guarded_join: bool = True
    """A join is written only if the record is still the one that was read."""
    silent_until_joined: bool = True
    """A replica answers nothing before its join is written."""
    adopted_before_ack: bool = True
    """A replica acknowledges what it holds, not what it has only read."""
    saved_before_ack: bool = True
    """What it acknowledges, in a join too, is in its state file before."""
    detached_never_refuses: bool = True
    """After its deadline a replica answers 503 where it would refuse."""
    removal_waits: bool = True
    """`live` is removed only after its replica's deadline has passed."""
    deadline_from_sending: bool = True
    """A beat counts from when it was sent: one whose answer comes late attaches nobody."""
    conditional_beat: bool = True
    """A beat is written only if the replica's own `live` stands."""
    registration_stays: bool = True
    """A registration outlives its `live`."""
    restart_detached: bool = True
    """With a state file a replica comes up detached."""
    forgets: bool = True
    """A replica stops answering before its registration may be ended."""


ALL_RULES: Final = Rules()
RULES: Final = tuple(field.name for field in fields(Rules))


def without(rule: str) -> Rules:
    """All rules but one."""
    return replace(ALL_RULES, **{rule: False})


class Replica(NamedTuple):
    """One replica, its keys in the store, and what is under way between them."""

    mode: int = OUT
    held: int = 0
    """Which contents it holds; 0 if it is out."""
    saved: int = -1
    """Which contents its state file has; -1: it has none."""
    current: bool = False
    """What it holds, or has read to join with, is the newest record."""
    live: int = 0
    known: bool = False
    """It is registered."""
    flight: int = NOTHING
    seen: int = 0
    """Which contents a read has brought."""


Move: TypeAlias = tuple[str, Replica, bool]
"""What happens, the replica after it, and whether a registration is left behind that nobody uses."""


def moves(one: Replica, newest: int, rules: Rules) -> Iterator[Move]:
    """All that can happen to one replica while the record does not change."""
    yield from _joining(one, newest, rules)
    yield from _following(one, newest, rules)
    yield from _beating(one, rules)
    yield from _failing(one, rules)
    yield from _removing(one, rules)


def _joining(one: Replica, newest: int, rules: Rules) -> Iterator[Move]:
    if one.mode == DETACHED and one.live:
        # Restarted, so that `live` is of the process before. The guard makes read and join one event.
        saved = newest if rules.saved_before_ack else one.saved
        yield "joins anew", Replica(ATTACHED, newest, saved, current=True, live=2, known=True), False
    if one.mode not in {OUT, DETACHED} or (one.mode == DETACHED and one.live):
        return
    if one.flight == NOTHING:
        yield "reads to join", one._replace(flight=READ, seen=newest, current=True), False
    elif one.flight == READ:
        yield "loses the answer", _idle(one), False
        saved = one.seen if rules.saved_before_ack else one.saved
        if one.mode == DETACHED and saved != one.saved:
            yield "saves what it joins with", one._replace(saved=saved), False
        elif one.current or not rules.guarded_join:
            live = 2 if one.current else 1
            joined = Replica(ATTACHED, one.seen, saved, one.current, live, known=True)
            yield "joins", joined, False
            if one.mode == OUT and one.known:
                yield "joins as another", joined, True
        if one.mode == OUT and not rules.silent_until_joined:
            early = Replica(ATTACHED, one.seen, -1, current=False, live=one.live, known=one.known)
            yield "answers before it has joined", early, False


def _following(one: Replica, newest: int, rules: Rules) -> Iterator[Move]:
    if one.flight == ACK:
        yield "its ack lands", one._replace(live=2, flight=NOTHING), False
        yield "its ack is lost", one._replace(flight=NOTHING), False
    if one.mode != ATTACHED:
        return
    if one.flight == READ:
        yield "adopts", one._replace(held=one.seen, current=True, flight=NOTHING, seen=0), False
        yield "loses the answer", one._replace(flight=NOTHING, seen=0), False
        if not rules.adopted_before_ack:
            yield "acknowledges what it has read", one._replace(flight=ACK, seen=0), False
    elif one.flight == NOTHING and one.live and not one.current:
        yield "reads", one._replace(flight=READ, seen=newest), False
    elif one.flight == NOTHING and one.current:
        if one.saved != one.held:
            yield "saves", one._replace(saved=one.held), False
        if one.live == 1 and (one.saved == one.held or not rules.saved_before_ack):
            yield "acknowledges", one._replace(flight=ACK), False


def _beating(one: Replica, rules: Rules) -> Iterator[Move]:
    """Of one that is attached already a good beat changes nothing."""
    if one.mode == DETACHED and one.flight == NOTHING and (one.live or not rules.conditional_beat):
        yield "its beat lands", one._replace(flight=BEAT), False
    if one.flight in {BEAT, LATE_BEAT}:
        yield "its beat is answered", one._replace(mode=ATTACHED, flight=NOTHING), False
        yield "its beat is not answered", one._replace(flight=NOTHING), False


def _failing(one: Replica, rules: Rules) -> Iterator[Move]:
    if one.mode == ATTACHED:
        detached = one._replace(mode=DETACHED)
        yield "its deadline passes", detached if one.flight == ACK else _idle(detached, one.current), False
    if one.mode in {ATTACHED, DETACHED}:
        flight = ACK if one.flight == ACK else NOTHING
        if one.saved >= 0:
            current = one.current and one.saved == one.held and bool(one.live)
            yield (
                "crashes",
                Replica(DOWN, one.saved, one.saved, current, one.live, one.known, flight),
                False,
            )
        yield "crashes without a file", Replica(OUT, live=one.live, known=one.known, flight=flight), False
    if one.mode == DOWN:
        restarted = one._replace(mode=DETACHED if rules.restart_detached else ATTACHED)
        yield "restarts with its file", restarted, False
        lost = Replica(OUT, live=one.live, known=one.known, flight=one.flight)
        yield "its file is lost or too old", lost, False
    if one.mode == DETACHED:
        yield "is detached for too long", Replica(OUT, live=one.live, known=one.known), False


def _removing(one: Replica, rules: Rules) -> Iterator[Move]:
    """What the others do with its keys."""
    if one.live and (one.mode != ATTACHED or not rules.removal_waits):
        after = one._replace(live=0, known=one.known and rules.registration_stays)
        if one.flight == BEAT and not rules.deadline_from_sending:
            after = after._replace(flight=LATE_BEAT)
        elif one.flight in {ACK, BEAT}:
            after = after._replace(flight=NOTHING)
        if one.mode in {DETACHED, DOWN}:
            after = after._replace(current=False)
        yield "its `live` is removed", after, False
    if one.known and not one.live and (one.mode == OUT or not rules.forgets):
        yield "its registration is ended", one._replace(known=False), False


HELPFUL: Final = frozenset(
    {
        "reads to join",
        "saves what it joins with",
        "joins",
        "joins anew",
        "reads",
        "adopts",
        "saves",
        "acknowledges",
        "its ack lands",
        "its beat lands",
        "its beat is answered",
        "restarts with its file",
        "its `live` is removed",
        "its registration is ended",
    }
)
"""What happens when nothing fails any more."""

HELPFUL_AWAY: Final = frozenset(
    {
        "its ack lands",
        "its `live` is removed",
        "its file is lost or too old",
        "loses the answer",
        "its registration is ended",
    }
)
"""The same of one that does not come back."""


def _idle(one: Replica, current: bool = False) -> Replica:
    """With nothing under way."""
    return one._replace(flight=NOTHING, seen=0, current=current)


def after_step(one: Replica, rules: Rules) -> Replica:
    """The same replica when there is a newer record."""
    one = one._replace(current=False, live=min(one.live, 1))
    joins = one.flight == READ and one.mode != ATTACHED
    if one.flight == ACK or (one.flight == READ and not (joins and not rules.guarded_join)):
        return one._replace(flight=NOTHING, seen=0)
    return one
