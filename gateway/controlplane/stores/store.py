"""What replicas need of a store: texts by key, read at one revision, and written whole or not at all.

A store is linearizable: a read shows everything that was written before it began, and a transaction sees the
store at one moment. It has no leases and no clock that anybody here relies on. Each change has a revision,
higher than all before it. Kinds of stores are beside this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias, final

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
    """What stands there, too: a store that was restored may have come to the same revision by other changes.
    None: whatever it is."""


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
        """Call `changed` soon after something under `prefix` has changed, as a hint: it may come late, too
        often, or never. Until `close`."""

    async def close(self) -> None:
        """End all watches and connections."""
