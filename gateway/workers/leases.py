"""The leases of all workers: how many each has, how many it waits for, and what it is told about them.

A lease is granted by the main process for one request at a time at a member with a bound, or for one retry at
a time of a service (`dataplane.limits.sharing`). Each key has a stock of leases.

    granted   leases of all workers, plus free ones = the bound, always. A lease is free again only when its
              worker has released it, or has ended
    wanted    a free lease goes to the worker that has fewest, among those to the one that has waited longest
    recalled  while another worker wants one: idle leases at once, used ones as they become free, down to an
              equal part of the stock

So no more leases are in use than there are, whatever messages are under way. A worker without a lease gets
one in turn. While no worker wants more than it has, nothing is sent. Pure: values in, values out.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from dataclasses import dataclass, field
from typing import final

from gateway.workers.messages import Leases, LeaseUse


@final
@dataclass(slots=True)
class _Stock:
    """The leases (each for one request) of one key: a member with a bound, or the retries of a service."""

    bound: int = 0
    gone: bool = False
    """Whether the leases' key is no longer configured. Earlier requests that wait go by its old bound."""
    held: dict[int, int] = field(default_factory=dict)
    """Number of leases that each worker has and may be using, by worker; none is 0."""
    wanted: dict[int, int] = field(default_factory=dict)
    """Number of further leases that each worker wants, by worker; none is 0."""
    last_at: dict[int, int] = field(default_factory=dict)
    """Serial number of the last lease that each worker got. The lowest one has waited longest."""

    @property
    def free(self) -> int:
        """Number of leases that no worker has. Below zero after the bound was lowered."""
        return self.bound - sum(self.held.values())

    def next(self) -> int:
        """The worker that gets the next free lease of this key."""
        return min(self.wanted, key=lambda one: (self.held.get(one, 0), self.last_at.get(one, 0)))

    def part(self) -> int:
        """Number of leases that a worker may keep while others want some."""
        if self.free < 0:
            return self.bound // max(1, len(self.held))
        claimants = max(1, len(self.held.keys() | self.wanted.keys()))
        if any(worker not in self.held for worker in self.wanted):
            return self.bound // claimants
        return -(-self.bound // claimants)

    def wanted_from(self, worker: int) -> bool:
        """Whether leases of this worker are wanted back: for other workers, or as the bound was lowered."""
        return worker in self.held and (
            self.gone
            or self.free < 0
            or len(self.wanted) > 1
            or bool(self.wanted and worker not in self.wanted)
        )


@final
@dataclass(slots=True)
class _LeaseUser:
    """The lease messages to one worker: the state after the last one, and the content of the next one."""

    number: int = 0
    """Number of the last lease message to the worker."""
    heard: int = 0
    """Number of the last lease message that is in force in the worker."""
    changed: bool = True
    """Whether there is something to send to the worker."""
    grants: dict[str, int] = field(default_factory=dict)
    """Number of leases, by key, that are granted to the worker and not sent to it yet."""
    recalled: dict[str, int] = field(default_factory=dict)
    """Number of leases, by key, that the worker may keep while others want some."""
    recalled_at: dict[str, int] = field(default_factory=dict)
    """Number of the message to the worker that first recalls leases of a key, by key."""
    exhausted: set[str] = field(default_factory=set)

    def has_nothing_idle(self, key: str) -> bool:
        return key in self.recalled_at and self.heard >= self.recalled_at[key]


@final
class LeaseLedger:
    """Ledger of all leases: who has them and who wants them. `workers`: the intended number of workers."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._stocks: dict[str, _Stock] = {}
        self._users: dict[int, _LeaseUser] = {}
        self._changed: dict[str, None] = {}
        """Keys whose leases are to be dealt anew, in the order in which they changed."""
        self._count = 0
        """Number of leases that were granted one by one, on request, so far."""

    def configure(self, numbers: Mapping[str, int]) -> None:
        for key in self._stocks.keys() - numbers.keys():
            stock = self._stocks[key]
            if not stock.gone:
                stock.gone = True  # not forgotten yet: a worker may not know of it
                self._changed[key] = None
            elif not (stock.held or stock.wanted or key in self._changed):
                del self._stocks[key]
        for key, bound in numbers.items():
            stock = self._stocks.setdefault(key, _Stock())
            if stock.bound != bound or stock.gone:
                stock.bound, stock.gone = bound, False
                self._changed[key] = None
                for worker in self._users:
                    self._top_up(key, worker)

    def joined(self, worker: int) -> None:
        """Add a worker to the ledger of leases. It has none yet."""
        self._users[worker] = _LeaseUser()
        for key in self._stocks:
            self._top_up(key, worker)

    def left(self, worker: int) -> None:
        """Remove a worker that has ended from the ledger: its leases are free."""
        del self._users[worker]
        for key, stock in self._stocks.items():
            if stock.held.pop(worker, 0) or stock.wanted.pop(worker, 0):
                self._changed[key] = None
            stock.wanted.pop(worker, None)
            stock.last_at.pop(worker, None)

    def used(self, worker: int, use: LeaseUse) -> None:
        """Take in a worker's report of the leases that it returns and wants."""
        user = self._users[worker]
        user.heard = max(user.heard, use.heard)
        for key, number in use.released.items():
            stock = self._stocks.get(key)
            if stock is not None:
                left = stock.held.pop(worker, 0) - number
                if left > 0:
                    stock.held[worker] = left
                self._changed[key] = None
        for key, number in use.wanted.items():
            stock = self._stocks.get(key)
            if stock is not None:
                stock.wanted.pop(worker, None)
                if number > 0:
                    stock.wanted[worker] = number
                self._changed[key] = None
        for key in user.recalled:
            self._changed[key] = None  # by what it has heard, the key may be exhausted

    def deal(self) -> list[tuple[int, Leases]]:
        """Grant free leases and recall those that others want. Returns the messages to the workers."""
        changed, self._changed = self._changed, {}
        for key in changed:
            self._deal_key(key, self._stocks[key])
        return [(worker, _message(one)) for worker, one in self._users.items() if one.changed]

    @property
    def keys(self) -> KeysView[str]:
        """All keys of leases, also keys that are no longer configured but still have leases out."""
        return self._stocks.keys()

    def _top_up(self, key: str, worker: int) -> None:
        """Grant a worker its equal part of a key's leases, before it wants any."""
        stock = self._stocks[key]
        part = stock.bound // self._workers - stock.held.get(worker, 0)
        self._grant(key, stock, worker, min(part, stock.free))

    def _grant(self, key: str, stock: _Stock, worker: int, number: int) -> None:
        if number > 0:
            stock.held[worker] = stock.held.get(worker, 0) + number
            user = self._users[worker]
            user.grants[key] = user.grants.get(key, 0) + number
            user.changed = True

    def _deal_key(self, key: str, stock: _Stock) -> None:
        while stock.wanted and stock.free > 0:
            worker = stock.next()
            self._count += 1
            stock.last_at[worker] = self._count
            self._grant(key, stock, worker, 1)
            left = stock.wanted.pop(worker) - 1
            if left:
                stock.wanted[worker] = left
        part = stock.part()
        for worker, user in self._users.items():
            _keep(key, user, part if stock.wanted_from(worker) else None)
        for worker, user in self._users.items():
            if self._is_exhausted(key, stock, worker) != (key in user.exhausted):
                user.changed = True
                user.exhausted ^= {key}

    def _is_exhausted(self, key: str, stock: _Stock, worker: int) -> bool:
        """Whether a worker wants a lease and has to wait for the end of some request, as none is idle."""
        return worker in stock.wanted and all(
            other == worker or self._users[other].has_nothing_idle(key) for other in stock.held
        )


def _keep(key: str, user: _LeaseUser, part: int | None) -> None:
    """Recall the leases that a worker has beyond `part`; None: other workers want none any more."""
    if user.recalled.get(key) == part:
        return
    user.changed = True
    if part is None:
        del user.recalled[key], user.recalled_at[key]
    else:
        user.recalled[key] = part
        user.recalled_at.setdefault(key, user.number + 1)


def _message(user: _LeaseUser) -> Leases:
    user.number += 1
    user.changed = False
    grants, user.grants = user.grants, {}
    return Leases(user.number, grants, dict(user.recalled), frozenset(user.exhausted))
