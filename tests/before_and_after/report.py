"""What is printed: differences as people read them, bounded in number and length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import unified_diff
from itertools import islice
from typing import Final, final

MOST_SHOWN: Final = 10
"""Differences of one kind that are shown."""
MOST_LINES: Final = 60
"""Lines of one difference."""
LONGEST_LINE: Final = 300
"""Characters."""


@final
class Report:
    """Collects whether both sides are equal, and prints what is not."""

    def __init__(self) -> None:
        self.equal = True

    def say(self, text: str) -> None:
        print(text, flush=True)

    def differs(self, what: str, lines: Iterable[str]) -> None:
        self.equal = False
        self.say(f"DIFFERS: {what}")
        for line in islice(lines, MOST_LINES):
            self.say(f"    {line[:LONGEST_LINE]}")

    def compare(self, what: str, old: str, new: str) -> None:
        """Compare two texts, line by line."""
        if old == new:
            self.say(f"equal: {what}")
        else:
            self.differs(what, difference(old.splitlines(), new.splitlines()))


def difference(old: Sequence[str], new: Sequence[str]) -> list[str]:
    return [line.rstrip("\n") for line in unified_diff(old, new, "old", "new", n=1, lineterm="")]
