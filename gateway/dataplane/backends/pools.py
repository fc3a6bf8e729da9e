"""All connection pools of one worker. Each is made with the first request to its member.

A pool whose backend was removed, or has another address now, gets no more requests. It is kept until its last
connection is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gateway.dataplane.backends.pool import ConnectionPool, ConnectionRoom, Resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.core.fleet.backend import Member
    from gateway.dataplane.context import Context


@final
class ConnectionPools:
    """Connection pools of one worker."""

    def __init__(self, context: Context, resolve: Resolve, room: ConnectionRoom) -> None:
        self._context = context
        self._resolve = resolve
        self._room = room
        self.by_key: dict[str, ConnectionPool] = {}
        """Connection pools that get requests, by member key."""
        self._retired: list[ConnectionPool] = []

    def of(self, member: Member) -> ConnectionPool:
        """Connection pool of this member; a new one if its address has changed."""
        pool = self.by_key.get(member.key)
        if pool is None or (pool.backend is not member.backend and pool.backend != member.backend):
            if pool is not None:
                self.retire(member.key)
            pool = self.by_key[member.key] = ConnectionPool(
                self._context, member.service, member.backend, self._resolve, self._room
            )
        return pool

    def all(self) -> Sequence[ConnectionPool]:
        """All connection pools, those of removed backends included."""
        return (*self.by_key.values(), *self._retired)

    def retire(self, key: str) -> None:
        """Close the pool of a member: it gets no more requests."""
        pool = self.by_key.pop(key)
        pool.close()
        self._retired = [retired for retired in self._retired if retired.connections]
        self._retired.append(pool)
