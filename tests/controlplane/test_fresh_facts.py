"""What an operator's question for fresh probes brings, of one replica and of several."""

from __future__ import annotations

import json
from asyncio import Future, get_running_loop, sleep
from functools import partial
from typing import cast

from gateway.admin.waiting import Wanted, reasons
from gateway.controlplane.fresh_facts import FreshFacts
from gateway.controlplane.prober import Prober
from gateway.controlplane.replication.entries import read_sight, write_beat
from gateway.controlplane.replication.reading import PROBE
from gateway.controlplane.sight import Evidence, Sight
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import Drain, ProbeFailed, ProbeSucceeded
from gateway.telemetry.worker_report import Ejected
from tests.controlplane.test_replication import P, Replica, Site, site
from tests.core.builders import XY, snapshot, upto, v
from tests.kit.clocks import run

KEY = ("toy", "api-1")
API_1 = frozenset({"api-1"})


COUNTED = (
    lambda _service: {("api-1", "1.1", False): 7, ("api-2", "1.1", True): 5},
    lambda _service: {("api-1", "1.1", False): 2, ("api-1", "1.1", True): 1, ("none", "", True): 2},
)
EJECTED = (dict, lambda: {"toy/api-1": Ejected("a", 1.0)})


class Answers:
    """Stands in for the prober of one replica: its backend answers when the test says so."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.asked, self.at = replica, 0, -1.0

    def probe_now(self, service: str, *, unanswered_since: float = 0.0) -> float:
        self.asked += 1
        return self.replica.clock()

    def answers(self, highest: int) -> None:
        self.at = self.replica.clock()
        fact = ProbeSucceeded(Advertisement(upto(highest).versions), self.at)
        self.replica.holder.observe(*KEY, fact)

    def has_ended(self, key: tuple[str, str], since: float) -> bool:
        return key == KEY and self.at >= since

    has_answered = has_ended


def with_facts(here: Site) -> list[tuple[FreshFacts, Answers]]:
    found = []
    for each in here.replicas:
        prober = Answers(each)
        in_flight = partial(getattr, each, "in_flight")
        facts = FreshFacts(each.holder, cast(Prober, prober), in_flight, each.replication)
        found.append((facts, prober))
    return found


def seen(facts: FreshFacts, question: str) -> list[Sight | None]:
    return list(facts.sights("toy", question).values())


def all_answered(facts: FreshFacts, question: str) -> bool:
    return all(each is not None and not each.unanswered for each in seen(facts, question))


def test_every_live_replica_is_asked_and_none_answers_by_what_it_knew() -> None:
    async def main() -> None:
        async with site(3) as here:
            (facts, own), *others = with_facts(here)
            question = await facts.request("toy")
            await here.until(lambda: all(each.asked for _, each in others))
            await here.until(lambda: None not in seen(facts, question))
            assert [each and each.unanswered for each in seen(facts, question)] == [API_1] * 3

            for _, each in others:
                each.answers(9)
            own.answers(5)
            await here.until(lambda: not any(one and one.unanswered for one in seen(facts, question)))
            own_sight, *others_see = seen(facts, question)
            assert own_sight is not None
            assert own_sight.serves == {"api-1": upto(5).versions}
            assert [each and each.serves for each in others_see] == [{"api-1": upto(9).versions}] * 2

            again = await facts.request("toy")
            await here.passes(2)
            assert [each and each.unanswered for each in seen(facts, again)] == [API_1] * 3

    run(main())


def test_a_replica_that_does_not_know_the_question_has_not_answered_and_no_longer_counts_when_gone() -> None:
    async def main() -> None:
        async with site(2) as here:
            older = here.replicas[1]
            facts, _ = with_facts(here)[0]
            older.replication.facts = None
            question = await facts.request("toy")
            await here.passes(3)
            assert facts.sights("toy", question)[older.replication.id] is None
            await older.replication.close()
            here.leaves(older)
            await here.until(lambda: list(facts.sights("toy", question)) == [""])

    run(main())


def test_two_questions_at_a_time_are_both_answered_by_the_later_one() -> None:
    async def main() -> None:
        async with site(2) as here:
            (first, own), (second, other) = with_facts(here)
            one, two = await first.request("toy"), await second.request("toy")
            await here.passes(1)
            own.answers(5)
            other.answers(5)
            await here.until(lambda: all_answered(first, one))
            await here.until(lambda: all_answered(second, two))

    run(main())


def test_idle_is_what_every_replica_says_after_the_question() -> None:
    async def main() -> None:
        async with site(2) as here:
            (facts, _), _ = with_facts(here)
            here.replicas[1].in_flight["toy/api-1"] = 1
            await here.replicas[0].replication.command("toy", Drain("api-1"))
            question = await facts.request("toy")
            await here.passes(3)
            own, other = seen(facts, question)
            assert [own and own.idle, other and other.idle] == [API_1, frozenset()]
            here.replicas[1].in_flight.clear()
            await here.until(lambda: all(each and each.idle for each in seen(facts, question)))

    run(main())


def test_every_replica_tells_what_it_has_counted_of_the_member_that_is_judged() -> None:
    async def main() -> None:
        async with site(2) as here:
            prober = cast(Prober, Answers(here.replicas[0]))
            first, second = (
                FreshFacts(each.holder, prober, dict, each.replication, evidence=evidence, ejected=ejected)
                for each, evidence, ejected in zip(here.replicas, COUNTED, EJECTED, strict=True)
            )
            question = await first.request("toy", "api-1")
            await here.until(lambda: None not in first.sights("toy", question, "api-1").values())
            assert [one and one.evidence for one in first.sights("toy", question, "api-1").values()] == [
                Evidence("api-1", "", 0, {"1.1": [7, 0, 5, 5]}),
                Evidence("api-1", "ejected: a", 2, {"1.1": [3, 1, 0, 0]}),
            ]
            # Somebody else waits meanwhile: whoever judges, goes on.
            later = await second.request("toy")
            await here.until(lambda: None not in first.sights("toy", later, "api-1").values())
            assert all(one and one.evidence for one in first.sights("toy", later, "api-1").values())

    run(main())


def test_the_question_is_no_foreign_key_and_a_beat_without_one_is_as_before() -> None:
    async def main() -> None:
        async with site(2) as here:
            (facts, _), _ = with_facts(here)
            beats = {key: entry.text for key, entry in here.cluster.entries.items() if ":beats/" in key}
            assert all(text.isdigit() for text in beats.values())
            await facts.request("toy")
            await here.passes(2)
            assert PROBE in here.cluster.texts(P)
            assert not here.replicas[1].replication._readings.services["toy"].foreign

    run(main())


def test_an_answer_in_the_store_is_read_strictly() -> None:
    evidence = Evidence("api-1", "", 0, {"1.5": [4, 3, 2, 1]})
    none = frozenset[str]()
    sight = Sight("mixed", {"api-1": upto(5).versions}, frozenset({"api-2"}), none, none, evidence)
    text = write_beat(3, {"toy": (7, sight, XY)})

    assert read_sight(text, "toy", 7, XY) == read_sight(text, "toy", 6, XY) == sight
    assert read_sight(text, "toy", 8, XY) is None
    assert read_sight(text, "other", 7, XY) is None
    for damaged in ("", "12", "{", "[]", '{"answers": 3}', text.replace("1.5", "spam")):
        assert read_sight(damaged, "toy", 7, XY) is None
    assert read_sight(text.replace("evidence", "x"), "toy", 7, XY) == sight._replace(evidence=None)
    for damaged in (text.replace("[4,", '["4",'), text.replace(",1]", "]"), text.replace('"lost":0,', "")):
        assert read_sight(damaged, "toy", 7, XY) == sight._replace(evidence=None)
    assert json.loads(text)["beat"] == 3


def test_a_failed_probe_answers_nothing() -> None:
    async def main() -> None:
        async with site(1) as here:
            ((facts, prober),) = with_facts(here)
            question = await facts.request("toy")
            prober.answers(5)
            here.replicas[0].holder.observe(*KEY, ProbeFailed("no connection", here.replicas[0].clock()))
            sight = facts.sights("toy", question)[""]
            assert sight is not None
            assert (len(sight.serves), sight.unanswered, len(sight.unprobed)) == (0, API_1, 0)
            view = here.replicas[0].holder.current.views["toy"]
            assert reasons(Wanted(phase="uniform"), view, sight)
            assert not reasons(Wanted(offer=v("1.5")), view, sight)

    run(main())


async def test_a_backend_is_idle_only_by_what_workers_have_counted_since_its_drain() -> None:
    """Their last counts may be older than the drain, and lack a request that they sent before it."""
    holder, recounts = SnapshotHolder(snapshot({"api-1": upto(9)})), list[Future[None]]()
    in_flight: dict[str, int] = {}

    def counted() -> Future[None]:
        recounts.append(get_running_loop().create_future())
        return recounts[-1]

    facts = FreshFacts(holder, cast(Prober, None), lambda: in_flight, None, counted)
    holder.apply("toy", Drain("api-1"))
    await sleep(0)
    assert facts.idle("toy") == frozenset()

    holder.apply("toy", Drain("api-1", drained=False))
    holder.apply("toy", Drain("api-1"))
    await sleep(0)
    recounts[0].set_result(None)
    await sleep(0)
    assert facts.idle("toy") == frozenset(), "that was the drain before"

    in_flight["toy/api-1"] = 1
    recounts[1].set_result(None)
    await sleep(0)
    assert facts.idle("toy") == frozenset()
    in_flight.clear()
    assert facts.idle("toy") == API_1
