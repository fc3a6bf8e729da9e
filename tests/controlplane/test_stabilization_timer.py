"""The timer wakes the snapshot holder when time alone changes an offer."""

from __future__ import annotations

from time import monotonic

from gateway.controlplane.snapshot_holder import SnapshotHolder, StabilizationTimer
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ProbeFailed, ProbeSucceeded
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from tests.controlplane.fakes import service, until

API = service(Backend("api-1", "127.0.0.1", 1), Backend("api-2", "127.0.0.1", 2), stabilization=0.05)
OLD, NEW = (Advertisement(VersionSet.between(Version(1, 1), Version(1, top))) for top in (58, 90))


async def test_the_first_offer_and_what_grows_later_come_by_time_alone() -> None:
    snapshot_holder = SnapshotHolder(Snapshot.configured([API], now=monotonic()), monotonic)
    timer = StabilizationTimer(snapshot_holder, monotonic)
    timer.start()
    try:
        snapshot_holder.observe("baremetal", "api-1", ProbeSucceeded(OLD, monotonic()))
        snapshot_holder.observe("baremetal", "api-2", ProbeFailed("no connection", monotonic()))
        assert not snapshot_holder.current.views["baremetal"].offer.versions
        await until(snapshot_holder, lambda now: now.views["baremetal"].offer.versions == OLD.versions)
        assert snapshot_holder.current.due is None

        snapshot_holder.observe("baremetal", "api-1", ProbeSucceeded(NEW, monotonic()))
        await until(snapshot_holder, lambda now: now.views["baremetal"].offer.versions == NEW.versions)
        assert snapshot_holder.current.due is None
    finally:
        timer.close()
