"""The document of `/status` of many services: made a few at a time."""

from __future__ import annotations

import asyncio

from gateway.admin.status_document import status_document
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.snapshot import Snapshot
from gateway.runtime.parts import SMALL
from gateway.telemetry.recent import ServiceRates
from tests.admin.testbed import AdminTestbed
from tests.kit.ironic import service


class Rates(dict[str, ServiceRates]):
    """Rates of services, and how many services were asked for theirs."""

    asked = 0

    def get(self, name: str, default: ServiceRates) -> ServiceRates:  # type: ignore[override]
        self.asked += 1
        return default


async def test_the_status_of_a_thousand_services_lets_requests_pass_and_is_of_one_moment() -> None:
    configured, rates = [f"s{number}" for number in range(1000)], Rates()
    holder = SnapshotHolder(Snapshot.configured([service(name=name) for name in configured], now=0.0))
    making = asyncio.ensure_future(status_document(AdminTestbed(holder, rates=rates).status()))
    looked_at = []
    while not making.done():
        before = rates.asked
        await asyncio.sleep(0)
        looked_at.append(rates.asked - before)
        holder.follow(Snapshot.configured([], now=0.0), [])  # removed meanwhile

    assert max(looked_at) <= SMALL, "so many are looked at in one turn of the event loop"
    assert list((await making)["services"]) == configured
