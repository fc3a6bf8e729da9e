"""decide(): every end that a request can come to, and what is remembered on the way."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision import (
    NO_ROUTE,
    REMEMBERED_ASK,
    REMEMBERED_ASKS,
    RETRY_AFTER,
    Answer,
    Decision,
    Forward,
    Recall,
    Refuse,
    Unrouted,
    Verdict,
    decide,
)
from gateway.core.dialect import AskKind, Dialect, Silence, SilenceKind
from gateway.core.fleet import Answered
from gateway.core.message import Header, RequestHead
from gateway.core.service import Match, Policy
from gateway.core.snapshot import Snapshot
from tests.core.stage import OtherToy, Toy, service, silent, snapshot, upto, v

MIXED = snapshot({"old": upto(5), "new": upto(9)})
REACHABLE = snapshot({"old": upto(5), "new": upto(9)}, policy=Policy.REACHABLE)


def ask(
    base: Snapshot,
    path: str = "/x",
    version: str | None = None,
    *more: Header,
    recall: Recall | None = None,
    load: Mapping[str, int] | None = None,
    method: str = "GET",
) -> Decision:
    fields = (*(() if version is None else (("x-version", version),)), *more)
    return decide(
        base,
        RequestHead(method, path, "q=1", fields),
        "api.test",
        load or {},
        0,
        {} if recall is None else recall,
    )


def forwarded(decision: Decision) -> Forward:
    assert isinstance(decision, Forward)
    return decision


def refused(decision: Decision) -> Refuse:
    assert isinstance(decision, Refuse)
    return decision


def able(decision: Decision) -> set[str]:
    return {each.backend.name for each in forwarded(decision).resolution.candidates.members}


# --- forward -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version, kind, settled, candidates",
    [
        ("1.3", AskKind.EXACT, "1.3", {"old", "new"}),
        ("1.8", AskKind.EXACT, "1.8", {"new"}),
        ("latest", AskKind.LATEST, "1.9", {"new"}),
        (None, AskKind.SILENT, "1.1", {"old", "new"}),
    ],
)
def test_it_goes_to_one_that_serves_the_version(
    version: str | None, kind: AskKind, settled: str, candidates: set[str]
) -> None:
    decision = forwarded(ask(REACHABLE, "/x", version))
    resolution = decision.resolution

    assert (resolution.verdict, resolution.version, resolution.version_text) == (
        Verdict.SERVED,
        v(settled),
        settled,
    )
    assert resolution.ask is not None
    assert resolution.ask.kind is kind
    assert able(decision) == candidates
    assert decision.member.backend.name in candidates
    assert (decision.path, resolution.reply) == ("/x", None)
    assert resolution.bounds == REACHABLE.views["toy"].offer.bounds


def test_the_settled_version_is_written_and_what_is_read_but_not_owned_goes_on() -> None:
    resolution = forwarded(ask(MIXED, "/x", "1.3", ("x-kind", "forged"), ("accept", "text/x"))).resolution

    assert resolution.marks == b"X-Version: 1.3\r\nX-Kind: text/x\r\naccept: text/x\r\n"
    assert resolution.silent_marks == b"accept: text/x\r\n"


def test_load_and_chance_choose() -> None:
    decision = forwarded(ask(MIXED, load={"toy/old": 5}))

    assert decision.member.backend.name == "new"


def test_a_sealed_request_is_routed_by_its_version_and_nothing_is_written_or_taken_off() -> None:
    resolution = forwarded(
        ask(REACHABLE, "/x", "sealed 1.8", ("x-kind", "signed, too"), ("accept", "text/x"))
    ).resolution

    assert resolution.version == v("1.8")
    assert [each.backend.name for each in resolution.candidates.members] == ["new"]
    as_it_came = b"x-version: sealed 1.8\r\nx-kind: signed, too\r\naccept: text/x\r\n"
    assert (resolution.marks, resolution.silent_marks) == (as_it_came, as_it_came)
    assert refused(ask(REACHABLE, "/x", "sealed 1.10")).verdict is Verdict.ABOVE_MAX


def test_transparent_nothing_is_read_or_written() -> None:
    resolution = forwarded(
        ask(snapshot({"a": silent("1.1")}), "/x", "spam", ("x-kind", "k"), ("x-version", "2"))
    ).resolution

    assert (resolution.ask, resolution.version, resolution.version_text) == (None, None, "")
    assert resolution.verdict is Verdict.TRANSPARENT
    untouched = b"x-version: spam\r\nx-kind: k\r\nx-version: 2\r\n"
    assert (resolution.marks, resolution.silent_marks) == (untouched, untouched)


@pytest.mark.parametrize("path, candidates", [("/doc", {"new"}), ("/legacy", {"new", "quiet"})])
def test_where_nothing_is_negotiated_owned_headers_are_dropped(path: str, candidates: set[str]) -> None:
    fleet = snapshot({"quiet": silent("1.1"), "new": upto(9)})

    decision = forwarded(ask(fleet, path, "spam", ("accept", "text/x")))
    resolution = decision.resolution

    assert able(decision) == candidates
    assert (resolution.ask, resolution.verdict, resolution.version) == (None, None, None)
    assert resolution.marks == resolution.silent_marks == b"accept: text/x\r\n"


def test_a_silent_member_gets_what_its_silence_stands_for_without_version_headers() -> None:
    fleet = snapshot({"quiet": silent("1.1"), "new": upto(9)}, policy=Policy.REACHABLE)

    assert able(ask(fleet, "/x", "1.1")) == {"quiet", "new"}
    assert able(ask(fleet, "/x", "1.2")) == {"new"}
    assert able(ask(fleet, "/new", "1.1")) == {"new"}, "a place for those with versions only"
    assert forwarded(ask(fleet, "/x", "1.1")).resolution.silent_marks == b""


def test_what_the_route_takes_off_is_not_in_the_path() -> None:
    below = snapshot({"a": upto(9)}, match=Match(path="/toy"))

    assert forwarded(ask(below, "/toy/x")).path == "/x"
    assert forwarded(ask(below, "/toy")).path == "/"
    assert forwarded(ask(below, "/toy/doc")).resolution.place.name == "doc", "places are the API's own"


# --- refuse --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version, verdict, text",
    [
        ("1.0", Verdict.BELOW_MIN, "1.0"),
        ("1.6", Verdict.ABOVE_MAX, "1.6"),
        ("spam", Verdict.MALFORMED, ""),
    ],
)
def test_outside_the_offer_the_dialect_refuses_and_nobody_is_touched(
    version: str, verdict: Verdict, text: str
) -> None:
    decision = refused(ask(MIXED, "/x", version))

    assert (decision.verdict, decision.reply.status) == (verdict, 406)
    assert decision.reply.body == verdict.value.encode()
    assert decision.reply.headers == (("Vary", "X-Version"),)
    assert decision.resolution.candidates.tiers == ()
    assert decision.resolution.version_text == text


def test_silence_may_be_a_constant_that_is_no_longer_on_offer() -> None:
    constant = Silence(SilenceKind.CONSTANT, v("1.7"))

    assert refused(ask(snapshot({"a": upto(5)}, silence=constant))).verdict is Verdict.ABOVE_MAX
    assert forwarded(ask(snapshot({"a": upto(9)}, silence=constant))).resolution.version == v("1.7")


@pytest.mark.parametrize("path", ["/x", "/new", "/doc", "/legacy"])
@pytest.mark.parametrize("version", [None, "1.3", "1.99", "spam"])
def test_before_the_first_offer_everything_is_unavailable(path: str, version: str | None) -> None:
    """Documents, too: a backend's own range would be a promise that the fleet has not made."""
    decision = refused(ask(snapshot({"a": upto(5)}, unasked=["b"]), path, version))

    assert (decision.verdict, decision.reply.status) == (Verdict.UNAVAILABLE, 503)
    assert ("Retry-After", str(RETRY_AFTER)) in decision.reply.headers
    assert ("Vary", "X-Version") in decision.reply.headers
    assert decision.resolution.version is None


@pytest.mark.parametrize("path", ["/x", "/doc"])
def test_under_a_ceiling_below_the_minimum_nothing_is_offered(path: str) -> None:
    decision = refused(ask(snapshot({"a": upto(9, 5)}, ceiling=v("1.4")), path, "1.5"))

    assert (decision.verdict, decision.reply.status) == (Verdict.UNAVAILABLE, 503)


def test_what_is_on_offer_but_served_by_nobody_who_may_answer_is_unavailable_and_never_refused() -> None:
    """A place for members with versions, and only a silent one serves this."""
    fleet = snapshot({"quiet": silent("1.1"), "new": upto(9, 2)}, policy=Policy.REACHABLE)

    decision = refused(ask(fleet, "/new", "1.1"))

    assert (decision.verdict, decision.reply.status) == (Verdict.UNAVAILABLE, 503)
    assert decision.resolution.version == v("1.1")
    assert able(ask(fleet, "/x", "1.1")) == {"quiet"}


def test_a_dialect_without_vary_gets_none() -> None:
    bare = snapshot({"a": upto(5)}, dialect=Toy(vary=()))

    assert refused(ask(bare, "/x", "1.6")).reply.headers == ()


# --- answer, and no service ----------------------------------------------------------------------------


def test_an_answered_place_is_answered_even_before_anything_is_known() -> None:
    known, unknown = ask(MIXED, "/own", method="PUT"), ask(snapshot({"a": None}), "/own")

    assert isinstance(known, Answer)
    assert known.reply.body == b"PUT /own?q=1 1.5"
    assert known.reply.headers == (("Vary", "X-Version"),)
    assert isinstance(unknown, Answer)
    assert unknown.reply.body == b"GET /own?q=1 unknown"


def test_a_dialect_that_answers_nothing_says_so() -> None:
    class Mute(Toy):
        answer = Dialect.answer

    with pytest.raises(NotImplementedError, match="toy has no place"):
        ask(snapshot({"a": upto(5)}, dialect=Mute()), "/own")


def test_no_service() -> None:
    decision = ask(snapshot({"a": upto(5)}, match=Match(path="/toy")), "/other")

    assert isinstance(decision, Unrouted)
    assert decision is NO_ROUTE


# --- what is remembered --------------------------------------------------------------------------------


def resolution_of(decision: Decision) -> object:
    assert not isinstance(decision, Unrouted)
    return decision.resolution


@pytest.mark.parametrize("version", [None, "1.3", "1.99", "spam", "latest"])
@pytest.mark.parametrize("path", ["/x", "/doc", "/new"])
def test_equal_asks_are_resolved_once(path: str, version: str | None) -> None:
    recall: Recall = {}

    first = resolution_of(ask(MIXED, path, version, recall=recall))

    assert resolution_of(ask(MIXED, path, version, recall=recall)) is first
    assert resolution_of(ask(MIXED, path, "1.2", recall=recall)) is not first
    assert resolution_of(ask(MIXED, path, version, ("accept", "x"), recall=recall)) is not first


def test_what_is_remembered_never_outlives_its_view() -> None:
    recall: Recall = {}
    before = forwarded(ask(MIXED, "/x", "latest", recall=recall))
    assert before.resolution.version == v("1.5")

    after = MIXED.knowing(MIXED.fleet.observe("toy", "old", Answered(upto(7), 2.0)), 0.0)
    assert forwarded(ask(after, "/x", "latest", recall=recall)).resolution.version == v("1.7")

    reloaded = Snapshot.configured([service("old", "new", ceiling=v("1.2"))], after=after, now=0.0)
    assert forwarded(ask(reloaded, "/x", "latest", recall=recall)).resolution.version == v("1.2")
    assert forwarded(ask(MIXED, "/x", "latest", recall=recall)).resolution.version == v("1.5")


def test_services_do_not_share_what_is_remembered() -> None:
    one = service("a", match=Match(path="/one"))
    other = service("a", name="other", dialect=OtherToy(), match=Match(path="/other"))
    first = Snapshot.configured([one, other], now=0.0)
    both = first.knowing(
        first.fleet.observe("toy", "a", Answered(upto(5), 1.0)).observe("other", "a", Answered(upto(9), 1.0)),
        0.0,
    )
    recall: Recall = {}

    assert forwarded(ask(both, "/one/x", "latest", recall=recall)).resolution.version == v("1.5")
    assert forwarded(ask(both, "/other/x", "latest", recall=recall)).resolution.version == v("1.9")


def test_an_answer_is_made_anew_every_time() -> None:
    """It may depend on the whole target, which is not part of what is remembered."""
    recall: Recall = {}
    ask(MIXED, "/own", recall=recall)

    again = ask(MIXED, "/own", recall=recall, method="PUT")

    assert isinstance(again, Answer)
    assert again.reply.body.startswith(b"PUT")
    assert recall == {}


def test_the_table_stays_bounded_in_number_and_size() -> None:
    """Clients choose what stands in their headers (V11)."""
    recall: Recall = {}
    for number in range(REMEMBERED_ASKS + 10):
        ask(MIXED, "/x", f"1.{number}", recall=recall)
        assert len(recall) <= REMEMBERED_ASKS
    before = len(recall)

    ask(MIXED, "/x", "1." + "9" * REMEMBERED_ASK, recall=recall)
    ask(MIXED, "/x", "1.3", ("accept", "x" * REMEMBERED_ASK), recall=recall)

    assert len(recall) == before


TEXTS = (
    st.none()
    | st.sampled_from(["latest", "spam", "sealed 1.3", "sealed x"])
    | st.builds("{}.{}".format, st.integers(0, 2), st.integers(0, 12))
)
ADVERTS = st.none() | st.builds(upto, st.integers(5, 10), st.integers(1, 5)) | st.just(silent("1.1"))


@given(
    st.lists(ADVERTS, min_size=1, max_size=4),
    st.sampled_from(Policy),
    st.sampled_from(["/x", "/new", "/doc", "/legacy"]),
    st.lists(TEXTS, min_size=1, max_size=4),
    st.integers(0, 2**64 - 1),
)
def test_no_request_reaches_a_member_that_does_not_serve_what_was_settled_on(
    adverts: list[object], policy: Policy, path: str, versions: list[str | None], ticket: int
) -> None:
    """The promise of the house, with and without memory."""
    told = {f"b{number}": advert for number, advert in enumerate(adverts)}
    base = snapshot(told, policy=policy)  # type: ignore[arg-type]  # adverts or None
    recall: Recall = {}
    for version in (*versions, *versions):
        head = RequestHead("GET", path, "", () if version is None else (("x-version", version),))

        decision = decide(base, head, "", {}, ticket, recall)

        match decision:
            case Forward(resolution, member):
                assert member.advert is not None
                settled = resolution.version
                assert settled is None or settled in member.advert.versions
                assert settled is None or settled in base.views["toy"].offer.versions
                assert (
                    not (member.silent and resolution.place.versioned_only)
                    or base.views["toy"].offer.transparent
                )
            case Refuse(resolution, reply):
                assert reply.status in {406, 503}
                assert (reply.status == 503) == (decision.verdict is Verdict.UNAVAILABLE)
            case other:
                pytest.fail(f"unexpected {other}")
        fresh = decide(base, head, "", {}, ticket, {})
        assert type(fresh) is type(decision)
        assert fresh[1] == decision[1]
