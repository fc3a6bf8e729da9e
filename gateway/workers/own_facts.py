"""What requests of this worker have shown, until the parent has taken it in.

    PassiveObserver -> SnapshotHolder -> told to the parent; in force here at once
    what the parent publishes, and on top of it the facts that are not in it yet

So a worker never forgets what it has just met because the parent did not know it yet. Judges no fact:
`core.fleet` decides what is new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import final

from gateway.core.fleet.fleet import ObservedFact
from gateway.workers.messages import Facts


@final
class OwnFacts:
    """`send` tells the parent."""

    def __init__(self, send: Callable[[Facts], None]) -> None:
        self._send = send
        self._number = 0
        self._unseen: deque[Facts] = deque()
        """Those that no Update had in it so far, in the order in which they were told."""
        self._parent_is_gone = False

    def learned(self, facts: Sequence[ObservedFact]) -> None:
        """These have changed what is known here."""
        if self._parent_is_gone:
            return
        self._number += 1
        message = Facts(self._number, tuple(facts))
        self._unseen.append(message)
        self._send(message)

    def seen(self, number: int) -> None:
        """What was told up to this number is in what the parent publishes."""
        while self._unseen and self._unseen[0].number <= number:
            self._unseen.popleft()

    def unseen(self) -> list[ObservedFact]:
        """What the parent has not taken in yet, in the order in which it was met."""
        return [fact for message in self._unseen for fact in message.facts]

    def parent_is_gone(self) -> None:
        """Nobody takes in anything any more."""
        self._parent_is_gone = True
        self._unseen.clear()
