"""`probe.health`: what a backend is asked beside its versions. The answer never touches the offer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from gateway.controlplane.change_log import ChangeLog
from gateway.controlplane.prober import Prober
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.selection import SelectionTable, select
from gateway.core.fleet.backend import Backend, Member
from gateway.core.fleet.service import Health, Probe, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import Ironic
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.recent import LastHour
from tests.controlplane.fakes import Behaviour, FakeBackend, ironic, serving, until_member
from tests.kit.ironic import member, reconfigure

DISABLED = "its health check /healthcheck answers 503"


class Healthcheck:
    """An Ironic with `/healthcheck`, as oslo.middleware has it with its disable file."""

    def __init__(self, status: int = 200, delay: float = 0.0) -> None:
        self.status = status
        self.delay = delay
        self.fails = False
        self.asked = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/healthcheck":
            return web.Response(status=500) if self.fails else await ironic()(request)
        self.asked += 1
        await asyncio.sleep(self.delay)
        return web.Response(status=self.status, text="DISABLED BY FILE" if self.status == 503 else "OK")


def checked(*backends: Backend, timeout: float = 2.0) -> Service:
    plan = Probe(0.02, timeout, health=Health("/healthcheck"))
    return Service("baremetal", Ironic(), backends, probe=plan)


@asynccontextmanager
async def probed(
    behaviour: Behaviour, make: Callable[[Backend], Service] = checked
) -> AsyncIterator[tuple[SnapshotHolder, FakeBackend]]:
    async with serving(behaviour) as backend:
        service = make(backend.backend())
        holder = SnapshotHolder(Snapshot.configured([service], now=0.0))
        async with Prober(holder, Metrics(), [service]):
            await until_member(holder, lambda one: one.advertisement is not None)
            yield holder, backend


async def test_a_disable_file_takes_new_requests_away_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    check = Healthcheck()
    async with probed(check) as (holder, _):
        change_log = ChangeLog(lambda: 0.0, lambda _: LastHour({}, 3600.0))
        holder.subscribe(change_log.log_changes)
        offer = holder.current.views["baremetal"].offer
        versions = holder.current.views["baremetal"].offer.versions
        assert member(holder).unhealthy is None

        check.status = 503
        await until_member(holder, lambda one: one.unhealthy is not None)

        disabled = member(holder)
        assert disabled.unhealthy == DISABLED
        assert (disabled.freshness, disabled.in_service, disabled.error) == ("fresh", True, None)
        assert holder.current.views["baremetal"].offer.versions == versions
        assert holder.current.views["baremetal"].offer.phase == offer.phase
        assert holder.current.views["baremetal"].by_version.candidates(versions.lowest).members

        check.status = 200
        await until_member(holder, lambda one: one.unhealthy is None)
    lines = [record.getMessage() for record in caplog.records if record.name == "skewgate.prober"]
    no, yes = lines
    assert no.startswith(f"baremetal/api-1: {DISABLED}: gets no new requests while another backend")
    assert yes == "baremetal/api-1: its health check passes again"


@pytest.mark.parametrize("status", [404, 405, 501, 302])
async def test_a_server_without_the_check_loses_nothing(status: int) -> None:
    """In a rolling upgrade the old servers may not have it."""
    check = Healthcheck(status)
    async with probed(check) as (holder, backend):
        await backend.received(6)
        assert check.asked >= 2
        assert member(holder).unhealthy is None


async def test_a_check_that_does_not_answer_says_nothing() -> None:
    """What it answered last stands, and the versions are as fresh as their probe."""
    check = Healthcheck(503)
    async with probed(check, lambda one: checked(one, timeout=0.2)) as (holder, backend):
        await until_member(holder, lambda one: one.unhealthy is not None)
        check.delay = 9.0
        await backend.received(len(backend.requests) + 5)

        assert member(holder).unhealthy == DISABLED
        assert member(holder).freshness == "fresh"


async def test_a_failed_probe_changes_nothing_about_health() -> None:
    check = Healthcheck(503)
    async with probed(check) as (holder, _):
        await until_member(holder, lambda one: one.unhealthy is not None)
        check.fails = True
        await until_member(holder, lambda one: one.failures == 3)
        assert member(holder).unhealthy == DISABLED


async def test_declared_backends_are_asked_too() -> None:
    declared = VersionSet.between(Version(1, 1), Version(1, 58))
    make = lambda one: checked(replace(one, declared=declared))  # noqa: E731
    async with probed(Healthcheck(503), make) as (holder, backend):
        await until_member(holder, lambda one: one.unhealthy is not None)
        assert {request.path for request in backend.requests} == {"/healthcheck"}


async def test_without_the_key_nobody_is_asked() -> None:
    make = lambda one: replace(checked(one), probe=Probe(0.02, 2.0))  # noqa: E731
    check = Healthcheck(503)
    async with probed(check, make) as (holder, backend):
        await backend.received(4)
        assert (check.asked, member(holder).unhealthy) == (0, None)


def test_a_reload_without_the_key_forgets_the_answer() -> None:
    holder = SnapshotHolder(Snapshot.configured([checked(Backend("api-1", "127.0.0.1", 1))], now=0.0))
    members = holder.current.fleet.member_sets["baremetal"]
    unhealthy = replace(members.all[0], unhealthy=DISABLED)
    fleet = replace(holder.current.fleet, member_sets={"baremetal": members.with_members({0: unhealthy})})
    holder.update(holder.current.with_fleet(fleet, 0.0))

    for plan, expected in ((Health("/healthcheck"), DISABLED), (None, None)):
        service = replace(checked(Backend("api-1", "127.0.0.1", 1)), probe=Probe(health=plan))
        reconfigure(holder, [service])
        assert member(holder).unhealthy == expected


def test_an_unhealthy_one_is_used_where_nobody_else_serves_the_version() -> None:
    def one(name: str, low: int, unhealthy: str | None) -> Member:
        declared = VersionSet.between(Version(1, low), Version(1, 90))
        service = checked(Backend(name, "127.0.0.1", 1, declared=declared))
        (known,) = Snapshot.configured([service], now=0.0).fleet.member_sets["baremetal"].all
        return replace(known, unhealthy=unhealthy)

    table = SelectionTable.of([one("old", 1, DISABLED), one("new", 50, None)])
    both, old_only = table.candidates(Version(1, 60)), table.candidates(Version(1, 10))
    assert {select(both, {}, bits << 28).backend.name for bits in range(64)} == {"new"}  # type: ignore[union-attr]
    assert [each.backend.name for each in old_only.members] == ["old"]
    assert select(old_only, {}, 0) is not None
