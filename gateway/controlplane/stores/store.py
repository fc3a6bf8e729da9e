"""What replicas need of a store: texts by key, read at one revision, and written whole or not at all.

A store is linearizable: a read shows everything that was written before it began, and a transaction sees the
store at one moment. It has no leases and no clock that anybody here relies on. Each change has a revision,
higher than all before it. Kinds of stores are beside this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, final

from gateway.errors import SkewgateError


class StoreError(SkewgateError):
    """The store gave no answer, or one that means nothing. A transaction may have been carried out."""


class StoreRefused(StoreError):
    """The store refuses us: wrong user, password or certificate, or no permission. Nothing was done."""


@final
class Entry(NamedTuple):
    """What stands under a key."""

    text: str
    revision: int
    """Of its last change."""


@final
class Contents(NamedTuple):
    """All keys under a prefix at one moment."""

    revision: int
    """Of the store at that moment."""
    entries: Mapping[str, Entry]
    """By the whole key."""


@final
class NothingNewer(NamedTuple):
    """No key under `prefix` has changed after `revision`. A deletion leaves no revision behind."""

    prefix: str
    revision: int


@final
class Unchanged(NamedTuple):
    """`key` stands at `revision`, that of its last change. 0: it does not exist."""

    key: str
    revision: int
    text: str | None = None
    """What stands there, too: a restored store may have the same revision for another text. None:
    anything."""


Guard: TypeAlias = NothingNewer | Unchanged


@final
class Transaction(NamedTuple):
    """All of it is carried out at one moment if every guard holds, and else nothing of it."""

    guards: tuple[Guard, ...]
    puts: Mapping[str, str]
    deletes: tuple[str, ...] = ()


class Store(Protocol):
    """One store. Every call has a time-out of its own and raises `StoreError`."""

    async def read(self, prefix: str) -> Contents:
        """All keys under `prefix`, linearizably."""

    async def commit(self, transaction: Transaction) -> int | None:
        """The revision that it has made; None: a guard does not hold."""

    def watch(self, prefix: str, changed: Callable[[], None]) -> None:
        """Call `changed` soon after a change under `prefix`: a hint that may come late, too often or
        never."""

    async def close(self) -> None:
        """End all watches and connections."""


MAX_OPERATIONS: Final = 100
"""Guards, or keys, of one transaction: etcd takes 128 of each, unless somebody has lowered that."""


async def commit_all(store: Store, transactions: Sequence[Transaction]) -> list[int | None]:
    """Commit many small transactions, each of which stands or falls alone, in a few large ones.

    Returns what `Store.commit` returns for each of them, in their order. Raises `StoreError`; then any of
    them may have been carried out. No two may write different texts to one key.
    """
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
    """If a guard of any of them does not hold, nothing of the large one was done, and its halves are tried:
    so one whose guards fail costs a few calls and holds up no other."""
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
