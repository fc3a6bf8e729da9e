"""Leases and limits that one of several workers shares with the others.

    lease     for one request at a time at a member with a bound, or one retry at a time of a service beyond
              the share of its requests: there are only so many, and the main process grants them on demand

A worker never uses more leases than it was granted, so the bound of a member holds for all workers together.
Leases that others want go back: unused ones at once, and of the others so many that no worker keeps more than
its part. `workers.shares` sends the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias, final

if TYPE_CHECKING:
    from gateway.core.fleet.failures import EjectionReason

OnFailure: TypeAlias = "Callable[[str, str, EjectionReason | None], None]"
"""Callback for failures: (member key, URL of the backend, what failed; None: the member has answered)."""


@final
class SharedLimits:
    """One worker's part of what all workers share: leases, client limits. `workers`: number of workers."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.leases: dict[str, int] = {}
        """Number of this worker's leases by member key; for retries by the service's name (without `/`)."""
        self.recalled: Mapping[str, int] = {}
        """Leases that other workers want: by key the number that this worker keeps while it uses them."""
        self.released: dict[str, int] = {}
        """Leases that this worker has given up, and that the main process has not been told of yet."""
        self.exhausted: frozenset[str] = frozenset()
        """Keys of the leases that this worker wants and that are all in use somewhere."""
        self.on_leases: Callable[[], None] = lambda: None
        """Callback: something waits for a lease or no longer does, or one may be free that other workers
        want. Called often: in each loop iteration the first call matters."""
        self.on_use: Callable[[], None] = lambda: None
        """Callback, called often: a client's use has changed, which other workers must know of soon."""
        self.on_failure: OnFailure = lambda _key, _url, _reason: None

    def places(self, length: int) -> int:
        """Number of places that this worker has in a member's queue of `length`."""
        return -(-length // self.workers)

    def give_turn(self, key: str, used: int) -> None:
        """Give up free leases that other workers want, as far as this worker has more than its part."""
        self._give_up(key, min(self.leases.get(key, 0) - used, self.leases.get(key, 0) - self.recalled[key]))

    def give_idle(self, key: str, used: int) -> None:
        """Give up all unused leases of one key, which other workers want."""
        self._give_up(key, self.leases.get(key, 0) - used)

    def _give_up(self, key: str, number: int) -> None:
        if number > 0:
            self.leases[key] -= number
            self.released[key] = self.released.get(key, 0) + number
