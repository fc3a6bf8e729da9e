"""What if: the judgement of a row is the decision about its request, and an answer is exact or says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.clients import Client, Naming
from gateway.core.decision.decision import Forward, Refuse, decide
from gateway.core.decision.operations import NO_OPERATIONS, OperationRule, Operations, PathTemplate
from gateway.core.dialect import Advertisement, DefaultKind, DefaultVersion, VersionMatch
from gateway.core.fleet.admission import Maintenance
from gateway.core.fleet.bridge import Bridge, BridgeMatch
from gateway.core.fleet.fleet import Pin
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.pace import Pace
from gateway.core.fleet.service import Policy
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.http.message import RequestHead
from gateway.core.usage.record import OTHER, Count, Gap, Period, RowKey, Scope, Source, UsageRecord
from gateway.core.usage.what_if import answer, changed, judge, reconfigured
from gateway.core.versions.ranges import VersionSet
from gateway.dialects.openstack.guideline import OpenStack
from gateway.errors import SkewgateError
from tests.core.builders import XY, OtherToy, Toy, backend, legacy, service, snapshot, upto, v

TODAY: Final = 20_000
DAY: Final = 86_400
ALL_DAYS: Final = Period((TODAY - 40) * DAY, TODAY * DAY + 3600.0)
OPERATIONS: Final = Operations.of(
    [
        OperationRule(("GET",), PathTemplate.read("/later/{id}"), VersionSet.read_open(">=1.5", XY)),
        OperationRule(("GET",), PathTemplate.read("/earlier"), VersionSet.read_open("<=1.4", XY)),
    ]
)
PATHS: Final = {"/later/7": "GET /later/{id}", "/earlier": "GET /earlier", "/plain": "GET /plain"}


def row(asked: str = "1.3", client: str = "osc", **more: Any) -> RowKey:
    """A row of requests that were served at the version that they asked for."""
    requested = {"": "none", "latest": "latest"}.get(asked, "exact")
    text = asked if requested == "exact" else ""
    whole = RowKey(
        "toy", client, False, requested, text, "served", text, "resource", False, True, "GET /plain"
    )
    return whole._replace(**more)


def record(*rows: RowKey, **more: Any) -> UsageRecord:
    """A record of 30 days without a gap, with ten requests of each row yesterday."""
    counts = {(TODAY - 1, each): Count(10, 5.0, 7.0) for each in rows}
    whole = UsageRecord(TODAY - 30, TODAY, counts, (), (Source("a", (), (ALL_DAYS,)),))
    return whole._replace(**more)


def view(results: Mapping[str, Advertisement | None] | None = None, **more: Any) -> ServiceView:
    return snapshot(results or {"old": upto(5), "new": upto(9)}, **more).views["toy"]


def who(found: Mapping[str, Any]) -> list[tuple[str, str, str, str, int]]:
    keys = ("client", "now", "then", "result", "requests")
    return [tuple(each[key] for key in keys) for each in found["affected"]]


# --- one row is judged as its request was ------------------------------------------------------------------


def decided(base: Snapshot, path: str, version: str | None, client: str = "") -> tuple[str, str]:
    """Result and version with which a request is decided; no version if it is refused."""
    head = RequestHead("GET", path, "", () if version is None else (("x-version", version),))
    decision = decide(base, head, "", {}, 0, {}, client_name=client)
    assert isinstance(decision, Forward | Refuse)
    resolution = decision.resolution
    if resolution.missing_operation is not None:
        return "missing_operation", ""
    if resolution.result in {"served", "unavailable", "bridged"}:
        return resolution.result or "", resolution.version_text
    return resolution.result or "", ""


def row_of(base: Snapshot, path: str, version: str | None) -> RowKey:
    """The row in which a request is counted."""
    head = RequestHead("GET", path, "", () if version is None else (("x-version", version),))
    decision = decide(base, head, "", {}, 0, {})
    assert isinstance(decision, Forward | Refuse)
    resolution = decision.resolution
    requested = resolution.requested
    assert requested is not None
    return row(
        requested=requested.kind.value,
        asked="" if requested.version is None else XY.format(requested.version),
        result=resolution.result,
        version=resolution.version_text,
        signed=requested.signed,
        operation=PATHS[path],
    )


defaults = st.sampled_from(
    [
        DefaultVersion(DefaultKind.MINIMUM),
        DefaultVersion(DefaultKind.MAXIMUM),
        DefaultVersion(DefaultKind.REFUSED),
        DefaultVersion(DefaultKind.CONSTANT, XY.parse("1.4")),
    ]
)
dialects = st.builds(
    lambda default, match: Toy(default, match=match), defaults, st.sampled_from(VersionMatch)
)
versions = st.none() | st.sampled_from(["latest", "nonsense", "signed 1.3", *(f"1.{at}" for at in range(12))])
ranges = st.tuples(st.integers(1, 6), st.integers(6, 10)).map(lambda ends: upto(ends[1], ends[0]))
requests = st.tuples(st.sampled_from([*PATHS]), versions)
services = st.fixed_dictionaries(
    {
        "dialect": dialects,
        "policy": st.sampled_from([Policy.GUARANTEED, Policy.REACHABLE]),
        "operations": st.sampled_from([NO_OPERATIONS, OPERATIONS]),
    }
)


def as_pair(found: Any) -> tuple[str, str]:
    assert found is not None
    return found.result, found.version


@given(ranges, ranges, services, requests)
def test_a_row_is_judged_as_its_request(
    old: Advertisement, new: Advertisement, more: dict[str, Any], request: tuple[str, str | None]
) -> None:
    now = snapshot({"old": old, "new": new}, **more)

    assert as_pair(judge(now.views["toy"], row_of(now, *request))) == decided(now, *request)


@given(ranges, services, requests, st.sampled_from(BridgeMatch))
def test_a_row_of_a_bridged_client_is_judged_as_its_request(
    served: Advertisement, more: dict[str, Any], request: tuple[str, str | None], match: BridgeMatch
) -> None:
    bridge = Bridge(("ci",), match, date(1970, 1, 1))
    now = snapshot({"one": served}, bridges=(bridge,), naming=Naming((Client("ci", "curl"),)), **more)
    own = now.views["toy"].for_client("ci", 0.0)

    assert as_pair(judge(own, row_of(now, *request))) == decided(now, *request, client="ci")


@given(ranges, services, requests, st.sampled_from(["min", "max"]), st.integers(1, 10))
def test_a_cut_offer_decides_as_backends_that_serve_no_more(
    served: Advertisement, more: dict[str, Any], request: tuple[str, str | None], change: str, end: int
) -> None:
    now = snapshot({"one": served}, **more)
    then = changed(now.views["toy"], change, f"1.{end}", 1.0)
    if not then.offer.versions:
        return
    lowest, highest = then.offer.versions.lowest[1], then.offer.versions.highest[1]
    really = snapshot({"one": upto(highest, lowest)}, **more)

    assert as_pair(judge(then, row_of(now, *request))) == decided(really, *request)


@given(ranges, ranges, ranges, services, requests)
def test_a_removed_backend_leaves_what_a_reload_leaves(
    one: Advertisement, two: Advertisement, three: Advertisement, more: dict[str, Any], request: Any
) -> None:
    now = snapshot({"one": one, "two": two, "three": three}, **more)
    then = changed(now.views["toy"], "remove_backend", "two", 1.0)
    reloaded = Snapshot.configured([service("one", "three", **more)], now=1.0, after=now)
    really = reloaded.with_fleet(reloaded.fleet, math.inf)

    assert as_pair(judge(then, row_of(now, *request))) == decided(really, *request)


@given(ranges, services, st.lists(requests, max_size=8))
def test_a_change_of_nothing_affects_nobody(
    served: Advertisement, more: dict[str, Any], sent: list[tuple[str, str | None]]
) -> None:
    now = snapshot({"one": served}, **more)
    before = now.views["toy"]
    after = changed(before, "min", XY.format(before.offer.versions.lowest), 1.0)
    found = answer(record(*{row_of(now, *each) for each in sent}), 30, before, after)

    assert (found["affected"], found["incomplete"]) == ([], [])


@given(ranges, services, st.lists(requests, max_size=8), st.integers(1, 10))
def test_affected_are_exactly_the_requests_that_are_decided_otherwise(
    served: Advertisement, more: dict[str, Any], sent: list[tuple[str, str | None]], end: int
) -> None:
    now = snapshot({"one": served}, **more)
    then = changed(now.views["toy"], "min", f"1.{end}", 1.0)
    if not then.offer.versions:
        return
    really = snapshot({"one": upto(then.offer.versions.highest[1], then.offer.versions.lowest[1])}, **more)
    rows = {row_of(now, *each): each for each in sent}
    found = answer(record(*rows), 30, now.views["toy"], then)

    others = [each for each in rows.values() if decided(now, *each)[0] == "served"]
    others = [each for each in others if decided(now, *each) != decided(really, *each)]
    assert sum(each["requests"] for each in found["affected"]) == 10 * len(others)


# --- who is affected ---------------------------------------------------------------------------------------


def test_a_higher_minimum_refuses_some_and_moves_those_without_a_version() -> None:
    before = view()
    rows = (row("1.1"), row("1.3"), row("", client="curl"), row("latest"), row("1.8", result="above_max"))
    found = answer(record(*rows), 30, before, changed(before, "min", "1.3", 1.0))

    assert who(found) == [("osc", "1.1", "", "below_min", 10), ("curl", "1.1", "1.3", "served", 10)]
    assert (found["offer_before"], found["offer_after"]) == ("1.1-1.5", "1.3-1.5")
    assert (found["first_day"], found["last_day"]) == ("2024-09-04", "2024-10-04")
    assert found["incomplete"] == []


def test_a_document_is_served_without_a_version_even_if_others_are_refused() -> None:
    before = view(default_version=DefaultVersion(DefaultKind.REFUSED))
    rows = record(row("", version="1.1"), row("", result="malformed", version=""))

    assert who(answer(rows, 30, before, None)) == [("osc", "1.1", "", "removed", 10)]


def test_a_floor_that_is_not_as_high_as_the_present_one_moves_those_without_a_version() -> None:
    before = view(floor=XY.require("1.4"))
    rows = row("", version="1.4"), row("1.4"), row("1.2", result="below_min", version="")
    found = answer(record(*rows), 30, before, changed(before, "min", "1.2", 1.0))

    assert (found["offer_before"], found["offer_after"]) == ("1.4-1.5", "1.2-1.5")
    assert who(found) == [("osc", "1.4", "1.2", "served", 10)]


def test_a_lower_maximum_moves_latest() -> None:
    before = view()
    found = answer(record(row("latest"), row("1.5")), 30, before, changed(before, "max", "1.4", 1.0))

    assert who(found) == [("osc", "1.5", "1.4", "served", 10), ("osc", "1.5", "", "above_max", 10)]


def test_an_own_pace_refuses_and_moves_its_client_alone() -> None:
    paces = (Pace(("cron",), XY.require("1.3"), date(1970, 1, 1) + timedelta(days=TODAY)),)
    before, after = view(), view(paces=paces)
    rows = [
        row(asked, each, named=named)
        for each, named in (("cron", True), ("cron", False), ("osc", True))
        for asked in ("latest", "1.4", "1.3")
    ]

    found = answer(record(*rows), 30, before, after)
    assert who(found) == [("cron", "1.5", "1.3", "served", 10), ("cron", "1.4", "", "above_max", 10)]
    assert who(answer(record(*rows), 30, after, before)) == [("cron", "1.3", "1.5", "served", 10)]
    ended = record(*rows, until=TODAY + 1)
    assert who(answer(ended, 30, before, after)) == []


def test_a_bridge_moves_its_client_where_others_are_refused() -> None:
    bridge = Bridge(("ci",), BridgeMatch.NEAREST, date(1970, 1, 1) + timedelta(days=TODAY))
    before = view(bridges=(bridge,))
    rows = [row(asked, client, named=True) for client in ("ci", "osc") for asked in ("1.2", "1.4")]

    found = answer(record(*rows), 30, before, changed(before, "min", "1.3", 1.0))
    assert who(found) == [("ci", "1.2", "1.3", "bridged", 10), ("osc", "1.2", "", "below_min", 10)]
    folded = record(row("1.2", "ci", named=True, operation="GET /…"))
    assert answer(folded, 30, before, changed(before, "min", "1.3", 1.0))["incomplete"] == [
        "10 requests cannot be judged: not known what they asked for, or what will be on offer"
    ]


def test_days_and_operations_of_one_client_are_added_up() -> None:
    before = view()
    counts = {
        (TODAY - 2, row("1.1")): Count(3, 1.0, 2.0),
        (TODAY - 1, row("1.1")): Count(4, 3.0, 9.0),
        (TODAY - 1, row("1.1", operation="POST /plain")): Count(2, 3.0, 4.0),
        (TODAY - 1, row("1.1", operation="PUT /moved")): Count(0, 3.0, 4.0),
        (TODAY - 1, row("1.1", client="moved")): Count(0, 3.0, 4.0),
    }
    [found] = answer(record(rows=counts), 30, before, changed(before, "min", "1.2", 1.0))["affected"]

    assert (found["requests"], found["last"]) == (9, 9.0)
    assert found["operations"] == {"GET /plain": 7, "POST /plain": 2}


def test_a_version_that_only_a_drained_backend_serves_is_lost_with_the_others() -> None:
    before = view(
        {"old": upto(5), "spare": upto(5), "new": upto(9, 4)}, drained=["spare"], policy=Policy.REACHABLE
    )
    found = answer(record(row("1.3")), 30, before, changed(before, "remove_backend", "old", 1.0))

    assert who(found) == [("osc", "1.3", "", "unavailable", 10)]


def test_without_the_old_backend_latest_moves_up_once_the_offer_has_settled() -> None:
    before = view(stabilization=30.0)
    found = answer(
        record(row("latest"), row("1.1")), 30, before, changed(before, "remove_backend", "old", 1.0)
    )

    assert who(found) == [("osc", "1.5", "1.9", "served", 10)]
    assert found["offer_after"] == "1.1-1.9"


def test_a_pin_holds_after_the_removal() -> None:
    base = snapshot({"old": upto(5), "new": upto(9)})
    pinned = base.with_fleet(base.fleet.apply("toy", Pin(XY.parse("1.4"))), 0.0).views["toy"]

    assert changed(pinned, "remove_backend", "old", 1.0).offer.versions == VersionSet.read("1.1-1.4", XY)


def test_replicas_are_judged_as_if_all_were_reloaded() -> None:
    agreed_on = VersionSet.read("1.1-1.5", XY)
    state = AgreedRecord(3, "guaranteed", agreed_on, agreed_on, agreed_on, agreed_on)
    base = snapshot({"old": upto(5), "new": upto(9, 4)}, policy=Policy.REACHABLE)
    before = base.views["toy"].with_agreed(Agreed(state, voting=True), 1.0)
    then = changed(before, "remove_backend", "old", 1.0)

    assert before.offer.versions == agreed_on
    assert then.offer.versions == VersionSet.read("1.4-1.9", XY)


@pytest.mark.parametrize(
    "more, result",
    [({}, "removed"), ({"maintenance": Maintenance()}, "maintenance")],
    ids=["gone", "maintenance"],
)
def test_a_service_that_stops_refuses_everybody(more: dict[str, Any], result: str) -> None:
    before = view()
    after = None if not more else replace(before, service=replace(before.service, **more))

    assert who(answer(record(row("1.3")), 30, before, after)) == [("osc", "1.3", "", result, 10)]


@pytest.mark.parametrize("more, result", [({}, "removed"), ({"maintenance": Maintenance()}, "maintenance")])
def test_a_service_that_stops_refuses_requests_without_a_version(more: dict[str, Any], result: str) -> None:
    """Those at endpoints where nothing is negotiated were served, too."""
    before = view()
    after = None if not more else replace(before, service=replace(before.service, **more))
    plain = row("", requested="", result="", version="", endpoint="legacy")

    assert who(answer(record(plain), 30, before, after)) == [("osc", "-", "", result, 10)]


def test_without_its_last_backend_nothing_of_a_service_is_served() -> None:
    before = view({"one": upto(5)})
    plain = row("", requested="", result="", version="", endpoint="legacy")
    found = answer(record(plain), 30, before, changed(before, "remove_backend", "one", 1.0))

    assert who(found) == [("osc", "-", "", "removed", 10)]


@pytest.mark.parametrize("drained", [[], ["old"]])
@pytest.mark.parametrize("operation, lost", [("GET /v2/{id}/volumes", True), ("GET /", False)])
def test_a_part_of_the_api_that_only_one_backend_has_is_lost_with_it(
    drained: list[str], operation: str, lost: bool
) -> None:
    """Cinder's `/v2` has no versions, and new servers do not have it. A backend is drained before it goes."""
    cinder = OpenStack.configured(OpenStack.Options(service_type="volume"))
    versions = VersionSet.read_open(">=3.0", cinder.scheme).up_to(cinder.scheme.require("3.60"))
    old, new = (Advertisement(versions, mounts=frozenset(each)) for each in (["v2"], []))
    before = view({"old": old, "new": new}, drained=drained, dialect=cinder)
    plain = row("", requested="", result="", version="", endpoint="unversioned", operation=operation)
    found = answer(record(plain), 30, before, changed(before, "remove_backend", "old", 1.0))

    assert who(found) == [("osc", "-", "", "removed", 10)] * lost
    assert found["incomplete"] == []


def test_who_was_served_by_legacy_backends_alone_may_be_refused_by_an_offer() -> None:
    before, after = view({"old": legacy()}), view({"old": upto(9, 4)})

    assert who(answer(record(row("1.3")), 30, before, after))[0][2:] == ("", "below_min", 10)


def test_a_service_in_maintenance_is_judged_by_its_offer() -> None:
    before = view(maintenance=Maintenance())
    after = changed(before, "min", "1.2", 1.0)

    assert who(answer(record(row("1.3"), row("1.1")), 30, before, after)) == [
        ("osc", "1.1", "", "below_min", 10)
    ]


def test_legacy_backends_alone_negotiate_nothing() -> None:
    before = view({"old": legacy(), "new": upto(9)})
    found = answer(record(row("1.3")), 30, before, changed(before, "remove_backend", "new", 1.0))

    assert who(found) == [("osc", "1.3", "", "transparent", 10)]


@pytest.mark.parametrize(
    "unaffected",
    [
        row("1.1", result="denied"),
        row("1.1", service="another"),
        row("", requested="", result="", version=""),
        row("", requested="malformed", result="malformed"),
        row(OTHER, result="above_max"),
        row("1.9", result="above_max"),
    ],
)
def test_what_is_refused_already_or_not_negotiated_does_not_count(unaffected: RowKey) -> None:
    before = view()
    found = answer(record(unaffected), 30, before, changed(before, "min", "1.4", 1.0))

    assert (found["affected"], found["incomplete"]) == ([], [])


@pytest.mark.parametrize("change, value", [("min", "new"), ("max", "2"), ("remove_backend", "api-9")])
def test_a_value_that_is_none_is_an_error(change: str, value: str) -> None:
    with pytest.raises(SkewgateError, match=value):
        changed(view(), change, value, 1.0)


# --- what is not known ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unknown, reason",
    [
        (
            row("", requested="", result="transparent"),
            "10 requests cannot be judged: not known what they asked for, or what will be on offer",
        ),
        (
            row("", requested="", result="unavailable"),
            "10 requests cannot be judged: not known what they asked for, or what will be on offer",
        ),
        (
            row(OTHER, result="unavailable"),
            "10 requests cannot be judged: not known what they asked for, or what will be on offer",
        ),
        (row(OTHER), "10 requests cannot be judged: not known what they asked for, or what will be on offer"),
    ],
)
def test_a_row_that_does_not_say_its_version_is_named(unknown: RowKey, reason: str) -> None:
    before = view()
    found = answer(record(unknown), 30, before, changed(before, "min", "1.4", 1.0))

    assert (found["affected"], found["incomplete"]) == ([], [reason])


@pytest.mark.parametrize(
    "operation, known",
    [
        ("GET /plain", True),
        ("GET /later/{id}", False),
        ("GET /a/b/c/…", False),
        (OTHER, False),
    ],
)
def test_other_operations_cannot_judge_rows_that_were_folded(operation: str, known: bool) -> None:
    before = view()
    after = replace(before, service=replace(before.service, operations=OPERATIONS))
    found = answer(record(row("1.5", operation=operation)), 30, before, after)

    assert (found["affected"], found["incomplete"] == []) == ([], known)


def test_other_operations_judge_a_whole_path() -> None:
    before = view()
    after = replace(before, service=replace(before.service, operations=OPERATIONS))
    found = answer(record(row("1.5", operation="GET /earlier")), 30, before, after)

    assert who(found) == [("osc", "1.5", "", "missing_operation", 10)]


@pytest.mark.parametrize(
    "more, days, reason",
    [
        ({"gaps": (Gap(TODAY - 3, "", Scope.ALL, "a worker was killed"),)}, 30, "a worker was killed"),
        ({"gaps": (Gap(TODAY - 3, "toy", Scope.ALL, "crashed"),)}, None, "crashed"),
        ({"sources": (Source("a", (), (ALL_DAYS,), {"r1": (TODAY - 2, TODAY)}),)}, 30, "replica r1"),
        ({"sources": (Source("a", (), (Period((TODAY - 5) * DAY, TODAY * DAY),)),)}, 30, "begins"),
        ({"sources": (Source("a", (), (Period(TODAY * DAY - 60, TODAY * DAY),)),)}, None, "one whole day"),
        (
            {"sources": (Source("a", (), (ALL_DAYS,)), Source("b", (), (Period(TODAY * DAY, TODAY * DAY),)))},
            None,
            "one whole day",
        ),
        ({"sources": ()}, None, "one whole day"),
    ],
)
def test_a_record_that_may_lack_requests_says_so(more: dict[str, Any], days: int | None, reason: str) -> None:
    before = view()
    [found] = answer(record(**more), days, before, changed(before, "min", "1.2", 1.0))["incomplete"]

    assert reason in found


def test_clients_that_were_folded_matter_only_for_names() -> None:
    before, folded = view(), Gap(TODAY - 3, "toy", Scope.CLIENTS, "200 products")
    found = answer(record(gaps=(folded,)), 30, before, changed(before, "min", "1.2", 1.0))

    assert found["incomplete"] == []
    assert "200 products" in found["incomplete_by_client"][0]


def test_while_nothing_is_on_offer_nobody_is_known_to_be_served() -> None:
    before = Snapshot.configured([service("one")], now=0.0).views["toy"]
    found = answer(record(row("1.3")), 30, before, changed(before, "min", "1.2", 1.0))

    assert (found["affected"], found["incomplete"][0]) == ([], "nothing is on offer now")


def test_while_replicas_move_the_offer_it_is_not_known_who_is_served() -> None:
    """They serve versions by then that are not on offer yet, or no longer."""
    before = replace(view(), offer=replace(view().offer, moving=True))
    [found] = answer(record(row("1.9")), 30, before, changed(before, "max", "1.4", 1.0))["incomplete"]

    assert found == "replicas have not agreed yet on what is on offer"


def test_a_new_backend_has_to_be_probed_first() -> None:
    before = view()
    after = reconfigured(before, service(backends=(*before.service.backends, backend("newer"))), 1.0)

    assert answer(record(), 30, before, after)["incomplete"] == ["not known yet: what newer serves"]


@pytest.mark.parametrize("days, offered", [(-1.0, "1.1-1.5"), (0.0, "1.4-1.5")])
def test_an_enforced_sunset_in_a_new_file_counts_from_its_day_on(days: float, offered: str) -> None:
    before, line = view(), Line(v("1.4"), date(2030, 1, 1))
    one = replace(before.service, lifecycle=Lifecycle(None, line, enforce=True))
    after = reconfigured(before, one, 1.0, line.timestamp + days * DAY)

    assert answer(record(row("1.3")), 30, before, after)["offer_after"] == offered


def test_an_offer_that_probes_will_form_judges_nobody() -> None:
    before = view()
    after = reconfigured(before, service("old", "new", dialect=OtherToy()), 1.0)
    found = answer(record(row("latest"), row("1.3")), 30, before, after)

    assert found["affected"] == []
    assert found["incomplete"][-1].startswith("20 requests cannot be judged")


def test_doubts_of_the_caller_come_first() -> None:
    before = view()

    assert answer(record(), 30, before, before, ["`match` changes"])["incomplete"] == ["`match` changes"]
