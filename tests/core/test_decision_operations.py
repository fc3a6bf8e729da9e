"""decide() and explain() for operations that exist in some versions only, and for metered places."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.decision import (
    METERED_RETRY_AFTER,
    RETRY_AFTER,
    Answer,
    Decision,
    Forward,
    Recall,
    Refuse,
    Verdict,
    decide,
)
from gateway.core.dialect import Advert
from gateway.core.dialect import Match as Matching
from gateway.core.explanation import explain
from gateway.core.message import RequestHead
from gateway.core.operations import Entry, Extent, Operations, PathTemplate
from gateway.core.selection import SelectionTable
from gateway.core.service import Match, Policy
from gateway.core.snapshot import Snapshot
from tests.core.stage import XY, Toy, silent, snapshot, upto


def entry(methods: str, path: str, versions: str, refusal: int | None = None) -> Entry:
    held = Extent() if versions == "next" else Extent.read(versions, XY)
    return Entry(tuple(methods.split()), PathTemplate.read(path), held, refusal=refusal)


OPERATIONS = Operations.of(
    [
        entry("GET", "/later/{id}", ">=1.5"),
        entry("GET", "/earlier", "<=1.4"),
        entry("GET", "/gap", "1.1-1.3"),
        entry("GET", "/gap", ">=1.7", refusal=400),
        entry("GET", "/coming", "next"),
        entry("GET", "/legacy", ">=1.9"),
        entry("GET", "/own", ">=1.9"),
    ]
)
FLEET = snapshot({"old": upto(5), "new": upto(9)}, policy=Policy.REACHABLE, operations=OPERATIONS)


def ask(
    base: Snapshot, path: str, version: str | None = None, method: str = "GET", recall: Recall | None = None
) -> Decision:
    head = RequestHead(method, path, "", () if version is None else (("x-version", version),))
    return decide(base, head, "", {}, 0, {} if recall is None else recall)


@pytest.mark.parametrize(
    "path, version, verdict",
    [
        ("/later/7", None, Verdict.BELOW_MIN),  # silence settles first: on 1.1
        ("/later/7", "1.4", Verdict.BELOW_MIN),
        ("/later/7", "1.5", None),
        ("/later/7", "latest", None),
        ("/later/7/more", "1.1", None),
        ("//later/%37/", "1.4", Verdict.BELOW_MIN),
        ("/earlier", "1.4", None),
        ("/earlier", "1.5", Verdict.ABOVE_MAX),
        ("/earlier", "latest", Verdict.ABOVE_MAX),
        ("/earlier", "sealed 1.5", Verdict.ABOVE_MAX),
        ("/gap", "1.3", None),
        ("/gap", "1.5", Verdict.ABOVE_MAX),
        ("/gap", "1.7", None),
        ("/coming", "latest", Verdict.BELOW_MIN),
        ("/elsewhere", "1.1", None),
        ("/legacy", "1.1", None),  # nothing is negotiated there
    ],
)
def test_an_operation_outside_its_versions_is_refused(
    path: str, version: str | None, verdict: Verdict | None
) -> None:
    decision = ask(FLEET, path, version)

    if verdict is None:
        assert isinstance(decision, Forward)
        return
    assert isinstance(decision, Refuse)
    assert decision.verdict is verdict
    assert (decision.reply.status, decision.reply.headers) == (
        400 if path == "/gap" else 404,
        (("Vary", "X-Version"),),
    )
    resolution = decision.resolution
    assert tuple(resolution.candidates.members) == ()
    assert (resolution.marks, resolution.silent_marks) == (b"", b"")
    assert resolution.ask_kind is not None
    assert resolution.version is not None


@pytest.mark.parametrize("method, refused", [("HEAD", True), ("GET", True), ("POST", False)])
def test_head_is_where_get_is(method: str, refused: bool) -> None:
    assert isinstance(ask(FLEET, "/later/7", "1.4", method), Refuse) is refused


def test_what_is_remembered_of_an_ask_is_not_what_was_said_of_an_operation() -> None:
    recall: Recall = {}

    for path, refused in (("/later/7", True), ("/x", False), ("/later/7", True), ("/earlier", False)):
        assert isinstance(ask(FLEET, path, "1.4", recall=recall), Refuse) is refused
    assert len(recall) == 1


def test_an_ask_outside_the_offer_is_refused_as_such() -> None:
    for version in ("1.10", "1.0", "spam"):
        decision = ask(FLEET, "/later/7", version)
        assert isinstance(decision, Refuse)
        assert decision.reply.status == 406


def test_an_operation_that_is_not_there_is_refused_whether_or_not_somebody_could_be_asked() -> None:
    view = FLEET.views["toy"]
    base = replace(FLEET, views={"toy": replace(view, by_version=SelectionTable.of([]))})

    gone, there = ask(base, "/later/7", "1.4"), ask(base, "/earlier", "1.4")

    assert isinstance(gone, Refuse)
    assert isinstance(there, Refuse)
    assert (gone.reply.status, there.reply.status) == (404, 503)
    told = explain(base, "GET", "/earlier", [("X-Version", "1.4")])
    assert told.operation is not None
    assert told.operation.exists


@pytest.mark.parametrize("facts", [{"a": silent("1.1")}, {"a": None}])
def test_where_nothing_was_settled_nothing_is_checked(facts: dict[str, Advert | None]) -> None:
    decision = ask(snapshot(facts, operations=OPERATIONS), "/later/7", "1.1")

    if facts["a"] is None:
        assert isinstance(decision, Refuse)
        assert decision.reply.status == 503
    else:
        assert isinstance(decision, Forward)
        assert decision.resolution.verdict is Verdict.TRANSPARENT


def test_without_operations_nothing_is_looked_up() -> None:
    decision = ask(snapshot({"a": upto(9)}), "/later/7", "1.1")

    assert isinstance(decision, Forward)
    assert decision.resolution.operations is None


def test_the_version_that_counts_is_the_one_that_was_settled_on() -> None:
    """A client that asks for 1.8 gets 1.3 here, and what exists in 1.3."""
    base = snapshot({"a": upto(3)}, dialect=Toy(match=Matching.NEAREST_EARLIER), operations=OPERATIONS)

    assert isinstance(ask(base, "/later/7", "1.8"), Refuse)
    assert isinstance(ask(base, "/earlier", "1.8"), Forward)


def test_paths_are_those_of_the_api_itself() -> None:
    base = snapshot({"a": upto(9)}, match=Match(path="/toys"), operations=OPERATIONS)

    assert isinstance(ask(base, "/toys/later/7", "1.4"), Refuse)


# --- explained ---------------------------------------------------------------------------------------------


def test_it_is_explained_in_words() -> None:
    told = explain(FLEET, "GET", "/later/7?x=1", [("X-Version", "1.4")])

    assert (told.decision, told.status, told.outcome, told.version) == ("refuse", 404, "below_min", "1.4")
    assert told.because == (
        "the version asked for settles on 1.4 of the offer 1.1-1.9, "
        "but GET /later/{id} exists only in 1.5 and later"
    )
    assert told.operation is not None
    assert told.to_json()["operation"] == {
        "method": "GET",
        "path": "/later/{id}",
        "versions": "1.5 and later",
        "exists": False,
    }
    assert told.candidates == ()
    assert {each.reason for each in told.left_out} == {"not_asked"}
    assert told.sends == ()
    assert explain(FLEET, "GET", "/coming").because.endswith("but GET /coming exists in no version yet")


def test_an_operation_that_exists_is_told_as_well() -> None:
    told = explain(FLEET, "HEAD", "/later/7", [("X-Version", "1.5")])

    assert told.decision == "forward"
    assert told.operation is not None
    assert (told.operation.method, told.operation.exists) == ("GET", True)
    assert explain(FLEET, "GET", "/x").operation is None
    assert explain(FLEET, "GET", "/legacy").operation is None


# --- metered places ----------------------------------------------------------------------------------------


def test_a_metered_place_answers_until_it_was_asked_too_often() -> None:
    head = RequestHead("GET", "/dear", "", (("x-version", "1.4"),))

    answered = decide(FLEET, head, "", {}, 0, {})
    refused = decide(FLEET, head, "", {}, 0, {}, spent={"toy"})

    assert isinstance(answered, Answer)
    assert answered.reply.status == 200
    assert b"GET /later/{id}" in answered.reply.body, "the service's operations are handed to the dialect"
    assert isinstance(refused, Answer)
    assert (refused.reply.status, refused.reply.body) == (429, b"Too Many Requests")
    assert ("Retry-After", str(METERED_RETRY_AFTER)) in refused.reply.headers
    assert ("Vary", "X-Version") in refused.reply.headers


def test_other_places_and_other_services_are_not_metered() -> None:
    for path, spent in (("/own", {"toy"}), ("/dear", {"other"})):
        decision = decide(FLEET, RequestHead("GET", path), "", {}, 0, {}, spent=spent)
        assert isinstance(decision, Answer)
        assert decision.reply.status == 200


def test_while_nothing_is_offered_an_answer_may_be_asked_for_later() -> None:
    decision = decide(snapshot({"a": None}), RequestHead("GET", "/dear"), "", {}, 0, {})

    assert isinstance(decision, Answer)
    assert (decision.reply.status, decision.reply.headers[0]) == (503, ("Retry-After", str(RETRY_AFTER)))
