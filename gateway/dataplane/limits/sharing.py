"""The leases and limits that one of several workers shares with the others.

    lease     for one request at a time at a member with a bound, or one retry at a time of a service beyond
              the share of its requests: there are only so many, and the main process grants them on demand

A worker never uses more leases than it was granted, so the bound of a member holds for all workers together.
Leases that others want go back: those that are not used at once, and of the others so many that no worker
keeps more than its part. A gateway with one worker has no such object. Sends nothing itself:
`workers.shares` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias, final

if TYPE_CHECKING:
    from gateway.core.fleet.failures import EjectionReason

OnFailure: TypeAlias = "Callable[[str, str, EjectionReason | None], None]"
"""Called with (member key, URL of the backend, what has failed). None: it has answered."""


def _unheard() -> None:
    """Nobody listens yet."""


def _failure_unheard(_key: str, _url: str, _reason: EjectionReason | None) -> None:
    """Nobody listens yet."""


@final
class SharedLimits:
    """Of one worker. `workers`: how many there are."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.leases: dict[str, int] = {}
        """Leases, by member key; those of retries by the name of the service (which has no `/`)."""
        self.recalled: Mapping[str, int] = {}
        """What others want: by key how many of its leases this worker keeps while it uses them."""
        self.released: dict[str, int] = {}
        """By key leases that this worker uses no more, and that the main process has not been told of yet."""
        self.exhausted: frozenset[str] = frozenset()
        """Keys of which every lease is in use somewhere. Of those only that this worker wants."""
        self.on_leases: Callable[[], None] = _unheard
        """Something waits for a lease or no longer does, or one may be free that others want. Called often:
        in each turn of the event loop the first call matters."""
        self.on_use: Callable[[], None] = _unheard
        """A client has used something that others must know of soon. Called as often."""
        self.on_failure: OnFailure = _failure_unheard

    def places(self, length: int) -> int:
        """The part of a queue of `length` that is in this worker."""
        return -(-length // self.workers)

    def give_turn(self, key: str, used: int) -> None:
        """A lease is free while something waits for it here. Others want it, too: give it up if this worker
        has more than its part."""
        self._give_up(key, min(self.leases.get(key, 0) - used, self.leases.get(key, 0) - self.recalled[key]))

    def give_idle(self, key: str, used: int) -> None:
        """Give up what is not used: others want it."""
        self._give_up(key, self.leases.get(key, 0) - used)

    def _give_up(self, key: str, number: int) -> None:
        if number > 0:
            self.leases[key] -= number
            self.released[key] = self.released.get(key, 0) + number
