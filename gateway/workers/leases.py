"""Who of several workers has how many leases, and what each of them is told about them.

A lease is granted by the main process: for one request at a time at a member with a bound, or for one retry
at a time of a service (`dataplane.limits.sharing`). Of each key there is a stock.

    held        + those that are free  =  the bound, always: a lease is free again only when its worker has
                said so, or has ended
    wanted      goes first to who has fewest, among those to who has waited longest
    given back  while somebody else wants it: what is not used at once, and what is used as it becomes free,
                down to an equal part of the stock

So whatever messages are under way, no more leases are in use than there are; a worker that has none comes
in turn; and while nobody wants more than it has, nothing is sent. Pure: values in, values out.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping
from dataclasses import dataclass, field
from typing import final

from gateway.workers.messages import Leases, LeaseUse


@final
@dataclass(slots=True)
class _Stock:
    """The leases of one key."""

    bound: int
    gone: bool = False
    """It is configured no more. Requests that waited before go by the bound that it had."""
    held: dict[int, int] = field(default_factory=dict)
    """By worker; none is 0. As many as it may be using."""
    wanted: dict[int, int] = field(default_factory=dict)
    """By worker, beyond what it has; none is 0."""
    last_at: dict[int, int] = field(default_factory=dict)
    """When each worker got one last."""

    @property
    def free(self) -> int:
        """Below zero after the bound was lowered."""
        return self.bound - sum(self.held.values())

    def next(self) -> int:
        """Who of those that want one gets it."""
        return min(self.wanted, key=lambda one: (self.held.get(one, 0), self.last_at.get(one, 0)))

    def part(self) -> int:
        """How many a worker keeps while others want them."""
        if self.free < 0:
            return self.bound // max(1, len(self.held))
        claimants = max(1, len(self.held.keys() | self.wanted.keys()))
        if any(worker not in self.held for worker in self.wanted):
            return self.bound // claimants
        return -(-self.bound // claimants)

    def wanted_from(self, worker: int) -> bool:
        """Whether others want what this worker has."""
        return worker in self.held and (
            self.gone
            or self.free < 0
            or len(self.wanted) > 1
            or bool(self.wanted and worker not in self.wanted)
        )


@final
@dataclass(slots=True)
class _LeaseUser:
    """What one worker was told."""

    number: int = 0
    heard: int = 0
    changed: bool = True
    grants: dict[str, int] = field(default_factory=dict)
    """Not sent yet."""
    recalled: dict[str, int] = field(default_factory=dict)
    recalled_at: dict[str, int] = field(default_factory=dict)
    """By key of `recalled`: the number of the message that has it first."""
    exhausted: set[str] = field(default_factory=set)

    def has_nothing_idle(self, key: str) -> bool:
        return key in self.recalled_at and self.heard >= self.recalled_at[key]


@final
class LeaseLedger:
    """The stocks of all keys. `workers`: how many there are to be."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._stocks: dict[str, _Stock] = {}
        self._users: dict[int, _LeaseUser] = {}
        self._changed: dict[str, None] = {}
        """Keys to look at."""
        self._count = 0

    def configure(self, numbers: Mapping[str, int]) -> None:
        """These are all keys, with the number of leases that there are."""
        for key in self._stocks.keys() - numbers.keys():
            stock = self._stocks[key]
            if not stock.gone:
                stock.gone = True  # not forgotten yet: a worker may not know of it
                self._changed[key] = None
            elif not (stock.held or stock.wanted or key in self._changed):
                del self._stocks[key]
        for key, bound in numbers.items():
            self._bound(key, bound)

    def joined(self, worker: int) -> None:
        """A worker has come, which has none yet."""
        self._users[worker] = _LeaseUser()
        for key in self._stocks:
            self._top_up(key, worker)

    def left(self, worker: int) -> None:
        """It has ended: nothing that it had is in use any more."""
        del self._users[worker]
        for key, stock in self._stocks.items():
            if stock.held.pop(worker, 0) or stock.wanted.pop(worker, 0):
                self._changed[key] = None
            stock.wanted.pop(worker, None)
            stock.last_at.pop(worker, None)

    def used(self, worker: int, use: LeaseUse) -> None:
        """A worker says what it does with its leases."""
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
            self._changed[key] = None  # what it has heard may say that all are taken

    def deal(self) -> list[tuple[int, Leases]]:
        """Grant what is free, and have given back what others want. What the workers are to be told."""
        changed, self._changed = self._changed, {}
        for key in changed:
            self._deal_key(key)
        return [(worker, self._message(one)) for worker, one in self._users.items() if one.changed]

    @property
    def keys(self) -> KeysView[str]:
        """All keys, those included of which leases are still out."""
        return self._stocks.keys()

    # -- one key

    def _bound(self, key: str, bound: int) -> None:
        stock = self._stocks.get(key)
        if stock is None:
            stock = self._stocks[key] = _Stock(bound)
        elif stock.bound == bound and not stock.gone:
            return
        stock.bound, stock.gone = bound, False
        self._changed[key] = None
        for worker in self._users:
            self._top_up(key, worker)

    def _top_up(self, key: str, worker: int) -> None:
        """What a worker gets before it wants anything."""
        stock = self._stocks[key]
        part = stock.bound // self._workers - stock.held.get(worker, 0)
        self._grant(key, stock, worker, min(part, stock.free))

    def _grant(self, key: str, stock: _Stock, worker: int, number: int) -> None:
        if number > 0:
            stock.held[worker] = stock.held.get(worker, 0) + number
            user = self._users[worker]
            user.grants[key] = user.grants.get(key, 0) + number
            user.changed = True

    def _deal_key(self, key: str) -> None:
        stock = self._stocks[key]
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
            self._call_back(key, user, part if stock.wanted_from(worker) else None)
        for worker, user in self._users.items():
            if self._is_exhausted(key, stock, worker) != (key in user.exhausted):
                user.changed = True
                user.exhausted ^= {key}

    def _call_back(self, key: str, user: _LeaseUser, part: int | None) -> None:
        """Have a worker give back what it has beyond `part`; None: nobody wants it any more."""
        if user.recalled.get(key) == part:
            return
        user.changed = True
        if part is None:
            del user.recalled[key], user.recalled_at[key]
        else:
            user.recalled[key] = part
            user.recalled_at.setdefault(key, user.number + 1)

    def _is_exhausted(self, key: str, stock: _Stock, worker: int) -> bool:
        """Whether a worker that wants one has to wait until somebody ends a request."""
        return worker in stock.wanted and all(
            other == worker or self._users[other].has_nothing_idle(key) for other in stock.held
        )

    def _message(self, user: _LeaseUser) -> Leases:
        user.number += 1
        user.changed = False
        grants, user.grants = user.grants, {}
        return Leases(user.number, grants, dict(user.recalled), frozenset(user.exhausted))
