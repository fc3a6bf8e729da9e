"""Brown-outs: when a window is open, by a walk through every minute, and which requests it refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import combinations, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.clients import Client, Naming
from gateway.core.decision.decision import Decision, Forward, Refuse, as_detached, decide
from gateway.core.decision.explanation import explain
from gateway.core.decision.operations import OperationRule, Operations, PathTemplate
from gateway.core.fleet.bridge import Bridge, BridgeMatch
from gateway.core.fleet.brownouts import Schedule, Window, moment, overlapping
from gateway.core.fleet.calendar import calendar
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.service import Policy
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead
from gateway.core.usage.record import RowKey
from gateway.core.usage.what_if import judge
from gateway.core.versions.ranges import VersionSet
from gateway.settings.sections.brownouts import read_weekly
from tests.core.builders import XY, Toy, drain, explained_json, service, snapshot, upto, v
from tests.settings.texts import BASE, load_text

LINE = Line(v("1.5"), date(2023, 7, 1), "https://docs.example/old")
OPEN = Window(2_000_000_000.0, 2_000_000_300.0)
NOW = OPEN.begin + 100
WHY = "a brown-out refuses deprecated versions now, and this would be executed at"
LIFECYCLE = Lifecycle(LINE, brownouts=(Schedule(int(OPEN.begin), (300.0,)),))
FLEET = snapshot({"old": upto(5), "new": upto(9)}, policy=Policy.REACHABLE, lifecycle=LIFECYCLE)


class Overriding(Toy):
    """Its servers take the method of a POST from a header."""

    reads = Toy.reads | {"x-method"}
    method_override: tuple[str, ...] = ("x-method",)


STEP = 600
"""Seconds from one look of the walk to the next: all times and durations are whole steps."""
STEPS_A_DAY = 144
MONDAY = datetime(2026, 6, 1, tzinfo=UTC)


# --- windows, by a walk ------------------------------------------------------------------------------------

LENGTHS = st.lists(st.integers(1, STEPS_A_DAY).map(lambda steps: steps * 10), min_size=1, max_size=3)
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def weekly(day: str, step: int, start: int, minutes: list[int]) -> str:
    begins, lengths = (MONDAY + timedelta(days=start)).date(), ", ".join(f"{each}m" for each in minutes)
    return f"{{weekly: {day} {step // 6:02}:{step % 6}0, from: {begins}, for: [{lengths}]}}"


def once(step: int, minutes: list[int]) -> str:
    return f"{{at: {MONDAY + timedelta(minutes=10 * step):%Y-%m-%dT%H:%MZ}, for: {minutes[0]}m}}"


WEEKLY = st.builds(
    weekly, st.sampled_from(DAYS), st.integers(0, STEPS_A_DAY - 1), st.integers(-3, 16), LENGTHS
)
ONCE = st.builds(once, st.integers(0, 30 * STEPS_A_DAY), LENGTHS)


@cache
def walked_steps() -> list[tuple[int, str, str, str]]:
    """Each step of seven weeks: its number, day, day of the week with the time, and moment, as texts."""
    clocks = ((n, MONDAY + timedelta(minutes=10 * n)) for n in range(-4 * STEPS_A_DAY, 45 * STEPS_A_DAY))
    return [(n, f"{at:%Y-%m-%d}", f"{at:%a %H:%M}".lower(), f"{at:%Y-%m-%dT%H:%MZ}") for n, at in clocks]


def walk(entry: str) -> set[int]:
    """Numbers of the steps from `MONDAY` on at which the entry is open: as a person reads it, by the clock on
    the wall and a calendar with the names of days."""
    text = entry.strip("{}").split("for: ")
    minutes = [int(each.strip("m ")) for each in text[1].strip("[]").split(",")]
    times = dict(part.split(": ", 1) for part in text[0].strip(", ").split(", "))
    found: set[int] = set()
    begun = 0
    for step, day, weekly_text, text_of_moment in walked_steps():
        if "weekly" in times:
            begins = weekly_text == times["weekly"] and day >= times["from"]
        else:
            begins = text_of_moment == times["at"]
        if begins:
            length = minutes[min(begun, len(minutes) - 1)]
            begun += 1
            found |= set(range(step, step + length // 10))
    return found


def read(*entries: str) -> tuple[Schedule, ...] | None:
    """The windows of these entries; None: they are refused because they overlap."""
    keys = "    lifecycle:\n      deprecated: {below: '1.20', since: 2023-07-01}\n      brownouts:\n"
    loaded = load_text(BASE + keys + "".join(f"        - {entry}\n" for entry in entries))
    messages = [problem.message for problem in loaded.errors]
    assert all("windows meet" in message for message in messages), messages
    lifecycle = None if loaded.errors else loaded.require().services[0].lifecycle
    return None if lifecycle is None else lifecycle.brownouts


@given(st.lists(WEEKLY | ONCE, min_size=1, max_size=3))
def test_windows_are_open_when_a_walk_through_the_calendar_says_so(entries: list[str]) -> None:
    walked = [walk(entry) for entry in entries]
    meet = any(
        one & other or {step + 1 for step in one} & other or {step - 1 for step in one} & other
        for one, other in combinations(walked, 2)
    )
    schedules = read(*entries)
    if schedules is None:
        assert meet
        return
    assert not meet, "the walk covers all weeks that differ"
    lifecycle, is_open = replace(LIFECYCLE, brownouts=schedules), set().union(*walked)
    opened: list[float] = []
    for step in range(-STEPS_A_DAY, 40 * STEPS_A_DAY):
        time = MONDAY.timestamp() + step * STEP
        assert (lifecycle.brownout_at(time) is not None) is (step in is_open)
        if (step in is_open) is not (step - 1 in is_open):
            assert (lifecycle.brownout_at(time - 0.1) is not None) is (step - 1 in is_open)
            opened.append(time)
    edges = calendar(service("a", lifecycle=lifecycle), MONDAY.timestamp() - STEPS_A_DAY * STEP - 1)
    first = [entry.at for entry in islice(edges, len(opened))]
    assert first == opened


@given(st.integers(0, 2**33), st.lists(st.integers(1, 86_400), min_size=1, max_size=4), st.booleans())
def test_the_window_at_a_time_is_the_first_that_has_not_ended(
    time: int, durations: list[int], weekly: bool
) -> None:
    schedule = Schedule(2_000_000_000, tuple(map(float, durations)), weekly)
    numbers = range(1 + max(0, time - schedule.begin) // 604_800 + 1 if weekly else 1)

    windows = [window for window in map(schedule.window, numbers) if time < window.end]
    assert schedule.window_at(time) == (windows[0] if windows else None)


def test_a_day_of_the_week_is_counted_from_monday() -> None:
    assert [read_weekly(text) for text in ("mon 00:00", "tue 10:30", "sun 23:59")] == [0, 124_200, 604_740]


def test_a_time_after_the_last_date_can_be_written() -> None:
    assert (moment(253402300740), moment(3e11)) == ("9999-12-31T23:59:00Z", "9999-12-31T23:59:59Z")


def test_the_later_of_two_windows_is_named() -> None:
    one, other = Schedule(1000, (100.0,)), Schedule(900, (100.0,), weekly=True)

    assert overlapping([one, other]) == (1, 0), "touching is overlapping: the end in a refusal would be wrong"
    assert overlapping([replace(one, begin=1001), other]) is None


# --- which requests ----------------------------------------------------------------------------------------


def sent(
    version: str | None = "1.4",
    method: str = "GET",
    path: str = "/x",
    *,
    base: Snapshot = FLEET,
    now: float = NOW,
    query: str = "",
) -> Decision:
    fields = () if version is None else (("x-version", version),)
    return decide(base, RequestHead(method, path, query, fields), "", {}, 0, {}, wall_time=now)


def is_refused(*args: str | None, **more: object) -> bool:
    decision = sent(*args, **more)  # type: ignore[arg-type]
    assert not isinstance(decision, Refuse) or decision.result == "brownout"
    return isinstance(decision, Refuse)


@pytest.mark.parametrize("version, refused", [("1.4", True), (None, True), ("1.5", False), ("latest", False)])
def test_the_version_that_would_be_executed_counts(version: str | None, refused: bool) -> None:
    assert is_refused(version) is refused
    for outside in (OPEN.begin - 0.1, OPEN.end):
        assert not is_refused(version, now=outside)
    assert is_refused(version, now=OPEN.begin) is is_refused(version, now=OPEN.end - 0.1) is refused


def test_only_safe_methods_are_refused_unless_the_file_says_more() -> None:
    unsafe = snapshot({"a": upto(9)}, lifecycle=replace(LIFECYCLE, unsafe=True))

    for method, refused in {
        "GET": True,
        "HEAD": True,
        "OPTIONS": True,
        "POST": False,
        "DELETE": False,
    }.items():
        assert is_refused("1.4", method) is refused
        assert is_refused("1.4", method, base=unsafe)


@pytest.mark.parametrize("override", ["GET", "DELETE"])
def test_a_method_that_only_some_servers_read_makes_no_request_safe(override: str) -> None:
    base = snapshot({"a": upto(9)}, dialect=Overriding(), lifecycle=LIFECYCLE)
    fields = (("x-version", "1.4"), ("x-method", override))
    decision = decide(base, RequestHead("POST", "/x", "", fields), "", {}, 0, {}, wall_time=NOW)
    assert isinstance(decision, Forward)


@pytest.mark.parametrize("below, refused", [("1.5", True), ("1.3", False)])
def test_of_a_bridged_request_the_version_that_it_is_led_to_counts(below: str, refused: bool) -> None:
    base = snapshot(
        {"a": upto(9, 3)},
        lifecycle=replace(LIFECYCLE, deprecated=Line(v(below), LINE.day)),
        bridges=(Bridge(("cron",), BridgeMatch.NEAREST, date(2099, 1, 1)),),
        naming=Naming((Client("cron", "cron"),)),
    )
    head = RequestHead("GET", "/x", "", (("x-version", "1.1"),))
    decision = decide(base, head, "", {}, 0, {}, client_name="cron", wall_time=NOW)

    assert decision.resolution.result == ("brownout" if refused else "bridged")  # type: ignore[union-attr]
    assert decision.resolution.version == v("1.3")  # type: ignore[union-attr]
    shown = explain(base, head, "", client_name="cron", wall_time=NOW)
    assert (shown["because"] == f"{WHY} 1.3") is refused, "the client has asked for 1.1"


def test_documents_and_what_is_not_negotiated_are_never_refused() -> None:
    assert not any(is_refused("1.4", path=path) for path in ("/doc", "/legacy", "/own"))


def test_what_no_backend_executes_has_its_own_answer() -> None:
    rule = OperationRule(("GET",), PathTemplate.read("/x"), VersionSet.read_open(">=1.7", XY))
    base = snapshot({"a": upto(9)}, lifecycle=LIFECYCLE, operations=Operations.of([rule]))
    missing = sent(base=base)
    assert isinstance(missing, Refuse)
    assert (missing.result, missing.response.status) == ("below_min", 404)
    assert is_refused(path="/y", base=base)

    both = snapshot({"old": upto(5), "new": upto(9, 5)}, policy=Policy.REACHABLE, lifecycle=LIFECYCLE)
    unavailable = sent(base=both.with_fleet(drain(both.fleet, "old"), 0.0))
    assert isinstance(unavailable, Refuse)
    assert (unavailable.result, unavailable.response.status) == ("unavailable", 503), "1.4 stays on offer"


def test_the_refusal_says_no_store_and_when_to_come_back() -> None:
    refused = sent(now=OPEN.end - 12.3)
    assert isinstance(refused, Refuse)

    assert refused.response.headers == (
        ("Retry-After", "13"),
        ("Vary", "X-Version"),
        ("Cache-Control", "no-store"),
    )
    assert LIFECYCLE.refusal(OPEN.end, XY) == (
        "API versions below 1.5 are deprecated since 2023-07-01, and refused until 2033-05-18T03:38:20Z "
        "(brown-out). See https://docs.example/old"
    )


def test_a_detached_replica_says_503() -> None:
    offered = VersionSet.between(v("1.1"), v("1.9"))
    record = AgreedRecord(3, "reachable", offered, offered, offered, offered)
    view = FLEET.views["toy"].with_agreed(Agreed(record, voting=True), 0.0)
    refused = sent(base=replace(FLEET, views={"toy": view}))
    assert isinstance(refused, Refuse)

    late = as_detached(refused)
    assert (refused.result, refused.response.status) == ("brownout", 406)
    assert (late.result, late.response.status) == ("unavailable", 503)


def test_explain_names_the_brownout() -> None:
    shown = explained_json(FLEET, "GET", "/x", [("X-Version", "1.4")], wall_time=NOW)

    assert (shown["decision"], shown["result"], shown["status"]) == ("refuse", "brownout", 406)
    assert shown["because"] == f"{WHY} 1.4"
    assert (shown["announces"], {each["reason"] for each in shown["left_out"]}) == ((), {"not_asked"})


def test_the_announcement_names_the_present_window_or_the_next() -> None:
    begins = "below 1.5 deprecated from 2023-07-01"
    assert LIFECYCLE.sentence(XY, NOW) == f"{begins}; brown-out until 2033-05-18T03:38:20Z"
    assert LIFECYCLE.sentence(XY, 0.0) == (
        f"{begins}; brown-out from 2033-05-18T03:33:20Z until 2033-05-18T03:38:20Z"
    )
    assert LIFECYCLE.sentence(XY, OPEN.end) == begins


def test_the_log_has_a_line_at_both_edges() -> None:
    one = service("a", lifecycle=LIFECYCLE)

    assert [(entry.at, entry.level, entry.sentence) for entry in calendar(one, 0.0)] == [
        (OPEN.begin, "warning", "deprecated versions are refused until 2033-05-18T03:38:20Z (brown-out)"),
        (OPEN.end, "info", "the brown-out has ended: deprecated versions are served again"),
    ]


def test_refused_requests_count_as_users_of_their_version() -> None:
    row = RowKey("toy", "x", False, "none", "", "brownout", "1.1", "resource", False, True, "GET /x")
    judgement = judge(FLEET.views["toy"], row)

    assert judgement is not None
    assert (judgement.result, judgement.version) == ("served", "1.1")
