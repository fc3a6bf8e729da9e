"""Interface of a store for replicas: texts by key, read at one revision, and written atomically.

A store is linearizable: a read shows everything that was written before it began, and a transaction sees the
store at one moment. It has no leases, and nobody relies on its clock. Each change has a revision, higher than
all before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from gateway.errors import SkewgateError


class StoreError(SkewgateError):
    """Error: the store gave no usable answer. A transaction may have been carried out."""


class StoreRefused(StoreError):
    """Error: the store refuses access (user, password, certificate, permission). Nothing was done."""


@final
class Entry(NamedTuple):
    """Text under one key of a store, with its revision."""

    text: str
    revision: int
    """Revision of the last change of the key."""


@final
class Contents(NamedTuple):
    """All entries of a store under a prefix at one moment."""

    revision: int
    """Revision of the store at the moment of the read."""
    entries: Mapping[str, Entry]
    """Entries read from the store, by their full keys."""


@final
class NothingNewer(NamedTuple):
    """Guard: no key under `prefix` has changed after `revision`. A deletion leaves no revision behind."""

    prefix: str
    revision: int


@final
class Unchanged(NamedTuple):
    """Guard: the last change of `key` has `revision`. 0: it does not exist."""

    key: str
    revision: int
    text: str | None = None
    """Text that the key must have: a restored store may use one revision for two texts. None: any."""


Guard: TypeAlias = NothingNewer | Unchanged


@final
class Transaction(NamedTuple):
    """Transaction that is carried out completely if every guard holds, and otherwise not at all."""

    guards: tuple[Guard, ...]
    puts: Mapping[str, str]
    deletes: tuple[str, ...] = ()


class Store(Protocol):
    """Interface of a store. Every call has its own time limit and raises `StoreError`."""

    async def read(self, prefix: str) -> Contents:
        """Read all keys under `prefix`, linearizably."""

    async def commit(self, transaction: Transaction) -> int | None:
        """Carry out a transaction and return its revision; None: a guard does not hold."""

    def watch(self, prefix: str, changed: Callable[[], None]) -> None:
        """Call `changed` soon after a change under `prefix`: a hint that may be late, wrong or missing."""

    async def close(self) -> None:
        """End all watches of the store, and close its connections."""


MAX_OPERATIONS: Final = 100
"""Largest number of guards, or of keys, in one transaction: etcd takes 128 of each by default."""


async def commit_all(store: Store, transactions: Sequence[Transaction]) -> list[int | None]:
    """Commit many small transactions, each atomic, in a few large ones. Returns the results of `Store.commit`
    in their order. Raises `StoreError`: any may have been carried out. No two may write different texts to
    one key."""
    revisions: list[int | None] = []
    bundle: list[Transaction] = []
    size = 0
    for each in transactions:
        operations = max(len(each.guards), len(each.puts) + len(each.deletes))
        if bundle and size + operations > MAX_OPERATIONS:
            revisions += await _commit_together(store, bundle)
            bundle, size = [], 0
        bundle.append(each)
        size += operations
    return revisions + await _commit_together(store, bundle) if bundle else revisions


async def _commit_together(store: Store, bundle: Sequence[Transaction]) -> list[int | None]:
    """Commit transactions as one. If a guard fails, nothing was done, and each half is tried: a failing one
    costs a few calls and holds up no other."""
    merged = Transaction(
        tuple(dict.fromkeys(guard for each in bundle for guard in each.guards)),
        {key: text for each in bundle for key, text in each.puts.items()},
        tuple(key for each in bundle for key in each.deletes),
    )
    revision = await store.commit(merged)
    if revision is not None or len(bundle) == 1:
        return [revision] * len(bundle)
    half = len(bundle) // 2
    return [*await _commit_together(store, bundle[:half]), *await _commit_together(store, bundle[half:])]
