"""What became of the requests of all clients behind one front, in numbers. Counts, and decides nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import final

from gateway.demo.clients import KINDS, Judgement, Result
from gateway.demo.scene import ClientScene


@final
@dataclass(slots=True)
class KindSums:
    """The sums of one kind of client since the start."""

    results: Counter[Result] = field(default_factory=Counter)
    last_loss: str = ""


@final
class Sums:
    """The sums since the start."""

    def __init__(self) -> None:
        self.losses: Counter[str] = Counter()
        """Why requests were lost, a few words each."""
        self._kinds = {kind.kind: KindSums() for kind in KINDS}

    def add(self, kind: str, judgement: Judgement) -> None:
        """Count one request of a kind of client."""
        sums = self._kinds[kind]
        sums.results[judgement.result] += 1
        if judgement.result is Result.LOST:
            self.losses[judgement.reason] += 1
            sums.last_loss = judgement.sentence

    def of(self, result: Result) -> int:
        """How many requests of all clients ended so."""
        return sum(sums.results[result] for sums in self._kinds.values())

    @property
    def requests(self) -> int:
        """All requests."""
        return sum(sums.results.total() for sums in self._kinds.values())

    def scenes(self) -> tuple[ClientScene, ...]:
        """Every kind of client, as it is shown."""
        return tuple(
            ClientScene(
                kind.kind,
                kind.program,
                sums.results[Result.ANSWERED],
                sums.results[Result.REFUSED],
                sums.results[Result.LOST],
                sums.last_loss,
            )
            for kind in KINDS
            for sums in (self._kinds[kind.kind],)
        )
