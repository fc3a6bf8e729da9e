"""Checks every stage that an exchange enters against the table, while a test runs."""

from __future__ import annotations

from typing import Any, Final, final

from gateway.dataplane.exchange.exchange import Exchange
from gateway.dataplane.exchange.stages import DECIDING, TRANSITIONS, Stage

_SLOT: Final = Exchange.__dict__["stage"]


@final
class CheckedStage:
    """Stands in for the attribute `Exchange.stage`; keeps the transitions that were made."""

    def __init__(self) -> None:
        self.made: list[tuple[Stage, Stage]] = []

    def __get__(self, exchange: Any, owner: type) -> Any:
        return _SLOT.__get__(exchange, owner)

    def __set__(self, exchange: Any, stage: Stage) -> None:
        try:
            before = _SLOT.__get__(exchange, Exchange)
        except AttributeError:
            assert stage is DECIDING, f"an exchange begins in {stage!r}"
        else:
            self.made.append((before, stage))
            assert stage in TRANSITIONS[before], f"from {before!r} to {stage!r}"
        _SLOT.__set__(exchange, stage)
