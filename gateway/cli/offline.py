"""Decisions without a running gateway, for `explain --offline`, `test` and `init`: one probe of each backend.

Nothing but probes is ever sent. `core` decides; this module prints nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from time import monotonic
from typing import Any

from gateway.controlplane.discovery.discovery import Discovery
from gateway.controlplane.prober import Prober
from gateway.controlplane.resolver import Resolver
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.explanation import explain
from gateway.core.fleet.fleet import Fleet
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import Header
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import read_described, refusal_sentence
from gateway.errors import AdminError, FramingError
from gateway.settings import Settings
from gateway.telemetry.metrics import Metrics


async def explain_offline(
    settings: Settings, method: str, path: str, headers: Sequence[Header]
) -> dict[str, Any]:
    """Probe every backend once, then explain the request. Raises `AdminError` for a malformed request."""
    snapshot = Snapshot.configured(settings.services, now=monotonic())
    explain_request(snapshot, settings, method, path, headers)  # nothing is probed for what is refused
    return explain_request(await probed(settings), settings, method, path, headers)


def explain_request(
    snapshot: Snapshot, settings: Settings, method: str, path: str, headers: Sequence[Header]
) -> dict[str, Any]:
    """Explain the decision about a request. Raises `AdminError` for a malformed one."""
    table = NameTable.for_requests(snapshot.selected_names)
    try:
        head = read_described(method, path, headers, table, settings.limits)
    except FramingError as refusal:
        raise AdminError(refusal_sentence(refusal)) from None
    return explain(snapshot, head, head.host)


async def probed(settings: Settings) -> Snapshot:
    """Probe every backend once and return the snapshot with the first offer."""
    discovery = Discovery()
    services = discovery.completed(settings.services)
    holder = SnapshotHolder(Snapshot.configured(services, now=monotonic()))
    all_probed = asyncio.Event()

    def check(before: Snapshot, after: Snapshot) -> None:
        if all(members.all_probed for members in after.fleet.member_sets.values()):
            all_probed.set()

    holder.subscribe(check)
    async with Resolver() as resolver:
        resolver.retarget(services)
        async with Prober(holder, Metrics(), services, resolve=resolver.resolve, clock=monotonic) as prober:
            discovery.connect(holder, resolver=resolver, prober=prober)
            discovery.retarget(services)
            try:
                check(holder.current, holder.current)
                await all_probed.wait()  # each lookup and each probe has its own deadline
            finally:
                await discovery.close()
    return with_first_offer(holder.current, holder.current.fleet)


def with_first_offer(snapshot: Snapshot, fleet: Fleet) -> Snapshot:
    """Return `snapshot` with its first offer, which does not wait for backends that are down."""
    return snapshot.with_fleet(fleet, math.inf)
