"""Explanations of what is not a version's doing: own answers, and times at which nothing is offered."""

from __future__ import annotations

import pytest

from gateway.core.explanation import explain
from gateway.core.service import Policy
from tests.core.stage import silent, snapshot, upto, v


def test_a_place_that_the_gateway_answers_itself() -> None:
    told = explain(snapshot({"a": upto(5), "b": None}), "GET", "/own?x")

    assert (told.decision, told.status, told.because) == (
        "answer",
        200,
        "the gateway answers this place by itself",
    )
    assert told.reply is not None
    assert told.reply.body == "GET /own?x 1.5"
    assert {each.backend: each.reason for each in told.left_out} == {"a": "not_asked", "b": "unknown"}


@pytest.mark.parametrize("target", ["/x", "/doc", "/legacy"])
def test_before_the_first_round_is_over_nobody_is_asked_and_the_reason_is_told(target: str) -> None:
    told = explain(snapshot({"a": upto(5)}, unasked=["b"]), "GET", target)

    assert (told.decision, told.status, told.version) == ("refuse", 503, None)
    assert told.because.startswith("nothing is offered at this moment")
    assert {each.backend: each.reason for each in told.left_out} == {"a": "not_asked", "b": "unknown"}


def test_a_ceiling_that_allows_nothing() -> None:
    told = explain(snapshot({"a": upto(9, 5)}, ceiling=v("1.4")), "GET", "/x", [("X-Version", "1.5")])

    assert told.because.endswith("or a ceiling allows none")
    assert told.offer is not None
    assert (told.offer.ceiling, told.offer.phase) == ("1.4", "capped")


def test_a_silent_backend_where_only_those_with_versions_will_do() -> None:
    told = explain(snapshot({"quiet": silent("1.1"), "new": upto(9)}), "GET", "/new", [("X-Version", "1.1")])
    assert {each.backend: each.reason for each in told.left_out} == {"quiet": "silent"}


def test_on_offer_but_executed_by_nobody_who_may() -> None:
    told = explain(
        snapshot({"quiet": silent("1.1"), "new": upto(9, 2)}, policy=Policy.REACHABLE), "GET", "/new"
    )

    assert (told.decision, told.outcome, told.version) == ("refuse", "unavailable", "1.1")
    assert told.because.endswith("but no backend in service can execute it")
    assert {each.backend: each.reason for each in told.left_out} == {"quiet": "silent", "new": "version"}
