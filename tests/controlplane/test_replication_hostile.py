"""What stands in the store and in the state file against a replica: nothing of it takes a service down."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from datetime import date
from ipaddress import ip_network
from typing import Any

import pytest

from gateway.controlplane.replication.entries import config_digest, read_live, write_live
from gateway.controlplane.replication.reading import Readings
from gateway.controlplane.stores.store import Transaction
from gateway.core.agreement.record import UnreadableRecord
from gateway.core.clients import CertificateNames, Client, Naming
from gateway.core.fleet.fleet import Drain, Pin
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.pace import Pace
from gateway.core.fleet.service import Service
from tests.controlplane.memory_store import MemoryCluster
from tests.controlplane.test_replication import P, Replica, Site, site
from tests.core.builders import XY, Toy, service, upto, v
from tests.kit.clocks import run


@pytest.mark.parametrize(
    "key, text", [("pin", "nonsense"), ("pin", "2027-flamingo"), ("drained", "[1]"), ("drained", "{")]
)
def test_an_operators_word_that_cannot_be_read_changes_nothing(
    key: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with site(2) as here:
            first, second = here.replicas
            here.cluster.put(P + key, text)
            for each in here.replicas:
                each.hears(9)
            await here.passes(10)
            assert all(each.offered() == upto(5).versions for each in here.replicas)
            assert all(each.replication.report().attached for each in here.replicas)
            assert caplog.text.count("takes no step") == 2, "once by each"
            backend = first.holder.current.views["toy"].members.all[0].backend.name
            await second.replication.command("toy", Pin(None) if key == "pin" else Drain(backend, False))
            await here.all_offer(9)
            assert key not in here.cluster.texts(P)

    with caplog.at_level(logging.WARNING, "skewgate.agreement"):
        run(main())


def test_a_drain_over_names_that_cannot_be_read_keeps_those_in_force() -> None:
    async def main() -> None:
        async with site() as here:
            one = await here.joins(service("api-1", "api-2"))
            await here.all_offer(5)
            await one.replication.command("toy", Drain("api-1"))
            here.cluster.put(P + "drained", "nonsense")
            await here.passes(2)
            await one.replication.command("toy", Drain("api-2"))
            assert json.loads(here.cluster.texts(P)["drained"]) == ["api-1", "api-2"]

    run(main())


@pytest.mark.parametrize("names", ["nonsense", "[]", "7"])
def test_names_of_who_drained_that_cannot_be_read_are_replaced_by_the_next_drain(names: str) -> None:
    async def main() -> None:
        async with site() as here:
            one = await here.joins(service("api-1", "api-2"))
            await here.all_offer(5)
            await one.replication.command("toy", Drain("api-1", by="roll 1a2b"))
            here.cluster.apply(Transaction((), {P + "drained": '["api-1"]', P + "drained_by": names}))
            await here.passes(2)
            await one.replication.command("toy", Drain("api-2"))
            assert json.loads(here.cluster.texts(P)["drained_by"]) == {"api-1": "roll 1a2b"}

    run(main())


async def _restarted(here: Site, one: Replica, boot: str) -> Replica:
    """Killed, and started again with its file."""
    one.kill()
    here.leaves(one)
    again = await here.joins(highest=None, saved=one.file, boot=boot)
    await again._save()  # as the keeper of the state file does at its start
    return again


@pytest.mark.parametrize("boots", [("boot", "boot"), ("second", "third")])
def test_restarts_while_the_store_is_away_keep_the_record(boots: tuple[str, str]) -> None:
    async def main() -> None:
        async with site(2) as here:
            one, record = here.replicas[1], here.replicas[1].file["toy"].record
            assert record is not None
            here.cluster.quorum = False
            for boot in boots:
                await here.passes(3)
                one = await _restarted(here, one, boot)
                assert one.offered() == upto(5).versions
                assert one.file["toy"].record == record
            await here.passes(70)
            assert not one.offered(), "it is forgotten by now"
            one = await _restarted(here, one, boots[1])
            assert not one.offered()
            await one._save()
            assert one.file["toy"].record == record, "an absence is no record"
            here.cluster.quorum = True
            for each in here.replicas:
                each.hears(5)
            await here.all_offer(5)
            assert one.file["toy"].record is not None

    run(main())


def test_predecessors_that_left_nothing_behind_are_named_no_more() -> None:
    async def main() -> None:
        async with site(2) as here:
            one = here.replicas[1]
            here.cluster.quorum = False
            for _ in range(70):
                one = await _restarted(here, one, "boot")
            assert len(one.file["toy"].registered.ids) == 64  # type: ignore[union-attr]
            here.cluster.quorum = True
            one.hears(5)
            await here.until(lambda: one.replication.report().attached)
            await here.passes(10)
            registered = one.replication.registrations()["toy"]
            assert registered.ids == (one.replication.id,)
            assert len([key for key in here.cluster.texts(P) if key.startswith("known/")]) == 2

    run(main())


def test_a_store_restored_to_a_lower_revision_is_read_anew() -> None:
    async def main() -> None:
        cluster = MemoryCluster()
        one = Replica(cluster, service("api-1"))
        readings = Readings(one.store, "/skewgate/here/", one.holder, one.clock)
        revision = cluster.put(P + "pin", "1.3")
        await readings.read(["toy"])
        for number in range(5):
            cluster.put("/elsewhere", str(number))
        await readings.read(["toy"])
        cluster.put("/elsewhere", "last")
        await readings.read(["toy"])
        assert readings.services["toy"].revision == revision, "the same reading, of an early revision"
        readings.services["toy"] = replace(readings.services["toy"], revision=cluster.contents("").revision)
        cluster._revision = revision
        assert await readings.read(["toy"]) >= {"toy"}
        assert readings.services["toy"].revision == revision

    run(main())


def test_a_detached_one_adopts_no_record_before_it_is_registered() -> None:
    async def main() -> None:
        async with site(2) as here:
            cut, other = here.replicas
            before = cut.offered()
            cut.store.link.up = False
            for each in here.replicas:
                each.hears(9)
            await here.until(lambda: other.offered() == upto(9).versions)
            held = cut.replication._members["toy"].held
            cut.holds = 0  # a worker holds nothing, so it cannot join
            cut.store.link.up = True
            await here.passes(5)
            assert cut.replication._members["toy"].held == held
            assert cut.offered() == before
            assert not cut.replication.report().attached
            cut.holds = None
            cut.replication.acknowledged()
            await here.all_offer(9)

    run(main())


def test_after_a_clean_stop_nobody_goes_on_by_the_file() -> None:
    async def main() -> None:
        async with site(2) as here:
            one, other = here.replicas
            here.leaves(one)
            await one.replication.close()
            other.hears(3)
            await here.until(lambda: other.refuses(5))
            here.cluster.quorum = False
            again = await here.joins(highest=None, saved=one.file)
            here.check()
            assert not again.offered()
            here.cluster.quorum = True
            again.hears(3)
            await here.all_offer(3)

    run(main())


GOOD = json.loads(write_live(3, None, frozenset({"api-1"}), service("api-1"), transparent=False))
VOTE: dict[str, object] = {"rule": "reachable", "floor": [], "want": [], "gives": [], "cap": None}


def test_a_word_that_is_good_is_read() -> None:
    assert read_live(json.dumps(GOOD), XY).replica.ack == 3
    assert read_live(json.dumps({**GOOD, "vote": VOTE}), XY).replica.vote is not None


@pytest.mark.parametrize(
    "change",
    [
        *({"ack": ack} for ack in (True, -1, 2**53, 1.0, "1", None)),
        *({"forms": forms} for forms in ([], [True], [0], [-1], ["1"], [1] * 65, None)),
        *({"idle": idle} for idle in ([""], ["x" * 256], [1], ["x"] * 4097, "api-1")),
        *(
            {"vote": {**VOTE, "more": 1}},
            {"vote": {"rule": "reachable"}},
            {"vote": 1},
            {"vote": {**VOTE, "cap": 1}},
        ),
        *({"config": "x" * 201}, {"config": None}, {"transparent": 1}, {"more": 1}),
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_word_of_which_anything_is_wrong_is_no_vote(change: dict[str, object]) -> None:
    with pytest.raises(UnreadableRecord):
        read_live(json.dumps({**GOOD, **change}), XY)


@dataclass(frozen=True)
class Earlier:
    header: str = "x-version"
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Later:
    header: str = "x-version"
    names: frozenset[str] = frozenset()
    added: bool = False


def _with(options: object, **more: Any) -> Service:
    dialect = Toy()
    dialect.made_of = options
    return service("api-1", dialect=dialect, **more)


DAYS = (date(2030, 1, 1), date(2030, 1, 2))


def test_the_digest_is_that_of_values_and_not_of_releases() -> None:
    plain = config_digest(_with(Earlier()))
    assert plain == "495503465339a2f2"
    assert plain == config_digest(_with(Later()))
    assert config_digest(_with(Earlier(names=frozenset("abc")))) == config_digest(
        _with(Later(names=frozenset("cba")))
    )
    others = [
        *(_with(Earlier("x-other")), _with(Later(added=True)), _with(Earlier(), ceiling=v("1.3"))),
        _with(Earlier(), retry_after=False),
        _with(Earlier(), negotiates_legacy=True),
        *(_with(Earlier(), lifecycle=Lifecycle(None, Line(v("1.3"), day))) for day in DAYS),
        *(
            _with(Earlier(), paces=(Pace(("a",), v(own), until),), naming=Naming(rules))
            for own, until, rules in (
                ("1.3", None, ()),
                ("1.2", None, ()),
                ("1.3", date(2099, 1, 1), ()),
                ("1.3", None, (Client("a", "curl"),)),
                ("1.3", None, (Client("a", networks=(ip_network("10.0.0.0/8"),)),)),
                ("1.3", None, (Client("a", certificate=CertificateNames("CN=a")),)),
                ("1.3", None, (Client("a", certificate=CertificateNames(san="a")),)),
            )
        ),
    ]
    assert len({plain, *map(config_digest, others)}) == len(others) + 1


def test_a_beat_of_another_history_is_not_the_own_one() -> None:
    async def main() -> None:
        async with site(1) as here:
            one = here.replicas[0].replication
            await here.passes(3)
            await one._read_all()
            assert await one._quiet_beat()
            guard = one._own_beat
            entry = here.cluster._entries[guard.key]
            assert (entry.revision, entry.text) == (guard.revision, guard.text)
            here.cluster._entries[guard.key] = entry._replace(text="another")
            await one._read_all()
            assert not await one._quiet_beat()

    run(main())
