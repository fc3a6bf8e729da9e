"""Restarted while the store is away: a replica goes on by the record of its state file, detached."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.assembly import Gateway
from gateway.controlplane.replication.clocks import system_clocks
from gateway.controlplane.state.text import format_state
from gateway.core.agreement.attachment import LastAttached, Registered
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionRange, VersionSet
from gateway.core.versions.version import Version
from gateway.settings import read_file
from tests.controlplane.test_replication import Replica, Site, site
from tests.core.builders import upto
from tests.kit.clocks import run

FORGET = 3600.0
AGREED = VersionSet.of([VersionRange(Version(1, 1), Version(1, 80))])


def _file(folder: Path) -> Path:
    """Nobody listens at port 1: neither the store nor a backend."""
    file = folder / "skewgate.yaml"
    file.write_text(
        "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\naccess_log: {format: off}\nwatch: false\n"
        f"state: {folder / 'state.json'}\n"
        f"agreement: {{etcd: {{endpoints: ['http://127.0.0.1:1']}}, cluster: c, forget: {FORGET:g}s}}\n"
        "services:\n  baremetal:\n    dialect: ironic\n    backends: [{name: one, url: 'http://127.0.0.1:1'}]\n"
    )
    return file


def _entry(folder: Path) -> Mapping[str, object]:
    entry: Mapping[str, object] = json.loads((folder / "state.json").read_text())["services"]["baremetal"]
    return entry


@pytest.mark.parametrize("ago, serves", [(5.0, True), (2 * FORGET, False)])
def test_its_record_stays_in_the_file_and_is_served_within_forget(
    tmp_path: Path, ago: float, serves: bool
) -> None:
    configured = read_file(_file(tmp_path), environ=os.environ).require()
    record = AgreedRecord(7, "guaranteed", AGREED, AGREED, AGREED, AGREED)
    clocks = system_clocks()
    # Of an earlier start of the machine, so the wall clock counts.
    last = LastAttached("another", 1.0, clocks.wall() - ago)
    (tmp_path / "state.json").write_text(
        format_state(
            Snapshot.configured(configured.services, now=0.0),
            records={"baremetal": record},
            registrations={"baremetal": Registered(("before",), last)},
        )
    )
    before = _entry(tmp_path)

    async def main() -> None:
        for _ in range(3):
            async with Gateway(read_file(_file(tmp_path), environ=os.environ).require()) as gateway:
                view = gateway.snapshot_holder.current.views["baremetal"]
                assert view.offer.versions == (AGREED if serves else VersionSet())
                assert view.agreed is not None
                assert not view.agreed.attached
                assert _entry(tmp_path)["document"] == before["document"]
            assert _entry(tmp_path)["document"] == before["document"]

    asyncio.run(main())


async def _serves_after_a_kill(here: Site, killed: Replica) -> None:
    """Nobody reaches the store. By its file a new process serves at once, and it refuses nothing."""
    killed.kill()
    here.leaves(killed)
    again = await here.joins(highest=None, saved=killed.file)
    assert again.offered() == upto(5).versions
    await here.passes(1.0)
    assert again.offered() == upto(5).versions
    assert not again.refuses(11)


@pytest.mark.parametrize("seconds", [0.0, 4.0])
def test_one_that_is_killed_soon_after_it_joined_resumes(seconds: float) -> None:
    """It joins with a record that moves no more: nothing else has its state file written."""

    async def main() -> None:
        async with site(2) as here:
            late = await here.joins()
            await here.until(lambda: late.replication.report().attached)
            await here.passes(seconds)
            here.cluster.quorum = False
            await here.passes(5.0)
            await _serves_after_a_kill(here, late)

    run(main())


def test_one_that_was_detached_and_joined_anew_resumes_from_then_on() -> None:
    async def main() -> None:
        async with site(2) as here:
            cut = await here.joins()
            await here.passes(40.0)
            cut.store.link.up = False
            await here.passes(12.0)
            assert not cut.replication.report().attached
            cut.store.link.up = True
            await here.until(lambda: cut.replication.report().attached)
            await here.passes(1.0)
            here.cluster.quorum = False
            await here.passes(20.0)  # more than `forget` since it joined first
            await _serves_after_a_kill(here, cut)

    run(main())


def test_one_that_is_attached_for_long_is_recorded_often_enough_for_a_short_forget() -> None:
    async def main() -> None:
        async with site(3) as here:
            await here.passes(55.0)
            here.cluster.quorum = False
            await here.passes(30.0)
            await _serves_after_a_kill(here, here.replicas[0])

    run(main())
