"""A service on which several replicas agree, in one replica: what it remembers, votes, shows and saves."""

from __future__ import annotations

import pytest

from gateway.core.agreement.attachment import NOT_JOINED, Agreed
from gateway.core.agreement.ladder import Vote
from gateway.core.agreement.record import AgreedRecord
from gateway.core.decision.decision import Decision, Forward, Refuse, decide
from gateway.core.dialect import Advertisement, DefaultKind, DefaultVersion
from gateway.core.fleet.fleet import Pin, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.offer import HeldRule, Phase
from gateway.core.fleet.publication import publication, published
from gateway.core.fleet.service import AtLeast, Policy
from gateway.core.fleet.snapshot import NO_VOTE, OwnVote, ServiceView, Snapshot
from gateway.core.http.message import RequestHead
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Named
from tests.core.agreement.records import at_rest
from tests.core.builders import OtherToy, Toy, explained, legacy, service, upto, v
from tests.core.timeline import NEW, OLD, STABILIZATION, UPTO_5, UPTO_9

RESTS = at_rest(3, "guaranteed", UPTO_5.versions)
OLD_BOTH: dict[str, Advertisement | None] = {"a": UPTO_5, "b": UPTO_5}
NEW_BOTH: dict[str, Advertisement | None] = {"a": UPTO_9, "b": UPTO_9}


def begun(*names: str, **more: object) -> Snapshot:
    """Of a replica that has not joined."""
    one = service(*names, **{"stabilization": STABILIZATION, **more})  # type: ignore[arg-type]  # its fields
    return Snapshot.configured([one], now=0.0, agreed=NOT_JOINED)


def holding(record: AgreedRecord | None, before: Snapshot, now: float = 0.0, **more: bool) -> Snapshot:
    return before.with_agreed({"toy": Agreed(record, voting=True, **more)}, now)


def probed(before: Snapshot, results: dict[str, Advertisement | None], now: float = 0.0) -> Snapshot:
    facts = [
        ("toy", who, ProbeFailed("no connection", now) if found is None else ProbeSucceeded(found, now))
        for who, found in results.items()
    ]
    return before.after(facts, now)


def joined(
    results: dict[str, Advertisement | None], record: AgreedRecord | None = RESTS, **more: object
) -> Snapshot:
    return holding(record, probed(begun(*results, **more), results))


def view(of: Snapshot) -> ServiceView:
    return of.views["toy"]


def shown(of: Snapshot) -> str:
    return view(of).offer.versions.format(view(of).service.dialect.scheme)


def own(of: Snapshot, now: float = 0.0) -> Vote:
    found = of.vote("toy", now).vote
    assert found is not None
    return found


def sent(to: Snapshot, version: str | None = None) -> Decision:
    fields = () if version is None else (("x-version", version),)
    return decide(to, RequestHead("GET", "/x", "", fields), "api.test", {}, 0, {})


def status(decision: Decision) -> int:
    assert isinstance(decision, Refuse)
    return decision.response.status


# --- joining -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, "1.1", "1.91", "latest", "nonsense"])
@pytest.mark.parametrize("results", [OLD_BOTH, {"a": legacy(), "b": legacy()}, {}])
def test_one_that_has_not_joined_answers_503(
    version: str | None, results: dict[str, Advertisement | None]
) -> None:
    assert status(sent(probed(begun("a", "b"), results), version)) == 503


def test_one_that_has_not_joined_says_why() -> None:
    one = probed(begun("a", "b"), OLD_BOTH)

    assert "has not joined the others" in explained(one, "GET", "/x").because


def test_it_votes_before_it_has_joined() -> None:
    assert begun("a", "b").vote("toy", 0.0) == NO_VOTE
    one = probed(begun("a", "b"), OLD_BOTH)

    assert own(one) == Vote("guaranteed", NO_VERSIONS, UPTO_5.versions, UPTO_5.versions)


def test_who_stands_alone_or_is_not_configured_votes_nothing() -> None:
    alone = probed(Snapshot.configured([service("a")], now=0.0), {"a": UPTO_5})

    assert alone.vote("toy", 0.0) == NO_VOTE
    assert begun("a").vote("unknown", 0.0) == NO_VOTE


def test_what_it_offered_alone_is_no_word_of_the_others_and_has_not_fallen() -> None:
    """A state file says it, from a time without other replicas."""
    alone = probed(Snapshot.configured([service("a", "b")], now=0.0), NEW_BOTH)
    one = Snapshot.configured(
        [service("a", "b", stabilization=STABILIZATION)], now=1.0, saved=alone.saved(), agreed=NOT_JOINED
    )
    assert view(one).offer_state.versions == NO_VERSIONS
    assert one.vote("toy", 1.0) == NO_VOTE, "its first round of probes has not ended"
    one = probed(holding(RESTS, one, 1.0), NEW_BOTH, 1.0)

    assert view(one).offer_state.versions == UPTO_5.versions
    assert not view(one).offer_state.falls.parts
    assert view(holding(RESTS, alone, 1.0)).offer_state.falls.parts == ()
    assert view(holding(RESTS, alone, 1.0)).offer_state.versions == UPTO_5.versions


# --- voting ------------------------------------------------------------------------------------------------


def test_when_time_alone_changes_a_vote_the_view_is_renewed_once() -> None:
    one = probed(joined(OLD_BOTH), NEW_BOTH, 1.0)
    assert own(one, 1.0).want == NO_VERSIONS
    assert one.due == 1.0 + STABILIZATION
    held = view(one).offer
    assert (held.phase, held.held.rule) == (Phase.STABILIZING, HeldRule.STABILIZATION)

    later = one.after((), one.due)
    assert view(later) is not view(one), "whoever watches votes again"
    assert own(later, 1.0 + STABILIZATION).want == UPTO_9.versions - UPTO_5.versions
    assert later.due is None
    assert view(later).offer.held.rule is HeldRule.AGREEMENT, "the others have not seen it stand"
    assert later.after((), 99.0) is later

    risen = holding(at_rest(6, "guaranteed", UPTO_9.versions), later, 12.0)
    assert (shown(risen), view(risen).offer.held.rule) == (NEW, None)
    assert view(risen).offer.phase is Phase.UNIFORM


def test_a_vote_is_of_the_moment_for_which_it_is_asked() -> None:
    one = probed(joined(OLD_BOTH), NEW_BOTH, 1.0)

    assert own(one, 1.0 + STABILIZATION).want == UPTO_9.versions - UPTO_5.versions


def test_a_fall_waits_for_the_others() -> None:
    one = probed(joined(NEW_BOTH, at_rest(3, "guaranteed", UPTO_9.versions)), OLD_BOTH, 1.0)
    lost = UPTO_9.versions - UPTO_5.versions

    assert own(one, 1.0).floor == UPTO_5.versions
    assert shown(one) == NEW
    assert (view(one).offer.held.rule, view(one).offer.held.versions) == (HeldRule.AGREEMENT, lost)
    fallen = holding(at_rest(6, "guaranteed", UPTO_5.versions), one, 2.0)
    assert (shown(fallen), view(fallen).offer.held.rule) == (OLD, None)
    assert [part.versions for part in view(fallen).offer_state.falls.parts] == [lost]


def test_what_holds_the_offer_is_first_an_operators_ceiling() -> None:
    one = joined(NEW_BOTH, at_rest(3, "guaranteed", UPTO_9.versions))
    pinned = one.with_fleet(one.fleet.apply("toy", Pin(v("1.5"))), 1.0)

    assert (view(pinned).offer.held.rule, view(pinned).offer.pinned) == (HeldRule.CEILING, True)
    assert shown(pinned) == NEW, "until the record has gone down"


def test_a_lower_ceiling_of_another_replica_holds_by_agreement() -> None:
    nine = UPTO_9.versions
    five = UPTO_5.versions
    one = joined(NEW_BOTH, AgreedRecord(7, "guaranteed", nine, five, five, five))

    assert view(one).offer.held.rule is HeldRule.AGREEMENT
    assert view(one).offer.held.versions == nine - UPTO_5.versions


def test_a_vote_that_is_missing_holds() -> None:
    one = holding(RESTS, begun("a", "b"))

    assert (shown(one), view(one).offer.held.rule) == (OLD, HeldRule.AGREEMENT)
    assert view(one).offer.phase is Phase.UNKNOWN


def test_only_an_offer_between_two_steps_is_moving() -> None:
    five, nine = UPTO_5.versions, UPTO_9.versions
    for record, moving in (
        (None, False),
        (AgreedRecord(4, "guaranteed", nine, five, five, nine), False),
        (AgreedRecord(5, "guaranteed", nine, five, nine, nine), True),
        (at_rest(6, "guaranteed", nine), False),
    ):
        assert view(joined(NEW_BOTH, record)).offer.moving is moving


# --- reloads -----------------------------------------------------------------------------------------------


def reloaded(before: Snapshot, now: float, *names: str, **more: object) -> Snapshot:
    one = service(*names, **{"stabilization": STABILIZATION, **more})  # type: ignore[arg-type]  # its fields
    return Snapshot.configured([one], now=now, after=before, agreed=NOT_JOINED)


def test_a_removal_is_a_vote_and_no_fall() -> None:
    results: dict[str, Advertisement | None] = {"a": UPTO_5, "b": UPTO_9}
    one = joined(results, at_rest(3, "reachable", UPTO_9.versions), policy=Policy.REACHABLE)
    after = reloaded(one, 1.0, "a", policy=Policy.REACHABLE)

    assert (shown(after), own(after, 1.0).floor) == (NEW, UPTO_5.versions)
    assert view(after).offer.held.rule is HeldRule.AGREEMENT, "until the others have that file"
    fallen = holding(at_rest(4, "reachable", UPTO_5.versions), after, 2.0)
    assert not view(fallen).offer_state.falls.parts


def test_a_policy_and_a_ceiling_are_words_of_a_vote() -> None:
    results: dict[str, Advertisement | None] = {"a": UPTO_5, "b": UPTO_9}
    one = joined(results, at_rest(3, "reachable", UPTO_9.versions), policy=Policy.REACHABLE)
    after = reloaded(one, 1.0, "a", "b", policy=Policy.AT_LEAST, at_least=AtLeast(2), ceiling=v("1.4"))

    found = own(after, 1.0)
    assert (found.rule, found.gives, found.cap) == ("at_least 2", UPTO_5.versions, v("1.4"))
    assert shown(after) == NEW
    assert view(after).agreed == view(one).agreed


def test_while_a_first_probe_is_missing_after_a_reload_nothing_moves() -> None:
    one = joined(OLD_BOTH)
    found = own(reloaded(one, 1.0, "a", "b", "c"), 1.0)

    assert (found.floor, found.want) == (UPTO_5.versions, NO_VERSIONS)


def test_another_scheme_is_joined_anew_and_one_that_gained_names_is_not() -> None:
    few, more = Named(("v1", "v2")), Named(("v1alpha1", "v1", "v2"))
    record = at_rest(3, "guaranteed", VersionSet.only(few.require("v1")))
    one = holding(record, begun("a", dialect=Toy(scheme=few)))

    gained = reloaded(one, 1.0, "a", dialect=Toy(scheme=more))
    assert shown(gained) == "v1"
    assert view(gained).offer_state.versions == view(gained).offer.versions
    assert view(reloaded(one, 1.0, "a", dialect=OtherToy(scheme=few))).agreed == NOT_JOINED
    assert view(reloaded(one, 1.0, "a", dialect=Toy())).agreed == NOT_JOINED


# --- legacy backends ---------------------------------------------------------------------------------------


def test_while_another_replica_sees_legacy_backends_only_these_get_the_requests() -> None:
    one = holding(None, probed(begun("a", "b"), {"a": legacy("1.1"), "b": UPTO_5}), legacy_only=True)

    for version in (None, "1.5", "nonsense"):
        decision = sent(one, version)
        assert isinstance(decision, Forward)
        assert [each.backend.name for each in decision.resolution.candidates.members] == ["a"]
    assert view(one).offer.held.rule is HeldRule.AGREEMENT
    assert "some replica sees legacy backends only" in explained(one, "GET", "/x").because


@pytest.mark.parametrize("more", [{"legacy_only": True}, {"transparent": True}])
def test_one_that_sees_no_legacy_backend_sends_to_nobody_meanwhile(more: dict[str, bool]) -> None:
    """A backend with versions would show its own for all."""
    assert status(sent(holding(None, probed(begun("a", "b"), OLD_BOTH), **more))) == 503


def test_a_replica_that_sees_legacy_backends_only_votes_transparent() -> None:
    one = joined({"a": legacy("1.1"), "b": legacy("1.1")}, None)

    assert one.vote("toy", 0.0) == OwnVote(None, transparent=True)
    assert status(sent(one)) == 503, "until all replicas say so"
    assert isinstance(sent(holding(None, one, transparent=True)), Forward)


def test_a_transparent_service_stays_so_while_the_first_probe_of_an_added_backend_is_missing() -> None:
    """What the others count as can be offered anew only once that is known."""
    one = joined({"a": upto(9)}, at_rest(3, "guaranteed", UPTO_9.versions))
    for at in (1.0, 2.0, 3.0):
        one = probed(one, {"a": legacy()}, at)
    one = holding(
        AgreedRecord(9, "guaranteed", NO_VERSIONS, NO_VERSIONS, NO_VERSIONS, NO_VERSIONS),
        one,
        4.0,
        transparent=True,
    )
    assert one.vote("toy", 4.0) == OwnVote(None, transparent=True)

    one = probed(reloaded(one, 5.0, "a", "b"), {"a": legacy("1.1")}, 6.0)
    assert one.vote("toy", 6.0) == OwnVote(None, transparent=True)
    assert isinstance(sent(one), Forward)
    assert own(probed(one, {"b": legacy("1.1")}, 7.0), 7.0).want == legacy("1.1").versions


# --- detached ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attached, expected", [(True, None), (False, "1.3")])
def test_what_means_the_latest_is_served_by_somebody_where_it_is_detached(
    attached: bool, expected: str | None
) -> None:
    dialect = Toy(DefaultVersion(DefaultKind.MAXIMUM))
    one = joined({"a": upto(3)}, dialect=dialect)
    one = one.with_agreed({"toy": Agreed(RESTS, attached, voting=True)}, 0.0)

    for version in ("latest", None):
        decision = sent(one, version)
        if expected is None:
            assert status(decision) == 503
        else:
            assert isinstance(decision, Forward)
            assert decision.resolution.version_text == expected


# --- what is saved, and published --------------------------------------------------------------------------


def test_one_that_stands_alone_reads_what_is_saved() -> None:
    """The file may lose its `agreement`, or an older release may read the state."""
    one = joined(OLD_BOTH)
    saved = one.saved()["toy"]

    assert (saved.versions, saved.cut) == (UPTO_5.versions, False)
    other = reloaded(one, 1.0, "a", "b", policy=Policy.REACHABLE).saved()["toy"]
    assert (other.versions, other.cut) == (UPTO_5.versions, True), "another policy than the record's"


def test_workers_decide_by_what_is_published_and_have_no_vote() -> None:
    first = probed(joined(OLD_BOTH), NEW_BOTH, 1.0)
    there = published(None, publication(None, first))
    assert there.due is None
    assert (shown(there), view(there).agreed) == (OLD, view(first).agreed)

    five, nine = UPTO_5.versions, UPTO_9.versions
    record = AgreedRecord(4, "guaranteed", nine, five, nine, nine)
    second = holding(record, first, 12.0, attached=False)
    there = published(there, publication(first, second))
    assert view(there).agreed == Agreed(record, attached=False, voting=True)
    assert view(there).offer_state == view(second).offer_state
    for version in ("1.3", "1.7", "1.91", None):
        assert type(sent(there, version)) is type(sent(second, version))
