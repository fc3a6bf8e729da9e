"""What a replica votes by its own knowledge, and what several of them come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gateway.core.agreement.ladder import LiveReplica, Vote, all_transparent, legacy_only, next_record
from gateway.core.agreement.record import AgreedRecord
from gateway.core.agreement.votes import (
    policy_text,
    remember,
    vote,
    vote_due,
    votes_transparent,
)
from gateway.core.dialect import Advertisement
from gateway.core.fleet.offer_state import EMPTY, OfferState, reachable_versions
from gateway.core.fleet.service import AtLeast, Policy, Service
from gateway.core.versions.ranges import NO_VERSIONS
from gateway.core.versions.version import Version
from tests.core.agreement.records import at_rest
from tests.core.builders import legacy, service, upto, v
from tests.core.timeline import NEW, OLD, STABILIZATION, UPTO_5, UPTO_9, Timeline, policy_of, timeline


class Replica:
    """One of several gateways: its own probes, its own memory."""

    def __init__(self, one: Service) -> None:
        self.timeline = Timeline(one)
        self.memory: OfferState = EMPTY

    def vote(self, record: AgreedRecord | None) -> Vote | None:
        view, now = self.timeline.view, self.timeline.now
        self.memory = remember(self.memory, record, view.service, view.members, now)
        return vote(self.memory, record, view.service, view.members, now)

    def transparent(self, record: AgreedRecord | None) -> bool:
        view = self.timeline.view
        return votes_transparent(self.memory, record, view.service, view.members)


class Cluster:
    """Several replicas of one service and the record between them; all steps are taken at once."""

    def __init__(self, *services: Service) -> None:
        self.replicas = [Replica(one) for one in services]
        self.record: AgreedRecord | None = None
        self.pin: Version | None = None

    def probe(self, *results: Mapping[str, Advertisement | None]) -> str:
        """What each replica's probes bring. Returns the offer."""
        for replica, found in zip(self.replicas, results, strict=True):
            replica.timeline.probe(found)
        return self.offer()

    def wait(self, seconds: float) -> str:
        for replica in self.replicas:
            replica.timeline.wait(seconds)
        return self.offer()

    def reload(self, at: int, one: Service) -> str:
        replica = self.replicas[at]
        staying = {backend.name for backend in one.backends}
        members = replica.timeline.view.members.all
        gone = reachable_versions(each for each in members if each.backend.name not in staying)
        replica.memory = replace(replica.memory, removed=replica.memory.removed | gone)
        replica.timeline.reload(one)
        return self.offer()

    def live(self) -> list[LiveReplica]:
        seq = 0 if self.record is None else self.record.seq
        found = [(replica.vote(self.record), replica) for replica in self.replicas]
        return [LiveReplica(seq, one, replica.transparent(self.record)) for one, replica in found]

    def offer(self) -> str:
        scheme = self.replicas[0].timeline.view.service.dialect.scheme
        for _ in range(20):
            live = {str(at): one for at, one in enumerate(self.live())}
            found = next_record(self.record, live, list(live), self.pin, scheme)
            if found is None:
                break
            self.record = found
        return (NO_VERSIONS if self.record is None else self.record.offered).format(scheme)


def cluster(**more: object) -> Cluster:
    one = service("a", "b", **{"stabilization": STABILIZATION, **more})  # type: ignore[arg-type]  # its fields
    return Cluster(one, one)


OLD_BOTH = {"a": UPTO_5, "b": UPTO_5}
NEW_BOTH = {"a": UPTO_9, "b": UPTO_9}


def upgraded(**more: object) -> Cluster:
    """Of two replicas that offer the new versions."""
    it = cluster(**more)
    assert it.probe(NEW_BOTH, NEW_BOTH) == NEW
    return it


# --- a vote that is missing --------------------------------------------------------------------------------


def test_there_is_no_vote_before_the_first_round_has_ended() -> None:
    it = cluster()
    assert it.probe(OLD_BOTH, {"a": UPTO_5}) == "none"
    assert [one.vote is None for one in it.live()] == [False, True]

    assert it.probe({}, {"b": UPTO_5}) == OLD


def test_there_is_no_vote_without_an_advertisement() -> None:
    it = upgraded()
    it.replicas.append(Replica(it.replicas[0].timeline.view.service))

    assert it.probe({}, {}, {"a": None, "b": None}) == NEW
    it.pin = v("1.7")
    assert it.offer() == NEW, "a missing vote holds everything"
    assert it.probe({}, {}, {"a": UPTO_9}) == "1.1-1.7"


def test_one_that_joins_where_something_is_on_offer_waits_for_nobody_who_is_down() -> None:
    it = upgraded()
    it.replicas.append(Replica(it.replicas[0].timeline.view.service))

    it.probe({}, {}, {"a": UPTO_9, "b": None})

    assert it.live()[2].vote is not None


def test_while_a_first_probe_is_missing_a_replica_keeps_everything_and_adds_nothing() -> None:
    it = upgraded()
    it.reload(0, service("a", "b", "c", stabilization=STABILIZATION, policy=Policy.REACHABLE))
    found = it.live()[0].vote

    assert it.record is not None
    assert found == Vote("guaranteed", it.record.state, NO_VERSIONS, it.record.state)
    it.pin = v("1.7")
    assert it.offer() == "1.1-1.7"


# --- several replicas --------------------------------------------------------------------------------------


def test_the_offer_rises_when_all_have_seen_it_stand() -> None:
    it = cluster()
    assert it.probe(OLD_BOTH, OLD_BOTH) == OLD
    it.probe(NEW_BOTH, {"a": UPTO_9, "b": UPTO_5})
    assert it.wait(STABILIZATION) == OLD
    assert it.probe({}, {"b": UPTO_9}) == OLD
    assert it.wait(STABILIZATION - 1) == OLD
    assert it.wait(1) == NEW


def test_the_offer_falls_when_no_replica_would_keep_it() -> None:
    it = upgraded()
    assert it.probe(OLD_BOTH, {"a": UPTO_5}) == NEW
    assert it.probe({}, {"b": UPTO_5}) == OLD


def test_one_that_cannot_reach_a_backend_holds_the_change_back() -> None:
    it = upgraded()
    for _ in range(3):
        it.probe({}, {"a": None, "b": None})

    assert it.probe(OLD_BOTH, {}) == NEW


def test_a_version_that_has_fallen_waits_twice_as_long_in_every_replica() -> None:
    it = upgraded()
    assert it.probe(OLD_BOTH, OLD_BOTH) == OLD
    it.probe(NEW_BOTH, NEW_BOTH)

    assert it.wait(STABILIZATION) == OLD
    assert it.wait(STABILIZATION) == NEW


def test_an_offer_of_which_nothing_is_left_is_formed_anew_at_once() -> None:
    later = Advertisement(upto(20).versions.down_to(v("1.12")))
    it = upgraded()

    assert it.probe({"a": later, "b": later}, {"a": later, "b": later}) == "1.12-1.20"


def test_a_removal_acts_with_the_last_replica_that_has_it_and_is_no_fall() -> None:
    it = cluster(**policy_of(Policy.REACHABLE))
    assert it.probe({"a": UPTO_5, "b": UPTO_9}, {"a": UPTO_5, "b": UPTO_9}) == NEW
    alone = service("a", stabilization=STABILIZATION, policy=Policy.REACHABLE)

    assert it.reload(0, alone) == NEW
    assert it.reload(1, alone) == OLD
    it.probe({"a": UPTO_9}, {"a": UPTO_9})
    assert it.wait(STABILIZATION) == NEW


def test_a_policy_acts_with_the_last_replica_that_has_it() -> None:
    it = cluster(**policy_of(Policy.REACHABLE))
    assert it.probe({"a": UPTO_5, "b": UPTO_9}, {"a": UPTO_5, "b": UPTO_9}) == NEW
    other = service("a", "b", stabilization=STABILIZATION)

    assert it.reload(0, other) == NEW
    assert it.reload(1, other) == OLD
    assert it.record is not None
    assert it.record.rule == "guaranteed"


def test_a_lower_ceiling_acts_with_the_first_replica_and_a_higher_one_with_the_last() -> None:
    it = upgraded()
    low = service("a", "b", stabilization=STABILIZATION, ceiling=v("1.6"))
    none = service("a", "b", stabilization=STABILIZATION)

    assert it.reload(0, low) == "1.1-1.6"
    assert it.reload(1, low) == "1.1-1.6"
    assert it.reload(0, none) == "1.1-1.6"
    assert it.reload(1, none) == NEW


def test_draining_is_no_word_about_the_offer() -> None:
    it = upgraded()
    for replica in it.replicas:
        replica.timeline.drain("a")
        replica.timeline.drain("b")

    assert it.offer() == NEW


# --- legacy backends ---------------------------------------------------------------------------------------


def test_a_replica_that_sees_legacy_backends_only_votes_transparent() -> None:
    it = cluster()
    it.probe({"a": legacy("1.1"), "b": legacy("1.1")}, {"a": legacy("1.1"), "b": legacy("1.1")})
    live = it.live()

    assert it.record is None
    assert all_transparent(it.record, live)
    assert legacy_only(it.record, live)


def test_while_one_sees_others_nothing_is_transparent_and_nothing_is_formed() -> None:
    it = cluster()
    it.probe({"a": legacy("1.1"), "b": legacy("1.1")}, {"a": legacy("1.1"), "b": UPTO_5})
    live = it.live()

    assert it.record is None
    assert not all_transparent(it.record, live)
    assert legacy_only(it.record, live)
    assert it.probe({"b": UPTO_5}, {}) == "1.1"


def test_where_something_is_on_offer_legacy_backends_count_as_what_they_stand_for() -> None:
    it = upgraded()
    for _ in range(3):
        it.probe(*[{"a": legacy("1.1"), "b": legacy("1.1")}] * 2)

    assert it.offer() == "1.1"
    assert not any(one.transparent for one in it.live())


def test_after_legacy_backends_alone_the_first_offer_waits_for_no_other_probe() -> None:
    it = cluster()
    it.probe(*[{"a": legacy("1.1"), "b": legacy("1.1")}] * 2)
    more = service("a", "b", "c", stabilization=STABILIZATION)
    assert [it.reload(at, more) for at in (0, 1)] == ["none", "none"]

    assert it.probe({"b": UPTO_5}, {}) == "none"
    assert it.probe({}, {"b": UPTO_5}) == "1.1"


def test_what_only_versioned_backends_served_is_withdrawn_before_a_service_is_transparent() -> None:
    """By legacy backends that stand for no version."""
    it = upgraded()
    for _ in range(3):
        it.probe(*[{"a": legacy(), "b": legacy()}] * 2)

    assert it.offer() == "none"
    assert it.record is not None
    assert it.record.is_empty
    assert all_transparent(it.record, it.live())


def test_refusing_replicas_offer_what_legacy_backends_count_as_once_all_refuse() -> None:
    it = cluster()
    it.probe(*[{"a": legacy("1.1"), "b": legacy("1.1")}] * 2)
    refusing = service("a", "b", stabilization=STABILIZATION, negotiates_legacy=True)

    assert it.reload(0, refusing) == "none"
    assert legacy_only(it.record, it.live()), "the other one still passes requests on without negotiation"
    assert it.reload(1, refusing) == "1.1"


def legacy_offer() -> tuple[Cluster, Service]:
    """Two replicas with `legacy: refuse` that offer 1.1, and the service without that key."""
    refusing = service("a", "b", stabilization=STABILIZATION, negotiates_legacy=True)
    it = Cluster(refusing, refusing)
    assert it.probe(*[{"a": legacy("1.1"), "b": legacy("1.1")}] * 2) == "1.1"
    return it, service("a", "b", stabilization=STABILIZATION)


def test_an_offer_of_legacy_backends_alone_is_taken_back_once_no_replica_refuses() -> None:
    it, passing = legacy_offer()

    assert [it.reload(at, passing) for at in (0, 1)] == ["1.1", "none"]
    assert all_transparent(it.record, it.live())
    assert it.probe({"a": UPTO_5}, {"a": UPTO_5}) == "1.1", "negotiated, as ever"
    for _ in range(3):
        it.probe(*[{"a": legacy("1.1")}] * 2)
    assert it.offer() == "1.1", "a fleet that went back to legacy stays negotiated"


def test_replicas_that_have_never_seen_the_offer_being_made_take_it_back() -> None:
    it, passing = legacy_offer()
    it.replicas = [Replica(passing), Replica(passing)]

    assert it.probe(*[{"a": legacy("1.1"), "b": legacy("1.1")}] * 2) == "none"
    assert all_transparent(it.record, it.live())


def test_one_that_sees_newer_backends_keeps_the_offer() -> None:
    it, passing = legacy_offer()
    it.reload(0, passing)
    it.probe({}, {"a": UPTO_5})

    assert it.reload(1, passing) == "1.1"


def test_the_word_on_legacy_backends_cuts_nothing() -> None:
    """1.6-1.9 stay on offer after a roll-back to 1.5, as without a reload."""
    it = upgraded()
    it.probe(*[{"a": UPTO_5}] * 2)
    refusing = service("a", "b", stabilization=STABILIZATION, negotiates_legacy=True)

    assert [it.reload(at, refusing) for at in (0, 1)] == [NEW, NEW]


# --- time, texts -------------------------------------------------------------------------------------------


def test_when_time_alone_changes_a_vote() -> None:
    it = timeline("a", "b")
    replica = Replica(it.view.service)
    replica.timeline = it
    it.probe(OLD_BOTH)
    record = at_rest(1, "guaranteed", UPTO_5.versions)
    replica.vote(record)
    assert vote_due(replica.memory, it.view.service, it.view.members, it.now) is None

    it.probe(NEW_BOTH)
    first = replica.vote(record)
    assert first is not None
    assert first.want == NO_VERSIONS
    assert vote_due(replica.memory, it.view.service, it.view.members, it.now) == it.now + STABILIZATION

    it.wait(STABILIZATION)
    second = replica.vote(record)
    assert second is not None
    assert second.want == UPTO_9.versions - UPTO_5.versions
    assert vote_due(replica.memory, it.view.service, it.view.members, it.now) is None


def test_before_the_first_offer_it_waits_for_those_that_did_not_answer() -> None:
    it = timeline("a", "b")
    it.probe({"a": UPTO_5, "b": None})
    view = it.view
    memory = remember(EMPTY, None, view.service, view.members, it.now)

    assert vote(memory, None, view.service, view.members, it.now) is None
    assert vote_due(memory, view.service, view.members, it.now) == it.now + STABILIZATION


def test_a_policy_has_one_text() -> None:
    texts = {
        policy_text(service("a", policy=policy, at_least=at_least))
        for policy, at_least in (
            (Policy.GUARANTEED, AtLeast(2)),
            (Policy.REACHABLE, AtLeast(2)),
            (Policy.AT_LEAST, AtLeast(2)),
            (Policy.AT_LEAST, AtLeast(50, percent=True)),
        )
    }
    assert texts == {"guaranteed", "reachable", "at_least 2", "at_least 50%"}


def test_nothing_new_is_the_same_memory() -> None:
    it = upgraded()
    replica = it.replicas[0]
    before = replica.memory
    replica.vote(it.record)

    assert replica.memory is before
