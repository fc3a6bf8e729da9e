"""What a request gets where replicas agree: by the level of its version, attached and detached."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.agreement.attachment import Agreed, Answer, answer
from gateway.core.agreement.ladder import Target, step
from gateway.core.agreement.record import AgreedRecord, Level, level
from gateway.core.decision.decision import Decision, Forward, Refuse, as_detached, decide
from gateway.core.decision.response import rewrite_head
from gateway.core.dialect import Advertisement, DefaultKind, DefaultVersion, VersionMatch
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import MajorMinor, Version
from tests.core.agreement.records import minors, records, sets, universe
from tests.core.builders import XY, Toy, explained, snapshot, upto

EVERYTHING: Final = Advertisement(
    VersionSet.of([*upto(9).versions.ranges, *VersionSet.between(Version(2, 0), Version(2, 9)).ranges])
)


RISING: Final = AgreedRecord(5, "guaranteed", minors(1, 7), minors(1, 3), minors(1, 5), minors(1, 7))
"""1.1-1.3 are offered, 1.4 and 1.5 accepted, 1.6 and 1.7 undecided."""
BEGUN: Final = AgreedRecord(1, "guaranteed", minors(1, 5), NO_VERSIONS, minors(1, 5), minors(1, 5))
"""The first record: nothing is offered yet."""


def agreed(record: AgreedRecord | None, *, attached: bool = True, **more: object) -> Snapshot:
    """A snapshot with a service that is decided by `record`."""
    before = snapshot({"a": EVERYTHING}, **more)  # type: ignore[arg-type]  # fields of Service
    view = before.views["toy"].with_agreed(Agreed(record, attached), 0.0)
    return Snapshot(before.generation, before.routes, {"toy": view}, before.fleet, before.selected_names)


def sent(to: Snapshot, version: str | None, path: str = "/x") -> Decision:
    fields = () if version is None else (("x-version", version),)
    return decide(to, RequestHead("GET", path, "", fields), "api.test", {}, 0, {})


def result(decision: Decision) -> str:
    """The version with which it is sent on, or the status."""
    if isinstance(decision, Forward):
        return decision.resolution.version_text
    assert isinstance(decision, Refuse)
    return str(decision.response.status)


@pytest.mark.parametrize(
    "version, attached, detached",
    [
        ("1.3", "1.3", "1.3"),
        ("1.5", "1.5", "1.5"),
        ("1.6", "503", "503"),
        ("1.8", "406", "503"),
        ("0.9", "406", "503"),
        ("latest", "1.3", "1.3"),
        (None, "1.1", "1.1"),
        ("nonsense", "406", "406"),
    ],
)
def test_a_request_is_answered_by_level(version: str | None, attached: str, detached: str) -> None:
    assert result(sent(agreed(RISING), version)) == attached
    assert result(sent(agreed(RISING, attached=False), version)) == detached


@pytest.mark.parametrize(
    "version, expected",
    [("1.5", "1.5"), ("1.6", "503"), ("latest", "503"), (None, "503"), ("nonsense", "503")],
)
def test_while_nothing_is_offered_only_exact_requests_are_served(version: str | None, expected: str) -> None:
    """And nothing is refused: a refusal tells a range, and there is none."""
    assert result(sent(agreed(BEGUN), version)) == expected
    assert result(sent(agreed(BEGUN), None, "/doc")) == "503"


@pytest.mark.parametrize("version", ["1.5", "latest", None])
def test_without_a_record_nothing_is_on_offer(version: str | None) -> None:
    assert result(sent(agreed(None), version)) == "503"


def test_a_response_tells_what_is_offered_and_not_what_is_accepted() -> None:
    decision = sent(agreed(RISING), "1.5")
    assert isinstance(decision, Forward)
    assert decision.member is not None

    fields = [("x-version", "1.5"), ("x-min", "1.1"), ("x-max", "1.9")]
    lines = rewrite_head(decision.resolution, decision.member, 200, fields).lines.lower()

    assert b"x-max: 1.3" in lines
    assert b"1.9" not in lines


def test_the_first_version_that_is_served_is_all_that_its_response_tells() -> None:
    decision = sent(agreed(BEGUN), "1.4")
    assert isinstance(decision, Forward)
    assert decision.member is not None

    fields = [("x-version", "1.4"), ("x-min", "1.1"), ("x-max", "1.9")]
    lines = rewrite_head(decision.resolution, decision.member, 200, fields).lines.lower()

    assert b"x-min: 1.4" in lines
    assert b"x-max: 1.4" in lines


@pytest.mark.parametrize(
    "record, version, attached, expected",
    [
        (RISING, "1.3", True, "the requested version leads to 1.3 of the offer 1.1-1.3"),
        (RISING, "1.5", True, "all replicas accept 1.5, and show the offer 1.1-1.3"),
        (RISING, "1.6", True, "the replicas have not decided about this version yet"),
        (RISING, "1.8", True, "the requested version (1.8) is not in the offer 1.1-1.3"),
        (RISING, "1.8", False, "this replica is detached: others may offer this version by now"),
        (BEGUN, "1.5", True, "all replicas accept 1.5, and show the offer none"),
        (BEGUN, "latest", True, "nothing is on offer at the moment"),
    ],
)
def test_the_reason_is_explained(record: AgreedRecord, version: str, attached: bool, expected: str) -> None:
    one = agreed(record, attached=attached)

    assert expected in explained(one, "GET", "/x", [("X-Version", version)]).because


def test_a_refusal_becomes_503_when_the_deadline_has_passed_meanwhile() -> None:
    refused = sent(agreed(RISING), "1.8")
    assert isinstance(refused, Refuse)
    late = as_detached(refused)

    assert (refused.response.status, late.response.status) == (406, 503)
    assert late.result.value == "unavailable"


@pytest.mark.parametrize("version", ["nonsense", "1.6"])
def test_what_is_no_refusal_of_a_version_stays(version: str) -> None:
    refused = sent(agreed(RISING), version)
    assert isinstance(refused, Refuse)

    assert as_detached(refused) is refused


def test_a_gateway_that_stands_alone_refuses_as_ever() -> None:
    refused = sent(snapshot({"a": upto(5)}), "1.8")
    assert isinstance(refused, Refuse)

    assert as_detached(refused) is refused


def test_the_latest_of_a_detached_replica_is_one_that_somebody_serves() -> None:
    """The others may have lowered the offer, and the backends with it."""
    before = snapshot({"a": upto(2)})
    for attached, expected in ((True, "503"), (False, "1.2")):
        view = before.views["toy"].with_agreed(Agreed(RISING, attached), 0.0)
        one = Snapshot(before.generation, before.routes, {"toy": view}, before.fleet, before.selected_names)
        assert result(sent(one, "latest")) == expected


@pytest.mark.parametrize("attached, expected", [(True, "406"), (False, "503")])
def test_a_default_version_goes_by_its_level(attached: bool, expected: str) -> None:
    for minor, answered in ((3, "1.3"), (5, "1.5"), (6, "503"), (8, expected)):
        default = DefaultVersion(DefaultKind.CONSTANT, Version(1, minor))
        one = agreed(RISING, attached=attached, dialect=Toy(default))
        assert result(sent(one, None)) == answered


def test_where_an_earlier_version_is_served_instead_nothing_is_to_be_refused() -> None:
    for attached in (True, False):
        one = agreed(RISING, attached=attached, dialect=Toy(match=VersionMatch.NEAREST_EARLIER))
        assert [result(sent(one, version)) for version in ("1.5", "1.6", "1.8")] == ["1.5", "503", "1.3"]


def test_transparent_is_what_all_replicas_say() -> None:
    view = snapshot({"a": upto(5)}).views["toy"]

    assert view.with_agreed(Agreed(None, transparent=True), 0.0).offer.transparent
    assert not view.with_agreed(Agreed(None), 0.0).offer.transparent
    assert view.with_agreed(None, 0.0).offer == view.offer


@given(data=st.data(), attached=st.booleans())
def test_every_exact_request_gets_what_its_level_says(data: st.DataObject, attached: bool) -> None:
    record = data.draw(st.none() | records(MajorMinor()))
    one = agreed(record, attached=attached)
    for version in universe(XY):
        given_answer = answer(level(record, version), attached=attached)
        if given_answer is Answer.REFUSE and not one.views["toy"].offer.versions:
            given_answer = Answer.UNAVAILABLE
        expected = {Answer.SERVE: XY.format(version), Answer.UNAVAILABLE: "503", Answer.REFUSE: "406"}
        assert result(sent(one, XY.format(version))) == expected[given_answer]


@given(data=st.data())
def test_neighbours_on_the_ladder_never_serve_here_and_refuse_there(data: st.DataObject) -> None:
    before = data.draw(st.none() | records(XY))
    towards = Target("guaranteed", data.draw(sets(XY)), None)
    after = step(before, towards, XY, all_attached=True)
    held = (agreed(before), agreed(before if after is None else after))
    for version in universe(XY):
        answers = {result(sent(one, XY.format(version))) for one in held}
        assert answers != {XY.format(version), "406"}
        if Level.OFFERED in {level(before, version), level(after or before, version)}:
            assert answers == {XY.format(version)}


def test_a_view_stays_decided_by_its_record_when_facts_come() -> None:
    before = agreed(RISING)

    after = before.after([("toy", "a", ProbeSucceeded(upto(4), 2.0))], 2.0)

    assert after is not before
    assert after.views["toy"].agreed is before.views["toy"].agreed
    assert result(sent(after, "1.4")) == "1.4"
    assert result(sent(after, "1.5")) == "503", "accepted, and nobody serves it"
    assert result(sent(after, "1.8")) == "406"
