"""Whether a replica that has come up has joined the others for the first time, or has waited long enough.

Until then nobody should send clients here: a replica that comes back goes on, detached, by the offer of its
state file, while the others may have gone on without it. The wait ends after one TTL, because a detached
replica serves, too. Decides nothing about offers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import final

from gateway.controlplane.replication.clocks import Clocks
from gateway.controlplane.replication.membership import Membership


@final
class FirstJoin:
    """`begin` at the start of a replica, `look` whenever it may have joined."""

    def __init__(self, ttl: float, clocks: Clocks) -> None:
        self._ttl = ttl
        self._clocks = clocks
        self._members: tuple[Membership, ...] = ()
        self._ends_at = float("-inf")
        self._over = asyncio.Event()

    def begin(self, members: Iterable[Membership]) -> None:
        """`members`: how the replica stands to each service of the start. Later ones are not waited for."""
        self._members, self._ends_at = tuple(members), self._clocks.boot_time() + self._ttl

    def look(self) -> None:
        """Note it when each service has been joined once, or the time is over."""
        if all(each.beats for each in self._members) or self._clocks.boot_time() >= self._ends_at:
            self._over.set()

    @property
    def is_awaited(self) -> bool:
        """Whether clients should not be sent here yet."""
        self.look()
        return not self._over.is_set()

    async def over(self) -> None:
        """Wait for the join, until the time is over."""
        if self.is_awaited:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._ends_at - self._clocks.boot_time())):
                    await self._over.wait()
