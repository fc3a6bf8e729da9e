"""Which member gives a discovery document, and when it is answered from the cache instead.

The rule is that of `Legacy backends` and `Responding` in docs/semantics.md.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

from collections.abc import Container, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.decision import (
    AnswerCached,
    Decision,
    DocumentKey,
    Forward,
    NegotiationResult,
    Refuse,
    decide,
    reselect,
)
from gateway.core.decision.explanation import explain
from gateway.core.dialect import Advertisement, Endpoint
from gateway.core.fleet.fleet import Pin
from gateway.core.fleet.service import Policy
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from tests.core.builders import Toy, drain, legacy, snapshot, upto, v, with_attributes

NEGOTIATED = Endpoint("negotiated", document=True, versioned_only=True)
OLD_MOUNT = Endpoint("mount", negotiated=False, document=True)
"""A document that legacy members have of their own right, as Nova's `/v2`."""


class Documents(Toy):
    """Legacy members stand for 1.1."""

    legacy_versions = VersionSet.only(Version(1, 1))

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        own = {"/negotiated": NEGOTIATED, "/mount": OLD_MOUNT}
        return own.get(path) or super().endpoint(method, path, query)


class Everything:
    """Contains every document."""

    def __contains__(self, key: object) -> bool:
        return True


EVERYTHING = Everything()
PATHS = ("/doc", "/negotiated", "/mount")


def fleet(results: Mapping[str, Advertisement | None], *drained: str) -> Snapshot:
    """A service that has offered what all of `results` serve, of which some are drained since."""
    base = snapshot(results, dialect=Documents())
    return base.with_fleet(drain(base.fleet, *drained), 1.0)


def get(
    base: Snapshot,
    path: str = "/doc",
    known: Container[DocumentKey] = (),
    *,
    version: str | None = None,
    method: str = "GET",
    query: str = "",
) -> Decision:
    fields = () if version is None else (("x-version", version),)
    head = RequestHead(method, path, query, fields)
    return decide(base, head, "", {}, 0, {}, cached_documents=known)


def able(decision: Decision) -> set[str]:
    assert isinstance(decision, Forward)
    return {member.backend.name for member in decision.resolution.candidates.members}


TWO = {"old": legacy("1.1"), "new": upto(9)}


@pytest.mark.parametrize("path", ["/doc", "/negotiated"])
@pytest.mark.parametrize("known", [(), EVERYTHING])
def test_a_document_comes_from_a_member_that_is_not_legacy(path: str, known: Container[DocumentKey]) -> None:
    assert able(get(snapshot(TWO, dialect=Documents()), path, known)) == {"new"}, "only 1.1 is on offer"
    reachable = snapshot(TWO, dialect=Documents(), policy=Policy.REACHABLE)
    assert able(get(reachable, path, known)) == {"new"}


def more_on_offer_than_legacy() -> Snapshot:
    """1.1 to 1.9 are on offer, and only a legacy member is in service."""
    base = snapshot(TWO, dialect=Documents(), policy=Policy.REACHABLE)
    return base.with_fleet(drain(base.fleet, "new"), 1.0)


@pytest.mark.parametrize("path", ["/doc", "/negotiated"])
def test_R_D7_what_is_known_goes_before_a_legacy_member(path: str) -> None:
    base = more_on_offer_than_legacy()

    decision = get(base, path, EVERYTHING, query="a=1")

    assert isinstance(decision, AnswerCached)
    view = base.views["toy"]
    assert decision.key[:3] == (view.service, decision.resolution.endpoint, f"{path}?a=1")
    assert decision.key.members is view.members
    assert not decision.key.from_legacy, "the legacy member can be asked"
    assert able(get(base, path)) == {"old"}, "where nothing is known"


def test_R_D7_a_legacy_member_gives_the_document_of_what_it_serves_only() -> None:
    base = more_on_offer_than_legacy()

    decision = get(base, "/negotiated", version="1.5")

    assert isinstance(decision, Refuse)
    assert decision.result is NegotiationResult.UNAVAILABLE
    known = get(base, "/negotiated", EVERYTHING, version="1.5")
    assert isinstance(known, AnswerCached)
    assert known.resolution.version == v("1.5")


@pytest.mark.parametrize("path", ["/doc", "/negotiated"])
def test_R_D7_where_only_legacy_versions_are_on_offer_a_legacy_member_goes_before_what_is_known(
    path: str,
) -> None:
    base = more_on_offer_than_legacy()
    pinned = base.with_fleet(base.fleet.apply("toy", Pin(v("1.1"))), 2.0)

    assert able(get(pinned, path, EVERYTHING)) == {"old"}
    away = pinned.with_fleet(drain(pinned.fleet, "new", "old"), 3.0)
    assert isinstance(get(away, path, EVERYTHING), AnswerCached)


@pytest.mark.parametrize("path", PATHS)
def test_R_D7_only_get_and_head_are_answered(path: str) -> None:
    base = fleet({"a": upto(9)}, "a")

    for method in ("GET", "HEAD"):
        assert isinstance(get(base, path, EVERYTHING, method=method), AnswerCached)
    for method in ("POST", "PUT", "OPTIONS"):
        assert isinstance(get(base, path, EVERYTHING, method=method), Refuse)


@pytest.mark.parametrize("path", ["/x", "/new", "/legacy"])
def test_R_D7_only_documents_are_answered(path: str) -> None:
    assert isinstance(get(fleet({"a": upto(9)}, "a"), path, EVERYTHING), Refuse)


@pytest.mark.parametrize("version", ["1.10", "1.0", "spam"])
def test_R_D7_a_refused_version_is_refused(version: str) -> None:
    decision = get(fleet({"a": upto(9)}, "a"), "/negotiated", EVERYTHING, version=version)

    assert isinstance(decision, Refuse)
    assert decision.response.status == 406


def test_R_D7_while_nothing_is_on_offer_nothing_is_answered() -> None:
    base = fleet({"a": upto(9, 5)}, "a")
    pinned = base.with_fleet(base.fleet.apply("toy", Pin(v("1.4"))), 2.0)

    for path in PATHS:
        assert isinstance(get(pinned, path, EVERYTHING), Refuse)


def test_a_legacy_member_that_took_over_a_document_is_reselected_among_its_equals() -> None:
    base = snapshot(
        {"old": legacy("1.1"), "older": legacy("1.1"), "new": upto(9)},
        dialect=Documents(),
        policy=Policy.REACHABLE,
    )
    base = base.with_fleet(drain(base.fleet, "new"), 1.0)
    decision = get(base)
    assert isinstance(decision, Forward)
    assert decision.member is not None

    again = reselect(decision.resolution, base, {}, 0, (decision.member.key,))

    assert again is not None
    assert {decision.member.backend.name, again.backend.name} == {"old", "older"}


@pytest.mark.parametrize("path", ["/doc", "/negotiated"])
def test_R_D7_an_explanation_says_that_it_is_answered_from_what_is_known(path: str) -> None:
    head = RequestHead("GET", path)

    explanation = with_attributes(explain(more_on_offer_than_legacy(), head, cached_documents=EVERYTHING))

    assert (explanation.decision, explanation.status, explanation.response) == ("answer", None, None)
    assert explanation.because.endswith("it is answered from the cache")
    assert explanation.result == ("served" if path == "/negotiated" else None)
    assert (explanation.candidates, explanation.sends) == ((), ())
    assert {each.backend: each.reason for each in explanation.left_out} == {"old": "legacy", "new": "drained"}


ADVERTISEMENTS = st.builds(upto, st.integers(5, 10)) | st.just(legacy("1.1"))


@given(
    st.lists(st.tuples(ADVERTISEMENTS, st.booleans()), min_size=1, max_size=4),
    st.sampled_from(Policy),
    st.sampled_from([None, 1, 7]),
    st.sampled_from(PATHS),
    st.booleans(),
)
def test_R_D7_the_rule_of_documents(
    members: list[tuple[Advertisement, bool]], policy: Policy, pin: int | None, path: str, known: bool
) -> None:
    results = {f"b{number}": advertisement for number, (advertisement, _) in enumerate(members)}
    base = snapshot(results, dialect=Documents(), policy=policy)
    drained = [f"b{number}" for number, (_, gone) in enumerate(members) if gone]
    base = base.with_fleet(drain(base.fleet, *drained), 1.0)
    if pin is not None:
        base = base.with_fleet(base.fleet.apply("toy", Pin(Version(1, pin))), 2.0)
    view = base.views["toy"]

    decision = get(base, path, EVERYTHING if known else ())

    present = {name for name in results if name not in drained}
    old = {name for name in present if results[name].legacy}
    if view.offer.transparent:
        assert able(decision) == present
    elif not view.offer.versions:
        assert isinstance(decision, Refuse)
    elif path == "/mount":
        assert (
            able(decision) == present if present else isinstance(decision, AnswerCached if known else Refuse)
        )
    elif present - old:
        assert able(decision) == present - old
    elif old and view.offer.versions <= VersionSet.only(Version(1, 1)):
        assert able(decision) == old
    elif known:
        assert isinstance(decision, AnswerCached)
    elif old:
        assert able(decision) == old
    else:
        assert isinstance(decision, Refuse)
