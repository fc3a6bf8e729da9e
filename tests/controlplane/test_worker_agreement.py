"""Records move one acknowledged and saved step at a time, stand still for a take-over, and always end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from gateway.controlplane import worker_agreement as module
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.state.text import format_state, parse_state
from gateway.controlplane.worker_agreement import (
    EARLIER_WORKERS,
    STATE_FILE,
    TAKE_OVER,
    WORKERS,
    WorkerAgreement,
    restored_records,
)
from gateway.core.agreement.attachment import NOTHING_AGREED, Agreed
from gateway.core.agreement.record import AgreedRecord, Level
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import Pin, ProbeSucceeded
from gateway.core.fleet.offer import HeldRule, Phase
from gateway.core.fleet.service import Policy, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import CalendarDate, Named, Version
from tests.controlplane.several_workers import Disk
from tests.core.builders import Toy, service, upto, v
from tests.kit.ironic import reconfigure
from tests.kit.waiting import PATIENCE

FIVE, NINE = upto(5).versions, upto(9).versions
AT_FIVE = AgreedRecord(7, "guaranteed", FIVE, FIVE, FIVE, FIVE)
LEGACY = Advertisement(NO_VERSIONS, legacy=True)


class Workers:
    """Two workers, which acknowledge when a test says so."""

    def __init__(self, live: bool = True) -> None:
        self.holds: dict[str, int] = {}
        self.live = live

    def held(self, name: str) -> int | None:
        return self.holds.get(name, 0) if self.live else None

    def acknowledge(self, holder: SnapshotHolder, agreement: WorkerAgreement) -> None:
        """Everything that is published now."""
        for name, view in holder.current.views.items():
            record = None if view.agreed is None else view.agreed.record
            self.holds[name] = 0 if record is None else record.seq
        agreement.acknowledged()


def holder_of(*services: Service, agreed: Agreed | None = NOTHING_AGREED) -> SnapshotHolder:
    return SnapshotHolder(Snapshot.configured(services, now=0.0, agreed=agreed), lambda: 0.0, agreed)


@asynccontextmanager
async def following(agreement: WorkerAgreement) -> AsyncIterator[WorkerAgreement]:
    agreement.start()
    try:
        yield agreement
    finally:
        await agreement.close()


def probed(holder: SnapshotHolder, advertised: Advertisement, name: str = "toy", at: float = 0.0) -> None:
    for each in holder.current.views[name].members.all:
        holder.observe(name, each.backend.name, ProbeSucceeded(advertised, at))


def offered(holder: SnapshotHolder, name: str = "toy") -> VersionSet:
    return holder.current.views[name].offer.versions


def record_of(holder: SnapshotHolder, name: str = "toy") -> AgreedRecord | None:
    agreed = holder.current.views[name].agreed
    assert agreed is not None
    return agreed.record


def level(holder: SnapshotHolder, version: str) -> Level:
    agreed = holder.current.views["toy"].agreed
    assert agreed is not None
    return agreed.level(v(version))


async def turns() -> None:
    """Whatever waits for nothing has happened."""
    for _ in range(8):
        await asyncio.sleep(0)


# --- steps -------------------------------------------------------------------------------------------------


async def test_each_step_waits_for_every_live_worker() -> None:
    holder, workers = holder_of(service("a", "b")), Workers()
    async with following(WorkerAgreement(holder, workers.held)) as agreement:
        probed(holder, upto(5))
        levels = []
        for _ in range(3):
            levels.append((level(holder, "1.5"), level(holder, "1.9")))
            agreement.acknowledged()  # somebody else did
            workers.acknowledge(holder, agreement)
        assert levels == [
            (Level.ACCEPTED, Level.REFUSED),
            (Level.OFFERED, Level.REFUSED),
            (Level.OFFERED, Level.REFUSED),
        ]
        assert await agreement.in_force()
        probed(holder, upto(9), at=1.0)
        for expected in (Level.UNDECIDED, Level.ACCEPTED, Level.OFFERED):
            assert level(holder, "1.9") is expected
            assert agreement.awaited() == {"toy": WORKERS}
            workers.acknowledge(holder, agreement)
        assert agreement.awaited() == {}
        assert offered(holder) == NINE


async def test_while_no_worker_is_live_nobody_is_asked() -> None:
    """Whoever joins holds the present record before it answers."""
    holder, workers = holder_of(service("a")), Workers(live=False)
    async with following(WorkerAgreement(holder, workers.held)) as agreement:
        probed(holder, upto(5))
        assert offered(holder) == FIVE
        probed(holder, upto(3), at=1.0)
        assert level(holder, "1.5") is Level.REFUSED
        assert agreement.awaited() == {}


async def test_a_pin_is_in_force_when_the_last_worker_holds_it() -> None:
    holder, workers = holder_of(service("a")), Workers(live=False)
    async with following(WorkerAgreement(holder, workers.held)) as agreement:
        probed(holder, upto(9))
        workers.live = True
        workers.acknowledge(holder, agreement)
        holder.apply("toy", Pin(v("1.5")))
        there = asyncio.ensure_future(agreement.in_force("toy"))
        assert await agreement.in_force("another")
        for _ in range(3):
            await turns()
            assert not there.done()
            workers.acknowledge(holder, agreement)
        async with asyncio.timeout(PATIENCE):
            assert await there
        assert (offered(holder), level(holder, "1.9")) == (FIVE, Level.REFUSED)


async def test_nobody_waits_for_ever_for_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAIT", 0.01)
    holder = holder_of(service("a"))
    async with following(WorkerAgreement(holder, Workers().held)) as agreement:
        probed(holder, upto(9))
        assert not await agreement.in_force()


async def test_legacy_backends_alone_are_transparent_until_another_is_known() -> None:
    holder, workers = holder_of(service("a", "b")), Workers()
    async with following(WorkerAgreement(holder, workers.held)) as agreement:
        probed(holder, LEGACY)
        assert holder.current.views["toy"].agreed == Agreed(None, transparent=True)
        holder.observe("toy", "a", ProbeSucceeded(upto(5), 1.0))
        agreed = holder.current.views["toy"].agreed
        assert agreed is not None
        assert not agreed.transparent
        workers.acknowledge(holder, agreement)
        assert offered(holder) == FIVE


async def test_workers_follow_a_reload_to_refuse_and_back() -> None:
    old = Advertisement(VersionSet.only(v("1.1")), legacy=True)
    holder, workers = holder_of(service("a")), Workers()
    async with following(WorkerAgreement(holder, workers.held)) as agreement:
        probed(holder, old)
        for refuse in (True, False):
            reconfigure(holder, [service("a", negotiates_legacy=refuse)])
            for _ in range(4):
                workers.acknowledge(holder, agreement)
            view = holder.current.views["toy"]
            assert (view.offer.versions, view.offer.transparent) == (
                (old.versions, False) if refuse else (VersionSet(), True)
            )


async def test_what_is_being_withdrawn_is_negotiated_to_the_end() -> None:
    """Also where only legacy backends are left: others may still refuse by what was offered."""
    holder, workers = holder_of(service("a")), Workers(live=False)
    async with following(WorkerAgreement(holder, workers.held)) as agreement:
        probed(holder, upto(5))
        workers.live = True
        workers.acknowledge(holder, agreement)
        for at in (1.0, 2.0, 3.0):  # the third legacy answer is believed
            probed(holder, LEGACY, at=at)
        seen = []
        for _ in range(4):
            view = holder.current.views["toy"]
            seen.append((level(holder, "1.5"), view.offer.transparent))
            workers.acknowledge(holder, agreement)
        assert seen == [
            (Level.ACCEPTED, False),
            (Level.UNDECIDED, False),
            (Level.UNDECIDED, True),
            (Level.UNDECIDED, True),
        ]


async def test_a_transparent_service_sends_to_legacy_backends_only() -> None:
    """Also where another backend is known that not every process knows yet."""
    holder = holder_of(service("a", "b"), agreed=None)
    async with following(WorkerAgreement(holder, alone=True)) as agreement:
        probed(holder, LEGACY)
        agreement.hold()
        holder.observe("toy", "a", ProbeSucceeded(upto(5), 1.0))
        view = holder.current.views["toy"]
        assert view.offer.transparent
        assert [member.backend.name for member in view.by_version.everyone.members] == ["b"]
        holder.observe("toy", "b", ProbeSucceeded(upto(5), 1.0))
        assert len(holder.current.views["toy"].by_version.everyone.members) == 2, (
            "one that serves is better than none"
        )
        agreement.release()
        assert offered(holder) == FIVE


# --- configurations ----------------------------------------------------------------------------------------


async def test_a_new_service_begins_with_nothing_and_a_removed_one_is_forgotten() -> None:
    first, second = service("a"), replace(service("a"), name="second")
    holder, workers = holder_of(first), Workers()
    async with following(WorkerAgreement(holder, workers.held)) as agreement:
        probed(holder, upto(5))
        reconfigure(holder, [first, second])
        assert holder.current.views["second"].agreed == NOTHING_AGREED
        assert agreement.awaited() == {"toy": WORKERS}
        reconfigure(holder, [second])
        assert agreement.awaited() == {}
        workers.holds["toy"] = 2
        reconfigure(holder, [first, second])
        probed(holder, upto(5))
        assert record_of(holder) is None, "workers still hold what was there before"
        workers.acknowledge(holder, agreement)
        workers.acknowledge(holder, agreement)
        assert offered(holder) == FIVE


async def test_another_policy_is_another_record() -> None:
    one = service("a", "b", policy=Policy.REACHABLE)
    holder, workers = holder_of(one), Workers(live=False)
    async with following(WorkerAgreement(holder, workers.held)) as agreement:
        holder.observe("toy", "a", ProbeSucceeded(upto(9), 0.0))
        holder.observe("toy", "b", ProbeSucceeded(upto(5), 0.0))
        assert offered(holder) == NINE
        workers.live = True
        workers.acknowledge(holder, agreement)
        reconfigure(holder, [replace(one, policy=Policy.GUARANTEED)])
        assert level(holder, "1.9") is Level.ACCEPTED, "one step"
        for _ in range(3):
            workers.acknowledge(holder, agreement)
        record = record_of(holder)
        assert record is not None
        assert (record.rule, record.offered, record.open) == ("guaranteed", FIVE, FIVE)


async def test_in_another_scheme_nothing_is_decided_and_nobody_stands_alone() -> None:
    holder, workers = holder_of(service("a")), Workers(live=False)
    async with following(WorkerAgreement(holder, workers.held)) as agreement:
        probed(holder, upto(9))
        workers.live = True
        workers.acknowledge(holder, agreement)
        reconfigure(holder, [service("a", dialect=Toy(scheme=CalendarDate()))])
        assert holder.current.views["toy"].agreed == NOTHING_AGREED
        day = Advertisement(VersionSet.only(Version(2024, 1, 1)))
        probed(holder, day, at=1.0)
        assert record_of(holder) is None, "workers hold the one of the other scheme"
        workers.acknowledge(holder, agreement)
        workers.acknowledge(holder, agreement)
        assert offered(holder) == day.versions


async def test_a_scheme_that_gains_names_keeps_its_record() -> None:
    holder, workers = holder_of(service("a", dialect=Toy(scheme=Named(("old", "new"))))), Workers(live=False)
    async with following(WorkerAgreement(holder, workers.held)):
        probed(holder, Advertisement(VersionSet.only(Version(0), Version(1))))
        reconfigure(holder, [service("a", dialect=Toy(scheme=Named(("first", "old", "new"))))])
        assert offered(holder) == VersionSet.only(Version(1), Version(2))


# --- the state file ----------------------------------------------------------------------------------------


def saved_to(disk: Disk, agreement: Callable[[], WorkerAgreement]) -> Callable[[], asyncio.Future[bool]]:
    return lambda: asyncio.ensure_future(disk.write(agreement().to_save()))


@asynccontextmanager
async def saving(
    holder: SnapshotHolder, disk: Disk, workers: Workers, restored: Mapping[str, AgreedRecord] | None = None
) -> AsyncIterator[WorkerAgreement]:
    agreement: WorkerAgreement = WorkerAgreement(
        holder, workers.held, restored=restored, save=saved_to(disk, lambda: agreement)
    )
    async with following(agreement):
        yield agreement


async def test_a_step_is_saved_before_it_is_published() -> None:
    holder, disk, workers = holder_of(service("a")), Disk(), Workers()
    async with saving(holder, disk, workers) as agreement:
        disk.stuck = True
        probed(holder, upto(5))
        await turns()
        assert record_of(holder) is None
        assert agreement.awaited() == {"toy": STATE_FILE}
        assert agreement.to_save()["toy"].accepted == FIVE
        disk.is_done()
        await turns()
        assert record_of(holder) == disk.records["toy"]


async def test_a_slow_disk_does_not_hold_an_offer_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SAVE_WAIT", 0.01)
    monkeypatch.setattr(module, "SHORT_SAVE_WAIT", 0.01)
    caplog.set_level(logging.INFO, "skewgate.agreement")
    holder, disk, workers = holder_of(service("a")), Disk(), Workers(live=False)
    async with saving(holder, disk, workers) as agreement:
        disk.stuck = True
        for at, highest in enumerate((5, 9)):
            probed(holder, upto(highest), at=float(at))
            assert await agreement.in_force()
            assert offered(holder) == upto(highest).versions
        disk.is_done()
        probed(holder, upto(5), at=3.0)
        assert await agreement.in_force()
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(":")[0] for text in told] == [
        "the state file was not written in time",
        "changes of offers are saved again before workers get them",
    ]


async def test_a_full_disk_holds_nothing_either(caplog: pytest.LogCaptureFixture) -> None:
    holder = holder_of(service("a"))

    async def fails() -> bool:
        return False

    async with following(WorkerAgreement(holder, save=fails)) as agreement:
        probed(holder, upto(5))
        assert await agreement.in_force()
        assert offered(holder) == FIVE
    assert "offers change without it" in caplog.text


async def test_what_changes_while_a_step_is_saved_is_looked_at_afterwards() -> None:
    first = service("a")
    holder, disk, workers = holder_of(first), Disk(), Workers(live=False)
    async with saving(holder, disk, workers) as agreement:
        disk.stuck = True
        probed(holder, upto(9))
        await turns()
        holder.apply("toy", Pin(v("1.5")))
        disk.is_done()
        assert await agreement.in_force()
        assert offered(holder) == FIVE
        disk.stuck = True
        holder.apply("toy", Pin(None))
        await turns()
        reconfigure(holder, [service("a", dialect=Toy(scheme=CalendarDate()))])
        disk.is_done()
        assert await agreement.in_force()
        assert record_of(holder) is None, "a step of another scheme was dropped"


async def test_a_restart_goes_on_where_it_was() -> None:
    one = service("a", "b")
    holder = holder_of(one)
    async with following(WorkerAgreement(holder)) as agreement:
        probed(holder, upto(5))
        text = format_state(holder.current, 0.0, agreement.to_save())
    parsed = parse_state(text, [one])
    assert not parsed.dropped
    restored = restored_records(parsed.saved)
    assert restored == {"toy": replace(record_of(holder), scheme_key=one.dialect.scheme.key)}  # type: ignore[type-var]
    again = SnapshotHolder(
        Snapshot.configured([one], now=0.0, saved=parsed.saved, agreed=NOTHING_AGREED), lambda: 0.0
    )
    async with following(WorkerAgreement(again, restored=restored)):
        assert offered(again) == FIVE
        assert record_of(again) == restored["toy"]


@pytest.mark.parametrize(
    "found", [None, [], {"form": 2}, "x", 7, {"form": 1, "seq": 0}, {"form": 1, "dialect": "toy"}]
)
def test_a_record_that_cannot_be_read_costs_nothing_else(found: object) -> None:
    one = service("a")
    holder = holder_of(one)
    probed(holder, upto(5))
    text = format_state(holder.current, 0.0, {"toy": AT_FIVE})
    entries = json.loads(text)
    entries["services"]["toy"]["document"] = found
    parsed = parse_state(json.dumps(entries), [one])
    assert parsed.saved["toy"].versions == FIVE
    assert parsed.saved["toy"].record is None
    [sentence] = parsed.dropped
    assert sentence.startswith("toy: the record of its workers, ")


async def test_what_orphans_may_still_serve_is_not_refused() -> None:
    holder, orphans = holder_of(service("a")), [True]
    probed(holder, upto(5))
    at_nine = AgreedRecord(4, "guaranteed", NINE, NINE, NINE, NINE)
    agreement = WorkerAgreement(holder, restored={"toy": at_nine}, orphans=lambda: bool(orphans))
    async with following(agreement):
        assert (offered(holder), level(holder, "1.9")) == (FIVE, Level.UNDECIDED)
        assert agreement.awaited() == {"toy": EARLIER_WORKERS}
        assert not await agreement.in_force()
        orphans.clear()
        agreement.acknowledged()
        assert level(holder, "1.9") is Level.REFUSED
        assert await agreement.in_force()


# --- a take-over -------------------------------------------------------------------------------------------


async def test_one_worker_alone_has_records_only_during_a_take_over() -> None:
    holder = holder_of(service("a"), agreed=None)
    async with following(WorkerAgreement(holder, alone=True)) as agreement:
        probed(holder, upto(5))
        assert holder.current.views["toy"].agreed is None
        assert await agreement.in_force()
        agreement.hold()
        assert record_of(holder) == AgreedRecord(1, "guaranteed", FIVE, FIVE, FIVE, FIVE)
        assert agreement.to_save() == {"toy": record_of(holder)}
        assert agreement.awaited() == {}
        probed(holder, upto(9), at=1.0)
        offer = holder.current.views["toy"].offer
        assert (offer.versions, offer.held.rule, offer.phase) == (FIVE, HeldRule.AGREEMENT, Phase.UNIFORM)
        assert offer.moving
        assert agreement.awaited() == {"toy": TAKE_OVER}
        assert not await agreement.in_force()
        agreement.release()
        assert holder.current.views["toy"].agreed is None
        assert (offered(holder), agreement.awaited()) == (NINE, {})


async def test_one_that_is_held_refuses_what_it_refused() -> None:
    """Also where a ceiling hides everything, or nothing is known."""
    hidden, unknown = service("a", ceiling=v("0.9")), replace(service("a"), name="unknown")
    holder = holder_of(hidden, unknown, agreed=None)
    async with following(WorkerAgreement(holder, alone=True)) as agreement:
        probed(holder, upto(5))
        agreement.hold()
        record = record_of(holder)
        assert record is not None
        assert (record.state, record.open) == (FIVE, NO_VERSIONS)
        assert record_of(holder, "unknown") is None
        probed(holder, upto(5), "unknown")
        assert record_of(holder, "unknown") is None


async def test_who_takes_over_moves_only_what_the_other_does_not_serve() -> None:
    first, second = service("a"), replace(service("a"), name="second")
    holder, workers = holder_of(first, second), Workers(live=False)
    agreement = WorkerAgreement(holder, workers.held, restored={"toy": AT_FIVE})
    agreement.hold(everything=False)
    async with following(agreement):
        for name in ("toy", "second"):
            probed(holder, upto(9), name)
        assert record_of(holder) == AT_FIVE
        assert offered(holder, "second") == NINE
        agreement.release()
        assert offered(holder) == NINE


async def test_a_hold_drops_the_step_that_is_being_saved() -> None:
    holder, disk, workers = holder_of(service("a")), Disk(), Workers()
    async with saving(holder, disk, workers) as agreement:
        disk.stuck = True
        probed(holder, upto(5))
        await turns()
        agreement.hold()
        assert agreement.to_save() == {}
        disk.is_done()
        await turns()
        assert record_of(holder) is None
        agreement.release()
        await turns()
        assert record_of(holder) is not None, "the take-over has failed: it goes on"


async def test_one_worker_alone_follows_records_while_orphans_serve() -> None:
    holder, orphans = holder_of(service("a"), agreed=None), [True]
    agreement = WorkerAgreement(holder, alone=True, restored={"toy": AT_FIVE}, orphans=lambda: bool(orphans))
    async with following(agreement):
        assert record_of(holder) == AT_FIVE
        probed(holder, upto(9))
        assert offered(holder) == NINE
        orphans.clear()
        agreement.acknowledged()
        assert holder.current.views["toy"].agreed is None
        assert offered(holder) == NINE


async def test_after_the_end_nothing_moves() -> None:
    holder, disk, workers = holder_of(service("a")), Disk(), Workers()
    async with saving(holder, disk, workers):
        disk.stuck = True
        probed(holder, upto(5))
        await turns()
    probed(holder, upto(9), at=1.0)
    await turns()
    assert record_of(holder) is None
