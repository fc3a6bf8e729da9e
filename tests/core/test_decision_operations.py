"""decide() and explain() for operations that exist only in some versions, and for rate-limited endpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.decision.decision import (
    Answer,
    Decision,
    DecisionCache,
    Forward,
    NegotiationResult,
    Refuse,
    decide,
)
from gateway.core.decision.local_responses import RETRY_AFTER, THROTTLED_RETRY_AFTER
from gateway.core.decision.operations import OperationRule, Operations, PathTemplate
from gateway.core.decision.selection import SelectionTable
from gateway.core.dialect import Advertisement
from gateway.core.dialect import VersionMatch as Matching
from gateway.core.fleet.service import Match, Policy
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead
from gateway.core.versions.ranges import VersionSet
from tests.core.builders import XY, Toy, explained, legacy, snapshot, upto


def rule(methods: str, path: str, versions: str, refusal: int | None = None) -> OperationRule:
    exists = VersionSet() if versions == "next" else VersionSet.read_open(versions, XY)
    return OperationRule(tuple(methods.split()), PathTemplate.read(path), exists, refusal=refusal)


OPERATIONS = Operations.of(
    [
        rule("GET", "/later/{id}", ">=1.5"),
        rule("GET", "/earlier", "<=1.4"),
        rule("GET", "/gap", "1.1-1.3"),
        rule("GET", "/gap", ">=1.7", refusal=400),
        rule("GET", "/coming", "next"),
        rule("GET", "/legacy", ">=1.9"),
        rule("GET", "/own", ">=1.9"),
    ]
)
FLEET = snapshot({"old": upto(5), "new": upto(9)}, policy=Policy.REACHABLE, operations=OPERATIONS)


def send(
    base: Snapshot,
    path: str,
    version: str | None = None,
    method: str = "GET",
    decision_cache: DecisionCache | None = None,
) -> Decision:
    head = RequestHead(method, path, "", () if version is None else (("x-version", version),))
    return decide(base, head, "", {}, 0, {} if decision_cache is None else decision_cache)


@pytest.mark.parametrize(
    "path, version, result",
    [
        ("/later/7", None, NegotiationResult.BELOW_MIN),  # negotiated first: 1.1
        ("/later/7", "1.4", NegotiationResult.BELOW_MIN),
        ("/later/7", "1.5", None),
        ("/later/7", "latest", None),
        ("/later/7/more", "1.1", None),
        ("//later/%37/", "1.4", NegotiationResult.BELOW_MIN),
        ("/earlier", "1.4", None),
        ("/earlier", "1.5", NegotiationResult.ABOVE_MAX),
        ("/earlier", "latest", NegotiationResult.ABOVE_MAX),
        ("/earlier", "signed 1.5", NegotiationResult.ABOVE_MAX),
        ("/gap", "1.3", None),
        ("/gap", "1.5", NegotiationResult.ABOVE_MAX),
        ("/gap", "1.7", None),
        ("/coming", "latest", NegotiationResult.BELOW_MIN),
        ("/elsewhere", "1.1", None),
        ("/legacy", "1.1", None),  # nothing is negotiated there
    ],
)
def test_an_operation_outside_its_versions_is_refused(
    path: str, version: str | None, result: NegotiationResult | None
) -> None:
    decision = send(FLEET, path, version)

    if result is None:
        assert isinstance(decision, Forward)
        return
    assert isinstance(decision, Refuse)
    assert decision.result is result
    assert (decision.response.status, decision.response.headers) == (
        400 if path == "/gap" else 404,
        (("Vary", "X-Version"),),
    )
    resolution = decision.resolution
    assert tuple(resolution.candidates.members) == ()
    assert (resolution.request_field_lines, resolution.legacy_request_field_lines) == (b"", b"")
    assert resolution.requested_kind is not None
    assert resolution.version is not None


@pytest.mark.parametrize("method, refused", [("HEAD", True), ("GET", True), ("POST", False)])
def test_head_exists_where_get_does(method: str, refused: bool) -> None:
    assert isinstance(send(FLEET, "/later/7", "1.4", method), Refuse) is refused


def test_the_refusal_of_an_operation_is_not_cached() -> None:
    decision_cache: DecisionCache = {}

    for path, refused in (("/later/7", True), ("/x", False), ("/later/7", True), ("/earlier", False)):
        assert isinstance(send(FLEET, path, "1.4", decision_cache=decision_cache), Refuse) is refused
    assert len(decision_cache) == 1


def test_a_requested_version_outside_the_offer_is_refused_as_such() -> None:
    for version in ("1.10", "1.0", "spam"):
        decision = send(FLEET, "/later/7", version)
        assert isinstance(decision, Refuse)
        assert decision.response.status == 406


def test_a_missing_operation_is_refused_even_without_a_candidate() -> None:
    view = FLEET.views["toy"]
    base = replace(FLEET, views={"toy": replace(view, by_version=SelectionTable.of([]))})

    gone, there = send(base, "/later/7", "1.4"), send(base, "/earlier", "1.4")

    assert isinstance(gone, Refuse)
    assert isinstance(there, Refuse)
    assert (gone.response.status, there.response.status) == (404, 503)
    shown = explained(base, "GET", "/earlier", [("X-Version", "1.4")])
    assert shown.operation is not None
    assert shown.operation.exists


@pytest.mark.parametrize("facts", [{"a": legacy("1.1")}, {"a": None}])
def test_where_nothing_was_negotiated_nothing_is_checked(facts: dict[str, Advertisement | None]) -> None:
    decision = send(snapshot(facts, operations=OPERATIONS), "/later/7", "1.1")

    if facts["a"] is None:
        assert isinstance(decision, Refuse)
        assert decision.response.status == 503
    else:
        assert isinstance(decision, Forward)
        assert decision.resolution.result is NegotiationResult.TRANSPARENT


def test_without_operations_nothing_is_looked_up() -> None:
    decision = send(snapshot({"a": upto(9)}), "/later/7", "1.1")

    assert isinstance(decision, Forward)
    assert decision.resolution.operations is None


def test_the_negotiated_version_counts_and_not_the_requested_one() -> None:
    """A client that requests 1.8 gets 1.3 here, and the operations of 1.3."""
    base = snapshot({"a": upto(3)}, dialect=Toy(match=Matching.NEAREST_EARLIER), operations=OPERATIONS)

    assert isinstance(send(base, "/later/7", "1.8"), Refuse)
    assert isinstance(send(base, "/earlier", "1.8"), Forward)


def test_paths_are_those_of_the_api_itself() -> None:
    base = snapshot({"a": upto(9)}, match=Match(path="/toys"), operations=OPERATIONS)

    assert isinstance(send(base, "/toys/later/7", "1.4"), Refuse)


# --- explained ---------------------------------------------------------------------------------------------


def test_a_missing_operation_is_explained() -> None:
    shown = explained(FLEET, "GET", "/later/7?x=1", [("X-Version", "1.4")])

    assert (shown.decision, shown.status, shown.result, shown.version) == (
        "refuse",
        404,
        "below_min",
        "1.4",
    )
    assert shown.because == (
        "the requested version leads to 1.4 of the offer 1.1-1.9, "
        "but GET /later/{id} exists only in 1.5 and later"
    )
    assert vars(shown.operation) == {
        "method": "GET",
        "path": "/later/{id}",
        "versions": "1.5 and later",
        "exists": False,
    }
    assert shown.candidates == ()
    assert {each.reason for each in shown.left_out} == {"not_asked"}
    assert shown.sends == ()
    assert explained(FLEET, "GET", "/coming").because.endswith("but GET /coming exists in no version yet")


def test_an_operation_that_exists_is_explained_too() -> None:
    shown = explained(FLEET, "HEAD", "/later/7", [("X-Version", "1.5")])

    assert shown.decision == "forward"
    assert shown.operation is not None
    assert (shown.operation.method, shown.operation.exists) == ("GET", True)
    assert explained(FLEET, "GET", "/x").operation is None
    assert explained(FLEET, "GET", "/legacy").operation is None


# --- rate-limited endpoints --------------------------------------------------------------------------------


def test_a_rate_limited_endpoint_answers_until_the_service_is_throttled() -> None:
    head = RequestHead("GET", "/costly", "", (("x-version", "1.4"),))

    answered = decide(FLEET, head, "", {}, 0, {})
    refused = decide(FLEET, head, "", {}, 0, {}, throttled={"toy"})

    assert isinstance(answered, Answer)
    assert answered.response.status == 200
    assert b"GET /later/{id}" in answered.response.body, "the service's operations are handed to the dialect"
    assert isinstance(refused, Answer)
    assert (refused.response.status, refused.response.body) == (429, b"Too Many Requests")
    assert ("Retry-After", str(THROTTLED_RETRY_AFTER)) in refused.response.headers
    assert ("Vary", "X-Version") in refused.response.headers


def test_other_endpoints_and_other_services_are_not_throttled() -> None:
    for path, throttled in (("/own", {"toy"}), ("/costly", {"other"})):
        decision = decide(FLEET, RequestHead("GET", path), "", {}, 0, {}, throttled=throttled)
        assert isinstance(decision, Answer)
        assert decision.response.status == 200


def test_while_nothing_is_on_offer_a_503_says_when_to_retry() -> None:
    decision = decide(snapshot({"a": None}), RequestHead("GET", "/costly"), "", {}, 0, {})

    assert isinstance(decision, Answer)
    assert (decision.response.status, decision.response.headers[0]) == (
        503,
        ("Retry-After", str(RETRY_AFTER)),
    )
