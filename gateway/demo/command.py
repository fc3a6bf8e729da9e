"""What somebody who watches the demonstration can tell it to do: one key each.

`keyboard` reads the keys, `view` shows them, and who directs the demonstration does it.
"""

from __future__ import annotations

from enum import Enum


class Command(Enum):
    """One command. Its value is the key."""

    NEXT = "n"
    ROLL_BACK = "r"
    KILL = "k"
    HANG = "h"
    PAUSE = "p"
    QUIT = "q"

    @property
    def key(self) -> str:
        """The key, a small letter."""
        return self.value

    @property
    def label(self) -> str:
        """A word or two for the line of keys."""
        return _LABELS[self]

    @classmethod
    def of(cls, key: str) -> Command | None:
        """The command of `key`, in either case; None: it means nothing."""
        return _BY_KEY.get(key.lower())


_LABELS = {
    Command.NEXT: "next",
    Command.ROLL_BACK: "roll back",
    Command.KILL: "kill",
    Command.HANG: "hang",
    Command.PAUSE: "pause",
    Command.QUIT: "quit",
}
_BY_KEY = {command.value: command for command in Command}
