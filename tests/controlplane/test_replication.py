"""Several whole replicas in one loop, over a store in memory: one truth, whatever fails between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from gateway.controlplane.fresh_facts import FreshFacts
from gateway.controlplane.prober import Prober
from gateway.controlplane.replication.clocks import Clocks
from gateway.controlplane.replication.replication import Replication
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.stores.store import StoreError
from gateway.core.agreement.attachment import NOT_JOINED, Agreed
from gateway.core.agreement.record import Level
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import Drain, Pin, ProbeSucceeded
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.errors import CommandRefused
from gateway.settings import AgreementSettings
from gateway.settings.sections.agreement import EtcdSettings
from tests.controlplane.memory_store import MemoryCluster
from tests.core.builders import legacy, service, upto, v
from tests.kit.clocks import run

SETTINGS = AgreementSettings(EtcdSettings(("http://127.0.0.1:2379",)), "here", ttl=3.0, forget=60.0)
P = "/skewgate/here/toy/"
ENOUGH = 30.0
"""Seconds of virtual time in which everything comes to rest."""


class Replica:
    """One gateway without a data plane: what is agreed here is in force."""

    def __init__(
        self,
        cluster: MemoryCluster,
        *services: Service,
        saved: Mapping[str, SavedState] | None = None,
        boot: str = "boot",
    ) -> None:
        clock = asyncio.get_running_loop().time
        self.clock = clock
        snapshot = Snapshot.configured(services, now=clock(), agreed=NOT_JOINED, saved=saved)
        self.holder = SnapshotHolder(snapshot, clock, NOT_JOINED)
        self.store = cluster.client(timeout=SETTINGS.ttl / 6)
        self.deadlines: Mapping[str, float] = {}
        self.ahead = 0.0
        """Seconds by which its wall clock differs from that of a replica without this."""
        self.holds: int | None = None
        """What its workers hold; None: it has none."""
        self.in_flight: dict[str, int] = {}
        self.file: dict[str, SavedState] = {}
        self.replication = Replication(
            self.holder,
            self.store,
            SETTINGS,
            held=lambda name: self.holds,
            deadlines=self._take_deadlines,
            restored=saved,
            save=self._save,
            clocks=Clocks(clock, lambda: clock() + 1e9 + self.ahead, boot),
            clock=clock,
        )
        FreshFacts(self.holder, cast(Prober, None), lambda: self.in_flight, self.replication)

    def _take_deadlines(self, deadlines: Mapping[str, float]) -> None:
        self.deadlines = deadlines

    async def _save(self) -> bool:
        await asyncio.sleep(0)
        records, registered = self.replication.to_save(), self.replication.registrations()
        self.file = {
            name: SavedState(record=records.get(name), registered=registered[name]) for name in registered
        }
        return True

    def kill(self) -> None:
        """SIGKILL: nothing of it is said to anybody."""
        replication = self.replication
        for task in (replication._task, replication._saving._task):
            if task is not None:
                task.cancel()
        replication._timer.cancel()

    def hears(self, highest: int, name: str = "toy") -> None:
        for member in self.holder.current.views[name].members.all:
            fact = ProbeSucceeded(Advertisement(upto(highest).versions), self.clock())
            self.holder.observe(name, member.backend.name, fact)

    def offered(self, name: str = "toy") -> VersionSet:
        return self.holder.current.views[name].offer.versions

    def agreed(self, name: str = "toy") -> Agreed:
        agreed = self.holder.current.views[name].agreed
        assert agreed is not None
        return agreed

    def attached(self, name: str = "toy") -> bool:
        return self.clock() < self.deadlines.get(name, 0.0)

    def serves(self, minor: int, name: str = "toy") -> bool:
        return self.agreed(name).level(v(f"1.{minor}")) >= Level.ACCEPTED

    def refuses(self, minor: int, name: str = "toy") -> bool:
        return self.agreed(name).level(v(f"1.{minor}")) is Level.REFUSED and self.attached(name)


class Site:
    """All replicas, and what is true of them at every moment."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.replicas: list[Replica] = []
        self._checked: list[tuple[Agreed, bool]] = []

    async def joins(self, *services: Service, highest: int | None = 5, **options: object) -> Replica:
        replica = Replica(self.cluster, *(services or (service("api-1"),)), **options)  # type: ignore[arg-type]
        self.replicas.append(replica)
        replica.replication.start()
        if highest is not None:
            for name in replica.holder.current.views:
                replica.hears(highest, name)
        return replica

    def leaves(self, replica: Replica) -> None:
        self.replicas.remove(replica)

    def check(self) -> None:
        """Never served by one and refused by another. At most moments all is as it was at the one before."""
        toys = [each for each in self.replicas if "toy" in each.holder.current.views]
        answers = [(each.agreed(), each.attached()) for each in toys]
        if len(answers) == len(self._checked) and all(
            agreed is before and attached is was
            for (agreed, attached), (before, was) in zip(answers, self._checked, strict=True)
        ):
            return
        self._checked = answers
        for minor in range(1, 12):
            if any(one.serves(minor) for one in toys):
                assert not any(other.refuses(minor) for other in toys)

    async def until(self, holds: Callable[[], bool], seconds: float = ENOUGH) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                self.check()
                await asyncio.sleep(0.01)

    async def passes(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            self.check()
            await asyncio.sleep(0.01)

    async def all_offer(self, highest: int) -> None:
        await self.until(lambda: all(each.offered() == upto(highest).versions for each in self.replicas))


@asynccontextmanager
async def site(replicas: int = 0) -> AsyncIterator[Site]:
    found = Site()
    try:
        for _ in range(replicas):
            await found.joins()
        if replicas:
            await found.all_offer(5)
        yield found
    finally:
        for each in found.replicas:
            await each.replication.close()


def test_three_replicas_rise_and_fall_together() -> None:
    async def main() -> None:
        async with site(3) as here:
            for each in here.replicas[:2]:
                each.hears(9)
            await here.passes(5)
            assert all(each.offered() == upto(5).versions for each in here.replicas)
            here.replicas[2].hears(9)
            await here.all_offer(9)
            for each in here.replicas:
                each.hears(5)
            await here.all_offer(5)
            assert all(each.replication.report().attached for each in here.replicas)
            await here.until(lambda: here.replicas[0].refuses(9))

    run(main())


def test_a_pin_and_a_drain_hold_for_all() -> None:
    async def main() -> None:
        async with site(3) as here:
            first, second, third = here.replicas
            await second.replication.command("toy", Pin(v("1.3")))
            assert await second.replication.in_force("toy")
            assert all(each.offered() == upto(3).versions for each in here.replicas)
            assert first.holder.current.fleet.member_sets["toy"].pin == v("1.3")
            await third.replication.command("toy", Pin(None))
            await here.all_offer(5)
            backend = first.holder.current.views["toy"].members.all[0].backend.name
            third.in_flight = {f"toy/{backend}": 1}
            await first.replication.command("toy", Drain(backend))
            await here.until(
                lambda: all(
                    each.holder.current.fleet.member_sets["toy"].all[0].drained for each in here.replicas
                )
            )
            await here.passes(2)
            assert first.replication.report().services["toy"].busy[backend]
            third.in_flight = {}
            await here.until(lambda: not first.replication.report().services["toy"].busy[backend])

    run(main())


def test_who_has_drained_a_backend_is_known_to_all_until_an_earlier_release_drains() -> None:
    """An earlier release knows only the names of the drained, and may mean another drain of the same one."""

    async def main() -> None:
        async with site(2) as here:
            first, second = here.replicas
            backend = first.holder.current.views["toy"].members.all[0].backend.name

            def is_drained_by(by: str | None) -> bool:
                return all(
                    each.holder.current.fleet.member_sets["toy"].all[0].drained_by == by
                    for each in here.replicas
                )

            await first.replication.command("toy", Drain(backend, by="roll 1a2b"))
            await here.until(lambda: is_drained_by("roll 1a2b"))
            here.cluster.put(P + "drained", f'["{backend}"]')
            await here.until(lambda: is_drained_by(""))
            await second.replication.command("toy", Drain(backend, drained=False))
            await here.until(lambda: is_drained_by(None))
            assert not {"drained", "drained_by"} & here.cluster.texts(P).keys()

    run(main())


@pytest.mark.parametrize("conditions", [({"served": True},) * 2, ({"by": "roll 1"}, {"by": "roll 2"})])
def test_of_two_drains_at_two_replicas_the_second_is_judged_by_the_first(conditions: Any) -> None:
    """Each would be right alone."""

    async def main() -> None:
        async with site() as here:
            names = "api-1", "api-2"
            first, second = [await here.joins(service(*names)) for _ in names]
            await here.all_offer(5)
            done = await asyncio.gather(
                first.replication.command("toy", Drain(names[0], **conditions[0])),
                second.replication.command("toy", Drain(names[1], **conditions[1])),
                return_exceptions=True,
            )
            assert [type(each) for each in done if each is not None] == [CommandRefused]
            drained = [names[done.index(None)]]
            await here.until(
                lambda: all(
                    [*each.holder.current.views["toy"].members.drained] == drained for each in (first, second)
                )
            )

    run(main())


def test_one_that_is_cut_off_detaches_before_the_others_go_on() -> None:
    async def main() -> None:
        async with site(3) as here:
            cut = here.replicas[0]
            cut.store.link.up = False
            for each in here.replicas:
                each.hears(9)
            await here.until(lambda: here.replicas[1].offered() == upto(9).versions)
            assert cut.offered() == upto(5).versions
            assert not cut.replication.report().attached
            for each in here.replicas:
                each.hears(4)
            await here.passes(10)
            assert not here.replicas[1].refuses(5), "the one that is cut off is registered, and offers it"
            cut.store.link.up = True
            await here.all_offer(4)
            await here.until(lambda: all(each.refuses(5) for each in here.replicas))

    run(main())


def test_without_a_quorum_everybody_keeps_the_offer_until_forget() -> None:
    async def main() -> None:
        async with site(3) as here:
            here.cluster.quorum = False
            await here.passes(10)
            for each in here.replicas:
                each.hears(9)
                assert each.offered() == upto(5).versions
                assert not each.refuses(11)
                assert not each.replication.report().attached
                with pytest.raises(StoreError):
                    await each.replication.command("toy", Pin(v("1.3")))
            await here.passes(60)
            assert all(not each.offered() for each in here.replicas)
            here.cluster.quorum = True
            await here.all_offer(9)

    run(main())


def test_a_store_that_was_wiped_is_formed_anew_from_what_replicas_hold() -> None:
    async def main() -> None:
        async with site(3) as here:
            await here.replicas[0].replication.command("toy", Pin(v("1.3")))
            await here.all_offer(3)
            here.cluster.wipe()
            await here.passes(10)
            await here.all_offer(3)
            assert all(each.replication.report().attached for each in here.replicas)
            assert here.cluster.texts(P)["pin"] == "1.3"
            assert '"seq":1,' not in here.cluster.texts(P)["doc"]

    run(main())


def test_a_restart_with_its_file_comes_up_detached_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with site(2) as here:
            one = here.replicas[1]
            one.kill()
            here.leaves(one)
            here.cluster.quorum = False
            again = await here.joins(highest=None, saved=one.file)
            assert again.offered() == upto(5).versions
            await here.passes(1)
            assert not again.refuses(11)
            here.cluster.quorum = True
            again.hears(5)
            await here.until(lambda: again.replication.report().attached)
            await here.until(lambda: len([k for k in here.cluster.texts(P) if k.startswith("known/")]) == 2)
            assert not [key for key in here.cluster.texts(P) if one.replication.id in key]

    run(main())


def test_a_file_that_is_too_old_answers_nothing_before_it_has_joined() -> None:
    async def main() -> None:
        async with site(2) as here:
            one = here.replicas[1]
            one.kill()
            here.leaves(one)
            await here.passes(70)
            here.cluster.quorum = False
            again = await here.joins(highest=None, saved=one.file)
            await here.passes(3)
            assert not again.offered()
            assert here.cluster.texts(P)["doc"]

    run(main())


def test_one_without_a_file_is_forgotten_by_word_or_by_time() -> None:
    async def main() -> None:
        async with site(3) as here:
            for one in here.replicas[1:]:
                one.kill()
                here.leaves(one)
                await here.passes(0.1)
            left, gone = here.replicas[0], one.replication.id
            assert not await left.replication.forget(gone), "it is live as far as anybody knows"
            await here.until(lambda: not any("live/" + gone in key for key in here.cluster.entries))
            assert await left.replication.forget(gone)
            assert not await left.replication.forget(gone)
            names = here.cluster.texts(P)
            assert len([key for key in names if key.startswith("known/")]) == 2
            await here.until(
                lambda: len([k for k in here.cluster.texts(P) if k.startswith("known/")]) == 1, 80.0
            )

    run(main())


def test_a_clean_stop_leaves_nothing_and_the_other_goes_on() -> None:
    async def main() -> None:
        async with site(2) as here:
            one = here.replicas[1]
            here.leaves(one)
            await one.replication.close()
            names = here.cluster.texts(P)
            assert not [key for key in names if one.replication.id in key]
            assert "gone" in names
            here.replicas[0].hears(9)
            await here.all_offer(9)

    run(main())


def test_workers_hold_a_record_before_it_is_acknowledged() -> None:
    async def main() -> None:
        async with site(2) as here:
            slow = here.replicas[0]
            agreed = slow.holder.current.views["toy"].agreed
            assert agreed is not None
            assert agreed.record is not None
            slow.holds = agreed.record.seq
            for each in here.replicas:
                each.hears(9)
            await here.passes(5)
            assert here.replicas[1].offered() == upto(5).versions
            assert slow.replication.report().services["toy"].awaited == (slow.replication.id,)
            assert not await here.replicas[1].replication.in_force("toy")
            slow.holds = None
            slow.replication.acknowledged()
            await here.all_offer(9)
            assert await slow.replication.in_force()

    run(main())


@pytest.mark.parametrize("text", ["", "[]", '{"form":2}', '{"form":1}', "nonsense"])
def test_a_record_that_cannot_be_followed_is_answered_503_and_said(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with site(1) as here:
            one = here.replicas[0]
            here.cluster.put(P + "doc", text)
            await here.until(lambda: not one.offered())
            assert "cannot be followed" in one.replication.report().services["toy"].problem
            assert not one.refuses(11)
            assert not [key for key in here.cluster.texts(P) if one.replication.id in key]
            here.cluster.delete(P + "doc")
            await here.all_offer(5)

    with caplog.at_level(logging.ERROR, "skewgate.agreement"):
        run(main())
    assert "all requests get 503" in caplog.text


def test_foreign_keys_are_named_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with site(2) as here:
            here.cluster.put(P + "notes", "hello")
            here.cluster.put("/skewgate/here/", "")
            await here.passes(2)
            await here.all_offer(5)

    run(main())
    assert f"{P}notes" in caplog.text


def test_a_reload_adds_and_removes_services() -> None:
    async def main() -> None:
        async with site(2) as here:
            one = here.replicas[0]
            toy = one.holder.current.views["toy"].service
            other = service("api-1", name="other")
            one.holder.update(one.holder.configured([toy, other]).snapshot)
            one.hears(5, "other")
            await here.until(lambda: one.offered("other") == upto(5).versions)
            one.holder.update(one.holder.configured([other]).snapshot)
            here.leaves(one)
            await here.until(lambda: not [k for k in here.cluster.texts(P) if one.replication.id in k])
            assert one.offered("other") == upto(5).versions
            here.replicas[0].hears(9)
            await here.all_offer(9)
            await one.replication.close()

    run(main())


def test_back_to_transparent_it_goes_down_the_ladder_and_waits_for_one_that_is_away() -> None:
    def reloaded(replica: Replica) -> None:
        replica.holder.update(replica.holder.configured([service("api-1")]).snapshot)

    async def main() -> None:
        async with site() as here:
            for _ in range(3):
                one = await here.joins(service("api-1", negotiates_legacy=True), highest=None)
                one.holder.observe("toy", "api-1", ProbeSucceeded(legacy("1.1"), one.clock()))
            await here.all_offer(1)
            *others, away = here.replicas
            away.store.link.up = False
            await here.until(lambda: not away.attached())
            for each in others:
                reloaded(each)
            await here.passes(5)
            assert all(each.offered() == upto(1).versions for each in here.replicas)

            away.store.link.up = True
            await here.until(away.attached)
            reloaded(away)
            await here.until(lambda: all(each.agreed().transparent for each in here.replicas))

    run(main())


def test_lost_answers_and_a_silent_watch_change_nothing() -> None:
    async def main() -> None:
        async with site(3) as here:
            for each in here.replicas:
                each.store.link.watches = False
            flaky = here.replicas[0]
            flaky.store.link.loses_answers = True
            for each in here.replicas:
                each.hears(9)
            await here.passes(8)
            flaky.store.link.loses_answers = False
            await here.all_offer(9)

    run(main())


def test_at_rest_a_beat_costs_two_calls_however_many_services_there_are() -> None:
    async def main() -> None:
        async with site() as here:
            names = [f"s{number}" for number in range(60)]
            one = await here.joins(*(service("api-1", name=name) for name in names))
            await here.until(lambda: one.offered("s59") == upto(5).versions, 60.0)
            await here.until(lambda: not one.replication.awaited(), 60.0)
            await asyncio.sleep(2.0)
            before = one.store.calls
            await asyncio.sleep(30 * SETTINGS.ttl)
            beats = 30 * 4
            assert one.store.calls - before <= 2 * beats + 2 * 30 * 2 + 60

    run(main())
