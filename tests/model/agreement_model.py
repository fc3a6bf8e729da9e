"""All that several replicas, one store and the network between them can do, with the ladder in between.

The model is a graph. A state holds the newest record's levels, and all about each replica. Every event that
may happen next is an edge: votes and pins of any kind, deadlines that pass, messages that are late or lost,
crashes, restarts with a state file and without, removals by others. A partition is these for some replicas.

Steps and answers are those of `core.agreement`, called for all votes and remembered. Replicas are
interchangeable, so their states are kept sorted. A *ghost* is a registration that a process without its file
has left behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import TypeAlias

from gateway.core.agreement.attachment import Answer, answer
from gateway.core.agreement.record import Level
from tests.model.record_model import Contents, Universe, following, leading
from tests.model.replica_model import (
    ALL_RULES,
    ATTACHED,
    DETACHED,
    FLIGHTS,
    HELPFUL,
    HELPFUL_AWAY,
    MODES,
    Replica,
    Rules,
    after_step,
    moves,
)

State: TypeAlias = tuple[int, ...]
"""The newest contents; whether a registration is left that nobody uses; what a step that is under way will
write, or -1; the replicas, by number and sorted."""


class Model:
    """Some replicas of one service, under `rules`."""

    def __init__(self, universe: Universe, replicas: int, rules: Rules = ALL_RULES) -> None:
        self.universe, self.rules = universe, rules
        self._contents: dict[Contents, int] = {}
        self.contents: list[Contents] = []
        self._numbers: dict[Replica, int] = {}
        self.replicas: list[Replica] = []
        # The same replica and the same record come again and again.
        self._moves_of = cache(self._find_moves)
        self._after_step_of = cache(self._find_after_step)
        self._following = cache(self._find_following)
        self._leading = cache(self._find_leading)
        self._helpful_moves_of = cache(self._find_helpful_moves)
        self._signs_of = cache(self._find_signs)
        newest = self._number_of(universe.first)
        self.start: State = (newest, 0, -1, *([self._intern(Replica())] * replicas))

    # -- what may happen

    def events(self, state: State) -> Iterator[tuple[str, State]]:
        """Every event that may happen next, and the state after it."""
        newest, ghost, plan, *numbers = state
        for at, number in enumerate(numbers):
            others = numbers[:at] + numbers[at + 1 :]
            if number in numbers[:at]:
                continue  # the same happened to one that is like it
            for after, left_behind, label in self._moves_of(number, newest):
                yield label, (newest, ghost | left_behind, plan, *sorted((*others, after)))
        if ghost:
            yield "a registration that nobody uses is ended", (newest, 0, plan, *numbers)
        for contents in self.steps(state):
            yield "a step", self._after_step(contents, ghost, plan, numbers)
            if plan < 0 and not self.rules.guarded_step:
                yield "a step is computed", (newest, ghost, contents, *numbers)
        if plan >= 0:
            yield "the step is written", self._after_step(plan, ghost, -1, numbers)

    def steps(self, state: State) -> tuple[int, ...]:
        """The contents of every record that may be next."""
        newest, ghost, _, *numbers = state
        replicas = [self.replicas[number] for number in numbers]
        acks = [one.live == 2 or not self.rules.acknowledged for one in replicas if one.live]
        away = ghost or any(one.known and not one.live for one in replicas)
        return self._following(newest, tuple(sorted(acks)), not (away and self.rules.registered))

    def _find_following(self, newest: int, acks: tuple[bool, ...], all_attached: bool) -> tuple[int, ...]:
        found = following(self.universe, self.contents[newest], acks, all_attached=all_attached)
        for _ in range(0 if self.rules.one_level else 2):
            more = (following(self.universe, each, acks, all_attached=all_attached) for each in found)
            found = found.union(*more)
        return tuple(map(self._number_of, sorted(found)))

    def _after_step(self, contents: int, ghost: int, plan: int, numbers: list[int]) -> State:
        return (contents, ghost, plan, *sorted(map(self._after_step_of, numbers)))

    def _find_after_step(self, number: int) -> int:
        return self._intern(after_step(self.replicas[number], self.rules))

    def _find_moves(self, number: int, newest: int) -> tuple[tuple[int, int, str], ...]:
        return tuple(
            (self._intern(after), int(left_behind), label)
            for label, after, left_behind in moves(self.replicas[number], newest, self.rules)
        )

    def _intern(self, one: Replica) -> int:
        number = self._numbers.setdefault(one, len(self.replicas))
        if number == len(self.replicas):
            self.replicas.append(one)
        return number

    def _number_of(self, contents: Contents) -> int:
        number = self._contents.setdefault(contents, len(self.contents))
        if number == len(self.contents):
            self.contents.append(contents)
        return number

    # -- what clients see

    def is_wrong(self, state: State) -> bool:
        """Whether a version is served here and refused there, or offered by one attached replica and neither
        served nor refused by another."""
        served = refused = offered = missing = 0
        for number in state[3:]:
            signs = self._signs_of(number)
            served, refused = served | signs[0], refused | signs[1]
            offered, missing = offered | signs[2], missing | signs[3]
        return bool(served & refused or offered & missing)

    def _find_signs(self, number: int) -> tuple[int, int, int, int]:
        """Of one replica, as bits: the versions that it serves, that it refuses, and if it is attached those
        that it offers and those that it does not serve."""
        one = self.replicas[number]
        signs = [0, 0, 0, 0]
        if one.mode in {ATTACHED, DETACHED}:
            attached = one.mode == ATTACHED
            for at, level in enumerate(self.contents[one.held].answers()):
                given = answer(level, attached=attached or not self.rules.detached_never_refuses)
                signs[0] |= (given is Answer.SERVE) << at
                signs[1] |= (given is Answer.REFUSE) << at
                signs[2] |= (attached and level is Level.OFFERED) << at
                signs[3] |= (attached and given is not Answer.SERVE) << at
        return signs[0], signs[1], signs[2], signs[3]

    # -- searches

    def reachable(self) -> set[State]:
        """Every state that can be reached. Raises `Wrong` at the first that is wrong, with the way there."""
        before: dict[State, tuple[str, State] | None] = {self.start: None}
        waiting = deque([self.start])
        while waiting:
            state = waiting.popleft()
            for label, after in self.events(state):
                if after not in before:
                    before[after] = (label, state)
                    if self.is_wrong(after):
                        raise Wrong(self._way_to(after, before))
                    waiting.append(after)
        return set(before)

    def unfinished(self, states: set[State], *, up: bool, return_: bool) -> State | None:
        """A state from which the faults' end does not lead to everybody's agreement; None: there is none.

        From then on all replicas want the same, nothing fails and nothing is lost, in any order of events.
        From each of `states` every way must come to an end, and the end must be the goal. `return_`: those
        that have crashed come back; else they are away for good, and their registrations end at last.
        """
        finished: set[State] = set()
        for first in states:
            if first in finished:
                continue
            open_ways: dict[State, Iterator[State]] = {first: self._helpful(first, up, return_)}
            path = [first]
            while path:
                state = path[-1]
                after = next((each for each in open_ways[state] if each not in finished), None)
                if after is None:
                    path.pop()
                    del open_ways[state]
                    finished.add(state)
                    if next(self._helpful(state, up, return_), None) is None and not self._is_goal(state, up):
                        return state
                elif after in open_ways:
                    return after  # a circle
                else:
                    open_ways[after] = self._helpful(after, up, return_)
                    path.append(after)
        return None

    def _helpful(self, state: State, up: bool, return_: bool) -> Iterator[State]:
        """What happens when nothing fails any more."""
        newest, ghost, _, *numbers = state
        for at, number in enumerate(numbers):
            if number in numbers[:at]:
                continue
            others = numbers[:at] + numbers[at + 1 :]
            for after in self._helpful_moves_of(number, newest, return_):
                yield (newest, ghost, -1, *sorted((*others, after)))
        if ghost:
            yield (newest, 0, -1, *numbers)
        replicas = [self.replicas[number] for number in numbers]
        live = tuple(sorted(one.live == 2 for one in replicas if one.live))
        away = ghost or any(one.known and not one.live for one in replicas)
        if any(one.mode == ATTACHED for one in replicas):
            for contents in self._leading(newest, live, not away, up):
                yield self._after_step(contents, ghost, -1, numbers)

    def _find_leading(
        self, newest: int, live: tuple[bool, ...], all_attached: bool, up: bool
    ) -> tuple[int, ...]:
        found = leading(self.universe, self.contents[newest], live, all_attached=all_attached, up=up)
        return tuple(map(self._number_of, found))

    def _find_helpful_moves(self, number: int, newest: int, return_: bool) -> tuple[int, ...]:
        one = self.replicas[number]
        labels = HELPFUL if return_ or one.mode in {ATTACHED, DETACHED} else HELPFUL_AWAY
        return tuple(after for after, _, label in self._moves_of(number, newest) if label in labels)

    def _is_goal(self, state: State, up: bool) -> bool:
        """Whether everybody who is there holds the record that all want, and nobody else is waited for."""
        newest, _, _, *numbers = state
        replicas = [self.replicas[number] for number in numbers]
        attached = [one for one in replicas if one.mode == ATTACHED]
        wanted = Level.OFFERED if up else Level.REFUSED
        return all(one.current and one.live == 2 for one in attached) and (
            not attached or all(level is wanted for level in self.contents[newest].levels)
        )

    def _way_to(self, state: State, before: dict[State, tuple[str, State] | None]) -> list[str]:
        way = [f"in the end: {self.describe(state)}"]
        while (step := before[state]) is not None:
            label, earlier = step
            way.append(f"{label}: {self.describe(state)}")
            state = earlier
        return way[::-1]

    def describe(self, state: State) -> str:
        """For people."""
        newest, ghost, plan, *numbers = state
        levels = "/".join(str(int(level)) for level in self.contents[newest].levels)
        found = [f"record {levels}{' ghost' * ghost}{f' plan {plan}' if plan >= 0 else ''}"]
        for number in numbers:
            one = self.replicas[number]
            held = "/".join(str(int(level)) for level in self.contents[one.held].levels)
            words = [MODES[one.mode], held if one.mode else "", FLIGHTS[one.flight]]
            words += [
                "live" if one.live else "",
                "acked" if one.live == 2 else "",
                "known" if one.known else "",
            ]
            found.append(" ".join(word for word in words if word))
        return "; ".join(found)


class Wrong(Exception):
    """A wrong state can be reached. `way`: the events on the shortest way there, with the states."""

    def __init__(self, way: list[str]) -> None:
        super().__init__("\n".join(way))
        self.way = way
