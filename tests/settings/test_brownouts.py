"""`services.NAME.lifecycle.brownouts`: what an operator writes, and entries that mean nothing or too much."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.core.fleet.brownouts import Schedule
from gateway.settings.yaml.problem import Severity
from tests.settings.texts import BASE, load_text

LINE = "      deprecated: {below: '1.20', since: 2023-07-01}\n"
TUESDAY = int(datetime(2099, 2, 3, 10, tzinfo=UTC).timestamp())


def text_of(*entries: str, line: str = LINE) -> str:
    return (
        BASE + "    lifecycle:\n" + line + "      brownouts:\n" + "".join(f"        - {e}\n" for e in entries)
    )


def problems(*entries: str, line: str = LINE) -> list[tuple[str, str, str]]:
    """Code, the text at the position, and message with hint, of each problem."""
    text = text_of(*entries, line=line)
    return [
        (each.code, text.splitlines()[each.line - 1][each.column - 1 :], f"{each.message}; {each.hint}")
        for each in load_text(text).problems
    ]


def test_windows_as_they_are_written() -> None:
    loaded = load_text(
        text_of(
            "{at: 2099-02-03T10:00Z, for: 5m}",
            "{at: 2099-02-03T13:00:01+02:00, for: [1h]}",
            "{weekly: tue 08:30, from: 2099-02-03, for: 1m}",
            "{weekly: mon 10:00, from: 2099-02-03, for: [5m, 15m]}",
        )
        + "      unsafe: true\n"
    )
    lifecycle = loaded.require().services[0].lifecycle

    assert lifecycle is not None
    assert lifecycle.unsafe
    assert lifecycle.brownouts == (
        Schedule(TUESDAY, (300.0,)),
        Schedule(TUESDAY + 3_601, (3600.0,)),
        Schedule(TUESDAY - 5_400, (60.0,), weekly=True),
        Schedule(TUESDAY + 6 * 86_400, (300.0, 900.0), weekly=True),
    )


NOT_ONE = "not one window, and not one each week; write {at: DATETIME, for: 5m}, or {weekly:"


@pytest.mark.parametrize(
    "entry, at, message",
    [
        (
            "{at: 2099-02-03T10:00, for: 5m}",
            "2099-02-03T10:00,",
            "a time and a zone; write YYYY-MM-DDTHH:MMZ",
        ),
        ("{at: 2099-02-30T10:00Z, for: 5m}", "2099-02-30", "not a date with a time and a zone"),
        ("{at: 2099-02-03, for: 5m}", "2099-02-03", "not a date with a time and a zone"),
        ("{at: 2099-02-03T10:00Z, for: 0s}", "0s", "a duration must be more than 0"),
        ("{at: 2099-02-03T10:00Z, for: 25h}", "25h", "a duration must be at most 24h"),
        ("{at: 2099-02-03T10:00Z, for: []}", "[]", "the list is empty"),
        ("{at: 2099-02-03T10:00Z}", "{at", "the key 'for' is missing"),
        (
            "{weekly: tuesday, from: 2099-02-03, for: 5m}",
            "tuesday",
            "write `tue 10:00`; the days are mon, tue",
        ),
        ("{weekly: tue 24:00, from: 2099-02-03, for: 5m}", "tue 24", "not a day of the week with a time"),
        ("{for: 5m}", "{for", NOT_ONE),
        ("{weekly: tue 10:00, for: 5m}", "{weekly", NOT_ONE),
        ("{at: 2099-02-03T10:00Z, for: [5m, 6m]}", "{at", NOT_ONE),
        ("{at: 2099-02-03T10:00Z, from: 2099-02-03, for: 5m}", "{at", NOT_ONE),
        ("{at: 2099-02-03T10:00Z, weekly: tue 10:00, from: 2099-02-03, for: 5m}", "{at", NOT_ONE),
        (
            "{at: 2023-07-01T23:59:59Z, for: 5m}",
            "2023-07-01T23",
            "less than 24 h after the deprecation, 2023-07-01; the earliest time is 2023-07-02T00:00:00Z",
        ),
        ("{weekly: sat 12:00, from: 2023-06-30, for: 5m}", "2023-06-30", "less than 24 h after"),
    ],
)
def test_bad_input_is_one_error_with_position_and_hint(entry: str, at: str, message: str) -> None:
    ((code, found, said),) = problems(entry)

    assert code in {"contradiction", "bad-value", "missing-key"}
    assert found.startswith(at), found
    assert message in said, said


@pytest.mark.parametrize(
    "at, meets", [("10:14", True), ("10:15", True), ("10:16", False), ("09:59", True), ("09:58", False)]
)
def test_windows_that_meet_are_an_error_at_the_later_one(at: str, meets: bool) -> None:
    """Also where one ends when the other begins: the time in a refusal would be wrong."""
    weekly = "{weekly: tue 10:00, from: 2026-02-03, for: [5m, 15m]}"
    found = problems(weekly, f"{{at: 2099-02-03T{at}Z, for: 1m}}")

    assert [code for code, _, _ in found] == ["contradiction"] * meets
    for _, place, said in found:
        assert place.startswith("1m" if at > "10" else "[5m")
        assert said.startswith("its windows meet those of the entry in line ")


def test_brownouts_need_a_deprecation() -> None:
    sunset = "      sunset: {below: '1.20', at: 2999-12-31}\n"
    ((code, found, said),) = problems("{at: 2099-02-03T10:00Z, for: 5m}", line=sunset)

    assert (code, found[:3]) == ("contradiction", "- {")
    assert said == "no version is deprecated, so nothing would be refused; add `deprecated`"


def test_above_a_floor_no_window_refuses_anything() -> None:
    for floor, codes in {"1.19": [], "1.20": ["no-effect"]}.items():
        more = f"    offer: {{floor: '{floor}'}}\n    default_version: minimum\n"
        loaded = load_text(text_of("{at: 2099-02-03T10:00Z, for: 5m}") + more)
        assert [problem.code for problem in loaded.problems] == codes


def test_what_has_passed_or_is_in_force_is_a_warning() -> None:
    now = datetime.now(UTC)
    passed, present = (f"{now - timedelta(minutes=back):%Y-%m-%dT%H:%MZ}" for back in (20, 10))
    text = text_of(f"{{at: {passed}, for: 5m}}", f"{{at: {present}, for: 1h}}")

    found = [(each.severity, each.code, each.message) for each in load_text(text).problems]
    assert [each[:2] for each in found] == [(Severity.WARNING, "passed"), (Severity.WARNING, "brownout")]
    assert found[1][2].startswith("deprecated versions are refused until ")
