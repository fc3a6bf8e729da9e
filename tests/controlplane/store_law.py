"""What every kind of store must do, as one walk over it: `memory_store` is held to it, and real etcd."""

from __future__ import annotations

from typing import Final

from gateway.controlplane.stores.store import Contents, Entry, NothingNewer, Store, Transaction, Unchanged

P: Final = "/skewgate/c/s/"


async def hold_to_the_law(store: Store, other: Store) -> None:
    """Two clients of one store that is empty under `/skewgate/`."""
    empty = await store.read(P)
    assert empty.entries == {}
    two = Transaction((NothingNewer(P, empty.revision),), {P + "doc": "ä\n1", P + "pin": ""})
    first = await store.commit(two)
    assert first is not None
    assert first > empty.revision
    both = {P + "doc": Entry("ä\n1", first), P + "pin": Entry("", first)}
    assert await other.read(P) == Contents(first, both)

    # A guard that does not hold: nothing of it is done.
    for guard in (
        *(NothingNewer(P, empty.revision), Unchanged(P + "doc", 0), Unchanged(P + "none", first)),
        *(Unchanged(P + "doc", first, "another"), Unchanged(P + "none", 0, "")),
    ):
        holds = Unchanged(P + "pin", first)
        assert await other.commit(Transaction((holds, guard), {P + "doc": "2"}, (P + "pin",))) is None
    assert await other.read(P) == Contents(first, both)

    same = Unchanged(P + "new", 0), Unchanged(P + "doc", first, "ä\n1")
    second = await store.commit(Transaction(same, {P + "new": "3"}))
    assert second is not None
    assert second > first
    assert await store.commit(Transaction((NothingNewer(P, first),), {P + "doc": "2"})) is None

    # A deletion leaves no revision behind: whoever deletes rewrites a key in the same transaction.
    assert await store.commit(Transaction((), {}, (P + "new", P + "never"))) is not None
    assert await store.commit(Transaction((NothingNewer(P, first),), {P + "pin": "4"})) is not None
    last = await other.read(P)
    assert set(last.entries) == {P + "doc", P + "pin"}
    assert last.entries[P + "doc"].revision == first

    # The neighbours of a prefix are not under it.
    await store.commit(Transaction((), {P.removesuffix("/"): "before", P.removesuffix("/") + "0": "behind"}))
    assert (await other.read(P)).entries == last.entries
    assert await store.commit(Transaction((NothingNewer(P, last.revision),), {P + "doc": "5"})) is not None
