"""Bridge: where a version is refused for ever, a named client is served the nearest one, and told so."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.clients import Client, Naming
from gateway.core.decision.decision import Decision, Forward, Refuse
from gateway.core.decision.explanation import explain
from gateway.core.decision.operations import OperationRule, Operations, PathTemplate
from gateway.core.decision.response import rewrite_head
from gateway.core.dialect import (
    Advertisement,
    DefaultKind,
    DefaultVersion,
    Endpoint,
    Refusal,
    RefusalReason,
    RequestedKind,
    RequestedVersion,
    VersionMatch,
)
from gateway.core.fleet.bridge import Bridge, BridgeMatch
from gateway.core.fleet.brownouts import Schedule
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.pace import Pace
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import CalendarDate, Scheme, WholeNumber
from tests.core.builders import XY, Toy, no_decisions, send, snapshot, upto, v

DAY: Final = 86_400.0
LATER, EARLIER, NEAREST = BridgeMatch
NAMING: Final = Naming((Client("old", "curl"), Client("ahead", header={"X-Team": "x"})))
BRIDGES: Final = (
    Bridge(("old",), LATER, date(1970, 1, 3)),
    Bridge(("ahead",), EARLIER, date(1970, 1, 5)),
    Bridge(("both",), NEAREST, date(1970, 1, 5)),
)
NAMES: Final = ("", "old", "ahead", "both")


def fleet(bridges: tuple[Bridge, ...] = BRIDGES, **more: Any) -> Snapshot:
    """A service that offers 1.4-1.8."""
    naming = NAMING if bridges else Naming()
    return snapshot({"a": upto(8, 4), "b": upto(9, 3)}, bridges=bridges, naming=naming, **more)


def headers_of(decision: Decision) -> dict[str, str]:
    """Headers of the response, from a backend or of the gateway."""
    if not isinstance(decision, Forward):
        assert isinstance(decision, Refuse)
        return dict(decision.response.headers)
    assert decision.member is not None
    fields = [("x-version", decision.resolution.version_text), ("x-min", "1.1"), ("x-max", "1.99")]
    lines = rewrite_head(decision.resolution, decision.member, 200, fields).lines.decode().split("\r\n")
    return {name: value for name, _, value in (line.partition(": ") for line in lines[:-1])}


def got(decision: Decision) -> str:
    """The version at which a request is executed, with what the response says about a bridge."""
    if isinstance(decision, Refuse):
        return {406: "refused", 503: "unavailable"}[decision.response.status]
    assert isinstance(decision, Forward)
    return headers_of(decision).get("X-Skewgate-Bridged") or decision.resolution.version_text


@pytest.mark.parametrize("shown, served", [("1.3", "1.3"), ("", "unknown")])
def test_a_backend_that_executes_another_version_is_believed(shown: str, served: str) -> None:
    decision = send(fleet(), "1.2", "old")
    assert isinstance(decision, Forward)
    assert decision.member is not None
    always = replace(decision.resolution, endpoint=Endpoint("always", served_always=True))
    lines = rewrite_head(always, decision.member, 200, [("x-version", shown)] if shown else []).lines

    assert f"X-Skewgate-Bridged: 1.2 -> {served}\r\n".encode() in lines


@pytest.mark.parametrize(
    "version, by_name",
    [
        ("1.2", ("refused", "1.2 -> 1.4", "refused", "1.2 -> 1.4")),
        ("1.9", ("refused", "refused", "1.9 -> 1.8", "1.9 -> 1.8")),
        ("1.5", ("1.5",) * 4),
        ("latest", ("1.8",) * 4),
        (None, ("1.4",) * 4),
        ("nonsense", ("refused",) * 4),
        ("signed 1.2", ("refused",) * 4),
        ("2.1", ("refused",) * 4),
    ],
)
def test_a_bridge_leads_from_a_refused_version_to_the_nearest_one(
    version: str | None, by_name: tuple[str, ...]
) -> None:
    base, cache = fleet(), no_decisions()
    for _ in range(2):  # by the cached decisions, too
        assert tuple(got(send(base, version, name, cache=cache)) for name in NAMES) == by_name


def test_a_backend_gets_the_executed_version_and_the_client_is_told_offer_and_both_versions() -> None:
    decision = send(fleet(), "1.2", "old")

    assert isinstance(decision, Forward)
    assert b"X-Version: 1.4\r\n" in decision.resolution.request_field_lines
    assert (decision.resolution.version_text, decision.resolution.result) == ("1.4", "bridged")
    shown = headers_of(decision)
    assert (shown["X-Version"], shown["X-Min"], shown["X-Max"]) == ("1.4", "1.4", "1.8")
    assert shown["Vary"] == "X-Version, X-Team, User-Agent"


def test_a_default_version_outside_of_the_offer_is_no_version_that_a_client_asked_for() -> None:
    base = fleet(dialect=Toy(DefaultVersion(DefaultKind.CONSTANT, v("1.2"))))

    assert [got(send(base, None, name)) for name in NAMES] == ["refused"] * 4


def test_the_bridge_ends_with_its_day_and_so_does_an_own_pace_at_another_one() -> None:
    pace = (Pace(("ahead",), v("1.6"), date(1970, 1, 3)), Pace(("old",), v("1.6"), date(1970, 1, 5)))
    base, cache = fleet(paces=pace), no_decisions()
    moments = (0.0, 3 * DAY - 0.001, 3 * DAY, 5 * DAY - 0.001, 5 * DAY)
    for name, asked, then in (
        ("ahead", "1.9", ("1.9 -> 1.6", "1.9 -> 1.6", "1.9 -> 1.8", "1.9 -> 1.8", "refused")),
        ("ahead", "latest", ("1.6", "1.6", "1.8", "1.8", "1.8")),
        ("old", "1.2", ("1.2 -> 1.4", "1.2 -> 1.4", "refused", "refused", "refused")),
        ("old", "latest", ("1.6", "1.6", "1.6", "1.6", "1.8")),
    ):
        found = [got(send(base, asked, name, wall_time=each, cache=cache)) for each in moments]
        assert tuple(found) == then


def test_it_stays_within_the_major_unless_it_may_leave_it() -> None:
    served = Advertisement(VersionSet.read("2.1-2.9", XY))
    for across, expected in ((False, "refused"), (True, "1.2 -> 2.1")):
        bridges = (Bridge(("old",), NEAREST, date(1970, 1, 3), across),)
        base = snapshot({"a": served}, bridges=bridges, naming=NAMING)
        assert got(send(base, "1.2", "old")) == expected


@pytest.mark.parametrize(
    "scheme, offered, asked, earlier, later",
    [
        (WholeNumber(), "2-4", "1", None, "2"),
        (CalendarDate(), "2024-01-31, 2025-06-01", "2024-12-31", "2024-01-31", "2025-06-01"),
    ],
)
def test_whole_numbers_and_dates_have_no_majors(
    scheme: Scheme, offered: str, asked: str, earlier: str | None, later: str | None
) -> None:
    def led(match: BridgeMatch) -> str | None:
        requested = RequestedVersion(RequestedKind.EXACT, scheme.require(asked), asked)
        refusal = Refusal(
            RefusalReason.BELOW_MIN, requested, requested.version, VersionSet.read(offered, scheme)
        )
        found = Bridge(("a",), match, date(2099, 1, 1)).version_for(refusal, scheme)
        return None if found is None else scheme.format(found)

    assert (led(EARLIER), led(LATER), led(NEAREST)) == (earlier, later, earlier or later)


def test_only_a_final_refusal_is_bridged() -> None:
    """Others may offer what one replica does not: a detached one, or a level between offered and refused."""
    shown, more = VersionSet.between(v("1.4"), v("1.8")), VersionSet.between(v("1.4"), v("1.9"))
    agreed = AgreedRecord(1, "guaranteed", shown, shown, more, more)
    for attached, by_version in (
        (True, ("1.2 -> 1.4", "1.8", "1.9", "1.10 -> 1.8")),
        (False, ("unavailable", "1.8", "1.9", "unavailable")),
    ):
        base = fleet().with_agreed({"toy": Agreed(agreed, attached=attached, voting=True)}, 1.0)
        asked = ("1.2", "1.8", "1.9", "1.10")
        assert tuple(got(send(base, version, "both")) for version in asked) == by_version


def test_an_operation_that_the_executed_version_lacks_is_refused_with_both_versions() -> None:
    rule = OperationRule(("GET",), PathTemplate.read("/gone"), VersionSet.read_open("<=1.2", XY))
    decision = send(fleet(operations=Operations.of([rule])), "1.2", "old", path="/gone")

    assert isinstance(decision, Refuse)
    assert dict(decision.response.headers)["X-Skewgate-Bridged"] == "1.2 -> 1.4"


def test_a_brown_out_counts_for_the_version_that_would_be_executed() -> None:
    lifecycle = Lifecycle(Line(v("1.6"), date(1970, 1, 1)), brownouts=(Schedule(100, (60.0,)),))
    base = fleet(lifecycle=lifecycle)
    for name, asked, before, within in (
        ("old", "1.2", "1.2 -> 1.4", "brownout"),
        ("ahead", "1.9", "1.9 -> 1.8", "1.9 -> 1.8"),
    ):
        assert got(send(base, asked, name, wall_time=99.0)) == before
        decision = send(base, asked, name, wall_time=100.0)
        assert (decision.result if isinstance(decision, Refuse) else got(decision)) == within


def test_clients_of_one_bridge_share_decisions() -> None:
    names = tuple(f"c{number}" for number in range(20))
    bridges = (Bridge(names[:10], LATER, date(2099, 1, 1)), Bridge(names[10:], NEAREST, date(2099, 1, 1)))
    base, cache = fleet(bridges), no_decisions()
    for name in names:
        send(base, "1.2", name, cache=cache)

    assert len(cache) == 2


def test_explain_names_the_bridge() -> None:
    def shown(version: str) -> dict[str, object]:
        head = RequestHead("GET", "/x", "", (("x-version", version),))
        return explain(fleet(), head, "", client_name="old")

    led, refused = shown("1.2"), shown("1.9")
    assert (led["result"], led["version"], led["bridged"]) == ("bridged", "1.4", "1.2 -> 1.4")
    assert led["because"] == (
        "the requested version (1.2) is not in the offer 1.4-1.8, but old is bridged to the nearest later "
        "version until 1970-01-03, which leads to 1.4"
    )
    assert refused["bridged"] is None
    assert refused["because"] == (
        "the requested version (1.9) is not in the offer 1.4-1.8, and the bridge of this client does not "
        "lead anywhere from this request"
    )


@given(
    bounds=st.tuples(st.integers(1, 9), st.integers(1, 9)).map(sorted),
    own=st.none() | st.integers(1, 10),
    match=st.sampled_from(BridgeMatch),
    dialect_match=st.sampled_from(VersionMatch),
    agreed=st.booleans(),
    asked=st.lists(st.none() | st.just("latest") | st.integers(0, 11).map("1.{}".format), max_size=5),
    wall_time=st.sampled_from([0.0, DAY - 1, DAY, 2 * DAY]),
)
def test_what_a_client_is_told_contains_what_it_is_served_or_the_response_says_so(
    *,
    bounds: list[int],
    own: int | None,
    match: BridgeMatch,
    dialect_match: VersionMatch,
    agreed: bool,
    asked: list[str | None],
    wall_time: float,
) -> None:
    base = snapshot(
        {"a": upto(bounds[1], bounds[0])},
        dialect=Toy(match=dialect_match),
        paces=() if own is None else (Pace(("old",), v(f"1.{own}"), date(1970, 1, 1)),),
        bridges=(Bridge(("old",), match, date(1970, 1, 2)),),
        naming=NAMING,
    )
    if agreed:
        whole = base.views["toy"].offer.versions
        record = AgreedRecord(1, "guaranteed", whole, whole, whole, whole)
        base = base.with_agreed({"toy": Agreed(record)}, 1.0)
    cache = no_decisions()
    for version in asked:
        decision = send(base, version, "old", wall_time=wall_time, cache=cache)
        if not isinstance(decision, Forward):
            continue
        shown = headers_of(decision)
        served, told = decision.resolution.version, VersionSet.between(v(shown["X-Min"]), v(shown["X-Max"]))
        assert served is not None
        assert served in told, "also behind a bridge"
        assert shown["X-Version"] == XY.format(served)
        if dialect_match is VersionMatch.EXACT and version not in {None, "latest"}:
            said = shown.get("X-Skewgate-Bridged")
            assert said == (None if served == v(str(version)) else f"{version} -> {XY.format(served)}")
        if wall_time >= 2 * DAY:
            assert "X-Skewgate-Bridged" not in shown
