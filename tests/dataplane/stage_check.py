"""Checks every step of exchanges and connections against their tables, while a test runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Generic, TypeVar, final

import pytest

from gateway.dataplane.backends import phases as backend_phases
from gateway.dataplane.backends.connection import BackendConnection
from gateway.dataplane.edge import phases as client_phases
from gateway.dataplane.edge.client_connection import ClientConnection
from gateway.dataplane.exchange import stages
from gateway.dataplane.exchange.exchange import Exchange
from gateway.dataplane.exchange.stages import IN_FLIGHT, Stage
from gateway.runtime.compiled import is_compiled

State = TypeVar("State", bound=IntEnum)


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
        super().__init__(Exchange, "stage", stages.DECIDING, stages.TRANSITIONS)
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
            if each.context is context and each.stage in IN_FLIGHT
        )
        assert +Counter(context.in_flight_by_service) == counted


def checked_backends() -> CheckedState[backend_phases.BackendPhase]:
    """That of connections to backends."""
    return CheckedState(BackendConnection, "phase", backend_phases.CONNECTING, backend_phases.TRANSITIONS)


def checked_clients() -> CheckedState[client_phases.ClientPhase]:
    """That of client connections."""
    return CheckedState(ClientConnection, "phase", client_phases.IDLE, client_phases.TRANSITIONS)
