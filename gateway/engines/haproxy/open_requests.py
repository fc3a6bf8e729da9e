"""How many requests HAProxy may have at drained backends, which is for what `drain --wait` waits.

Counted is when no row of the map in force leads to a backend any more: from then on its number only falls.
Where nobody has counted yet there may be a request. Pure: who asks HAProxy is `driver`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from gateway.core.fleet.backend import Member
from gateway.core.fleet.snapshot import Snapshot
from gateway.engines.haproxy.configuration import server_name
from gateway.engines.table import POOL_PREFIX, PoolMember, Table


def drained_members(snapshot: Snapshot) -> Mapping[str, Member]:
    """All that are drained, by their keys."""
    members = (member for view in snapshot.views.values() for member in view.pool.members)
    return {member.key: member for member in members if member.drained}


@final
class OpenRequests:
    """What is known of the process with the socket."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}

    def leave_out_enabled(self, snapshot: Snapshot) -> None:
        """Who gets requests again is counted anew when it is drained the next time."""
        drained = drained_members(snapshot)
        self._counted = {key: number for key, number in self._counted.items() if key in drained}

    def count(
        self, in_force: Snapshot, present: Snapshot, table: Table, requests: Mapping[str, Mapping[str, int]]
    ) -> None:
        """`requests`: of each server, by pool. `in_force`: of which `table` was made, which the process has.
        A pool that this table lacks may be an earlier one of any service."""
        services = {pool.name: pool.service for pool in table.pools}
        ours = {pool: servers for pool, servers in requests.items() if pool.startswith(POOL_PREFIX)}
        still = drained_members(present)
        self._counted = {
            key: sum(
                servers.get(server_name(PoolMember.of(member)), 0)
                for pool, servers in ours.items()
                if services.get(pool, member.service) == member.service
            )
            for key, member in drained_members(in_force).items()
            if key in still
        }

    def may_be(self, present: Snapshot, *, elsewhere: bool) -> Mapping[str, int]:
        """By key of each drained member: requests that may be open there, one at least where that is not
        known. `elsewhere`: an earlier process may have some, and tells nobody."""
        least = 1 if elsewhere else 0
        return {key: max(least, self._counted.get(key, 1)) for key in drained_members(present)}
