"""The results of a scenario: the runs of each peer in each setting, by round, and comparisons between them.

A comparison is made within each round, whose runs had the machine in the same state. So the median of these
is more precise than a comparison of medians.
"""

from dataclasses import dataclass, field
from statistics import median

from bench.lineup import Peer
from bench.load import Run
from bench.scenarios import Scenario
from bench.setting import Setting


@dataclass
class Entry:
    """A peer in a setting, and its runs by round; or the problems because of which it has none.

    `foreign`: the largest use of the cores by other programs during a run (1.0: one core).
    """

    scenario: Scenario
    peer: Peer
    setting: Setting
    version: str = ""
    runs: dict[int, Run] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    foreign: float = 0.0
    #: What a gateway's own metrics say about it.
    build: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        several = len(self.scenario.settings) > 1
        return f"{self.peer.name}, {self.setting.label}" if several else self.peer.name

    def figures(self, name: str) -> dict[int, float]:
        return {number: run.figures[name] for number, run in self.runs.items()}

    def median(self, name: str) -> float:
        return median(self.figures(name).values())

    @property
    def errors(self) -> int:
        return sum(run.errors for run in self.runs.values())

    @property
    def passed(self) -> bool:
        return bool(self.runs) and not self.problems and self.errors == 0


@dataclass(frozen=True)
class Spread:
    """The median of a figure over the rounds, with its range."""

    median: float
    lowest: float
    highest: float
    rounds: int

    @classmethod
    def of(cls, figures: list[float]) -> "Spread | None":
        return cls(median(figures), min(figures), max(figures), len(figures)) if figures else None

    def text(self, digits: int) -> str:
        figures = (self.median, self.lowest, self.highest)
        middle, lowest, highest = (f"{figure:,.{digits}f}" for figure in figures)
        return middle if self.rounds == 1 else f"{middle} ({lowest} to {highest})"


@dataclass(frozen=True)
class Results:
    """All entries of one scenario."""

    scenario: Scenario
    entries: list[Entry]

    def of(self, peer: str, setting: Setting | None = None) -> list[Entry]:
        return [
            entry
            for entry in self.entries
            if entry.peer.name == peer and setting in (None, entry.setting) and entry.runs
        ]

    def values(self, name: str, peer: str, setting: Setting | None = None) -> dict[int, float]:
        """A figure of a peer by round; in its first setting if none is given."""
        return next((entry.figures(name) for entry in self.of(peer, setting)), {})

    def with_size(self, size: int) -> Setting | None:
        """The setting with so many backends or services; None: none was measured."""
        return next((entry.setting for entry in self.entries if entry.setting.size == size), None)

    def more(self, name: str, peer: str, *, than: Setting, setting: Setting) -> dict[int, float]:
        """By how much a figure of a peer is more in one setting than in another, by round."""
        before = self.values(name, peer, than)
        after = self.values(name, peer, setting)
        return {number: value - before[number] for number, value in after.items() if number in before}

    def best(self, name: str, peers: tuple[str, ...]) -> dict[int, float]:
        """The smallest figure of these peers in each round."""
        found: dict[int, float] = {}
        for peer in peers:
            for number, value in self.values(name, peer).items():
                found[number] = min(value, found.get(number, value))
        return found


def by_round(values: dict[int, float], to: dict[int, float]) -> dict[int, float]:
    """Each figure divided by the other one of its round, without rounds that have no other."""
    return {number: value / to[number] for number, value in values.items() if to.get(number)}


def ratios(values: dict[int, float], to: dict[int, float]) -> Spread | None:
    return Spread.of(list(by_round(values, to).values()))


def differences(values: dict[int, float], to: dict[int, float]) -> Spread | None:
    return Spread.of([value - to[number] for number, value in values.items() if number in to])
