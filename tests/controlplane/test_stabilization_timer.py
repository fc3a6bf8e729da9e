"""The timer wakes the snapshot holder when time alone changes an offer."""

from __future__ import annotations

from time import monotonic

from gateway.controlplane.snapshot_holder import SnapshotHolder, StabilizationTimer
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ProbeFailed
from gateway.core.fleet.snapshot import Snapshot
from tests.controlplane.fakes import service
from tests.kit.ironic import learn, until_snapshot, upto

API = service(Backend("api-1", "127.0.0.1", 1), Backend("api-2", "127.0.0.1", 2), stabilization=0.05)
OLD, NEW = upto(58), upto(90)


async def offered(holder: SnapshotHolder, expected: Advertisement) -> None:
    await until_snapshot(holder, lambda now: now.views["baremetal"].offer.versions == expected.versions)


async def test_the_first_offer_and_what_grows_later_come_by_time_alone() -> None:
    snapshot_holder = SnapshotHolder(Snapshot.configured([API], now=monotonic()), monotonic)
    timer = StabilizationTimer(snapshot_holder, monotonic)
    timer.start()
    try:
        learn(snapshot_holder, "api-1", OLD, monotonic())
        snapshot_holder.observe("baremetal", "api-2", ProbeFailed("no connection", monotonic()))
        assert not snapshot_holder.current.views["baremetal"].offer.versions
        await offered(snapshot_holder, OLD)
        assert snapshot_holder.current.due is None

        learn(snapshot_holder, "api-1", NEW, monotonic())
        await offered(snapshot_holder, NEW)
        assert snapshot_holder.current.due is None
    finally:
        timer.close()
