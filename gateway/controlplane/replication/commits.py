"""Many small transactions in a few large ones: what a replica of a thousand services writes in one round.

Each transaction is about one service, and stands or falls alone. Several go to the store as one. If a guard
of any of them does not hold, nothing of the large one was done, and its halves are tried: so one service
whose guards fail costs a few calls and holds up no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gateway.controlplane.stores.store import Store, Transaction

MAX_OPERATIONS: Final = 100
"""Guards, or keys, of one transaction: etcd takes 128 of each, unless somebody has lowered that."""


async def commit_all(store: Store, transactions: Sequence[Transaction]) -> list[int | None]:
    """What `Store.commit` returns for each of them, in their order. Raises `StoreError`; then any of them may
    have been carried out. No two may write different texts to one key."""
    revisions: list[int | None] = []
    for bundle in _bundles(transactions):
        revisions += await _commit(store, bundle)
    return revisions


async def _commit(store: Store, bundle: Sequence[Transaction]) -> list[int | None]:
    revision = await store.commit(_merged(bundle))
    if revision is not None or len(bundle) == 1:
        return [revision] * len(bundle)
    half = len(bundle) // 2
    return [*await _commit(store, bundle[:half]), *await _commit(store, bundle[half:])]


def _bundles(transactions: Sequence[Transaction]) -> Iterator[list[Transaction]]:
    """As many as fit into one, in their order."""
    bundle: list[Transaction] = []
    size = 0
    for each in transactions:
        operations = max(len(each.guards), len(each.puts) + len(each.deletes))
        if bundle and size + operations > MAX_OPERATIONS:
            yield bundle
            bundle, size = [], 0
        bundle.append(each)
        size += operations
    if bundle:
        yield bundle


def _merged(bundle: Sequence[Transaction]) -> Transaction:
    return Transaction(
        tuple(dict.fromkeys(guard for each in bundle for guard in each.guards)),
        {key: text for each in bundle for key, text in each.puts.items()},
        tuple(key for each in bundle for key in each.deletes),
    )
