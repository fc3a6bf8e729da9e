"""Checks every step of exchanges and connections against the tables of the page, while a test runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, final

import pytest

from gateway.dataplane.backends import phases as backend_phases
from gateway.dataplane.backends.connection import BackendConnection
from gateway.dataplane.edge import phases as client_phases
from gateway.dataplane.edge.client_connection import ClientConnection
from gateway.dataplane.exchange.exchange import Exchange
from gateway.dataplane.exchange.stages import Stage
from gateway.runtime.compiled import is_compiled

State = TypeVar("State", bound=IntEnum)

ARCHITECTURE: Final = Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md"


def part_of_page(begin: str, end: str) -> str:
    """The part of the page between two texts."""
    return ARCHITECTURE.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]


def phases_on_page(heading: str, phases: type[State]) -> dict[State, frozenset[State]]:
    """The phases in a table of the page, each with those that may follow."""
    rows = re.findall(
        r"^\| `(\w+)` \| \S.* \|(.*)\|$", part_of_page(f"\n### {heading}\n", "\n#"), re.MULTILINE
    )
    table = {
        phases[name.upper()]: frozenset(phases[each.upper()] for each in re.findall(r"`(\w+)`", after))
        for name, after in rows
    }
    assert [*table] == [*phases], "the page has a row for each, in their order"
    return table


def stages_on_page() -> dict[Stage, frozenset[Stage]]:
    """The stages in the picture of the page, each with those that may follow."""
    picture = part_of_page("```mermaid\nstateDiagram-v2\n", "```")
    arrows = re.findall(r"^    (\S+) --> (\S+) : \S.*$", picture, re.MULTILINE)
    assert len({*arrows}) == len(picture.splitlines()), "every line is an arrow of its own, with a reason"
    assert {arrow for arrow in arrows if "[*]" in arrow} == {("[*]", "deciding"), ("ended", "[*]")}
    return {
        stage: frozenset(
            Stage[after.upper()]
            for before, after in arrows
            if before == stage.name.lower() and after != "[*]"
        )
        for stage in Stage
    }


BACKEND_PHASES: Final = phases_on_page("A connection to a backend", backend_phases.BackendPhase)
CLIENT_PHASES: Final = phases_on_page("A client connection", client_phases.ClientPhase)
STAGES: Final = stages_on_page()


class CheckedState(Generic[State]):
    """Stands in for an attribute that holds a state; keeps the transitions that were made."""

    def __init__(
        self, owner: type, name: str, begin: State, transitions: Mapping[State, frozenset[State]]
    ) -> None:
        self.made: list[tuple[State, State]] = []
        self._owner = owner
        self._name = name
        self._slot = owner.__dict__[name]
        self._begin = begin
        self._transitions = transitions

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Not in the compiled build, whose classes cannot be changed: the sources are the same."""
        if not is_compiled():
            monkeypatch.setattr(self._owner, self._name, self)

    def __get__(self, one: Any, owner: type) -> Any:
        return self._slot.__get__(one, owner)

    def __set__(self, one: Any, state: State) -> None:
        try:
            before = self._slot.__get__(one, self._owner)
        except AttributeError:
            assert state is self._begin, f"it begins in {state!r}"
        else:
            self.made.append((before, state))
            assert state in self._transitions[before], f"from {before!r} to {state!r}"
        self._slot.__set__(one, state)


@final
class CheckedStage(CheckedState[Stage]):
    """That of exchanges. Also checks that those count as in flight whose stage says so, and no others."""

    def __init__(self) -> None:
        super().__init__(Exchange, "stage", Stage.DECIDING, STAGES)
        self._running: dict[Exchange, None] = {}

    def __set__(self, one: Any, state: Stage) -> None:
        super().__set__(one, state)
        if state is Stage.ENDED:
            self._running.pop(one, None)
        elif state is not Stage.DECIDING:
            self._running[one] = None
        else:
            return  # it knows no context yet
        context = one.context
        counted = Counter(
            each.record.service
            for each in self._running
            if each.context is context and each.stage not in {Stage.TUNNELLING, Stage.ENDED}
        )
        assert +Counter(context.in_flight_by_service) == counted


def checked_backends() -> CheckedState[backend_phases.BackendPhase]:
    """That of connections to backends."""
    return CheckedState(BackendConnection, "phase", backend_phases.CONNECTING, BACKEND_PHASES)


def checked_clients() -> CheckedState[client_phases.ClientPhase]:
    """That of client connections."""
    return CheckedState(ClientConnection, "phase", client_phases.IDLE, CLIENT_PHASES)
