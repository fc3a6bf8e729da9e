"""A store in memory with the meaning of a real one, and with faults: what replicas are tested on.

    cluster = MemoryCluster()
    first, second = cluster.client("first"), cluster.client("second")    # one for each replica
    first.link.up = False                   # cut off: it gets an answer to nothing
    first.link.loses_answers = True         # its transactions are carried out, and it is not told
    first.link.pass_on.clear()              # its calls wait until it is set, or until they time out
    cluster.quorum = False                  # nobody gets an answer
    cluster.wipe()                          # a new cluster of the same name: revisions begin anew

`hold_to_the_law` is what every kind of store must do: this one is held to it, and real etcd.

Nothing here sleeps. What a call sees and does happens at one moment of the loop, between two awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, final

from gateway.controlplane.stores.store import (
    Contents,
    Entry,
    Guard,
    NothingNewer,
    Store,
    StoreError,
    StoreRefused,
    Transaction,
    Unchanged,
)

T = TypeVar("T")

TIMEOUT: Final = 0.5
"""Seconds after which a call that waits is given up."""


@final
class MemoryCluster:
    """The keys that all clients see, and their revisions."""

    def __init__(self) -> None:
        self.quorum = True
        """Without it no call is answered."""
        self.history: list[tuple[int, str, str | None]] = []
        """Every change: its revision, the key, and the text; None: deleted."""
        self._entries: dict[str, Entry] = {}
        self._revision = 1
        self._watches: list[tuple[str, Callable[[], None], Link]] = []

    def client(self, name: str = "client", timeout: float = TIMEOUT) -> MemoryStore:
        """A store for one replica."""
        return MemoryStore(self, name, timeout)

    @property
    def entries(self) -> Mapping[str, Entry]:
        """What stands there now."""
        return dict(self._entries)

    def texts(self, prefix: str = "") -> dict[str, str]:
        """The texts under a prefix by what follows it in the key."""
        return {
            key.removeprefix(prefix): entry.text
            for key, entry in self._entries.items()
            if key.startswith(prefix)
        }

    def put(self, key: str, text: str) -> int:
        """What somebody else writes."""
        return self.apply(Transaction((), {key: text}))

    def delete(self, *keys: str) -> int:
        """What somebody else deletes, leaving no revision behind."""
        return self.apply(Transaction((), {}, keys))

    def wipe(self) -> None:
        """Everything is gone, and revisions begin anew. Watches go on and say nothing of it."""
        self._entries.clear()
        self._revision = 1

    def contents(self, prefix: str) -> Contents:
        """All keys under `prefix`."""
        under = {key: entry for key, entry in self._entries.items() if key.startswith(prefix)}
        return Contents(self._revision, under)

    def holds(self, guard: Guard) -> bool:
        """Whether a guard holds now."""
        match guard:
            case NothingNewer(prefix, revision):
                under = self.contents(prefix).entries.values()
                return all(entry.revision <= revision for entry in under)
            case Unchanged(key, revision, text):
                entry = self._entries.get(key)
                if text is not None and (entry is None or entry.text != text):
                    return False
                return (0 if entry is None else entry.revision) == revision

    def apply(self, transaction: Transaction) -> int:
        """Carry it out, whatever its guards say. Returns its revision."""
        deleted = [key for key in transaction.deletes if key in self._entries]
        changed = [*transaction.puts, *deleted]
        if not changed:
            return self._revision
        self._revision += 1
        for key in deleted:
            del self._entries[key]
            self.history.append((self._revision, key, None))
        for key, text in transaction.puts.items():
            self._entries[key] = Entry(text, self._revision)
            self.history.append((self._revision, key, text))
        for prefix, call, link in self._watches:
            if link.watches and link.up and self.quorum and any(key.startswith(prefix) for key in changed):
                asyncio.get_running_loop().call_soon(call)
        return self._revision

    def add_watch(self, prefix: str, changed: Callable[[], None], link: Link) -> None:
        """Call `changed` after changes under `prefix`, as long as the link is up."""
        self._watches.append((prefix, changed, link))

    def end_watches(self, link: Link) -> None:
        """Those of one client."""
        self._watches = [each for each in self._watches if each[2] is not link]


@final
class Link:
    """What lies between one client and the cluster."""

    def __init__(self) -> None:
        self.up = True
        """False: every call fails at once, and nothing of it is done."""
        self.refuses = False
        """The store does not know our user."""
        self.loses_answers = False
        """Transactions are carried out, and then fail."""
        self.watches = True
        """False: a watch hangs and says nothing."""
        self.pass_on = asyncio.Event()
        """While it is not set, calls wait before anything of them is done."""
        self.answer = asyncio.Event()
        """While it is not set, calls wait for the answer after they were carried out."""
        self.pass_on.set()
        self.answer.set()


@final
class MemoryStore:
    """The store of one replica."""

    def __init__(self, cluster: MemoryCluster, name: str, timeout: float) -> None:
        self.name = name
        self.link = Link()
        self.calls = 0
        """How many there were."""
        self.in_flight = 0
        """How many wait."""
        self.closed = False
        self._cluster = cluster
        self._timeout = timeout

    async def read(self, prefix: str) -> Contents:
        """All keys under `prefix`."""
        return await self._call(lambda: self._cluster.contents(prefix))

    async def commit(self, transaction: Transaction) -> int | None:
        """The revision that it has made; None: a guard does not hold."""

        def carry_out() -> int | None:
            if not all(map(self._cluster.holds, transaction.guards)):
                return None
            return self._cluster.apply(transaction)

        answer = await self._call(carry_out)
        if self.link.loses_answers:
            raise StoreError(f"the answer to {self.name} was lost")
        return answer

    def watch(self, prefix: str, changed: Callable[[], None]) -> None:
        """Call `changed` soon after something under `prefix` has changed."""
        self._cluster.add_watch(prefix, changed, self.link)

    async def close(self) -> None:
        """End all watches."""
        self.closed = True
        self._cluster.end_watches(self.link)

    async def _call(self, do: Callable[[], T]) -> T:
        assert not self.closed, "a store that was closed is not used"
        self.calls += 1
        self.in_flight += 1
        try:
            async with asyncio.timeout(self._timeout):
                await self.link.pass_on.wait()
                await asyncio.sleep(0)
                self._check()
                done = do()
                await asyncio.sleep(0)
                await self.link.answer.wait()
                self._check()
                return done
        except TimeoutError:
            raise StoreError("the store did not answer in time") from None
        finally:
            self.in_flight -= 1

    def _check(self) -> None:
        if self.link.refuses:
            raise StoreRefused("the store does not know this user")
        if not self.link.up:
            raise StoreError("the store cannot be reached")
        if not self._cluster.quorum:
            raise StoreError("the store has no quorum")


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
