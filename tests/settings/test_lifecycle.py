"""`services.NAME.lifecycle`: the announcements of a service, and the position of each problem."""

from __future__ import annotations

from datetime import date

import pytest

from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.versions.version import CalendarDate, MajorMinor, Scheme
from gateway.settings import load
from gateway.settings.yaml.problem import Severity
from tests.settings import texts
from tests.settings.texts import load_text

BASE = texts.BASE + "    lifecycle:\n"
XY = MajorMinor()
LINK = "https://docs.example/old?a=1#b"


def lifecycle(keys: str, more: str = "") -> Lifecycle | None:
    loaded = load_text(BASE + keys + more)
    assert not loaded.problems, loaded.render()
    return loaded.require().services[0].lifecycle


def line(below: str, day: date, link: str | None = None, scheme: Scheme = XY) -> Line:
    return Line(scheme.require(below), day, link)


def test_the_service_has_the_lines_of_the_file() -> None:
    deprecated = f"      deprecated: {{below: '1.20', since: 2023-07-01, link: '{LINK}'}}\n"
    sunset = "      sunset: {below: '1.10', at: 2999-12-31}\n"

    one, other = line("1.20", date(2023, 7, 1), LINK), line("1.10", date(2999, 12, 31))
    assert lifecycle(deprecated + sunset) == Lifecycle(one, other)
    assert lifecycle(deprecated) == Lifecycle(one)
    assert lifecycle(sunset) == Lifecycle(None, other)
    assert lifecycle("      {}\n") is None


def test_versions_are_those_of_the_dialect() -> None:
    text = (BASE + "      sunset: {below: 2024-05-01, at: 2999-12-31}\n").replace("plain", "dated")
    found = load_text(text).require().services[0].lifecycle

    assert found == Lifecycle(None, line("2024-05-01", date(2999, 12, 31), scheme=CalendarDate()))


@pytest.mark.parametrize(
    "keys, more, at, message, hint",
    [
        (
            "      deprecated: {below: '1.20', since: 2023-02-30}\n",
            "",
            "2023-02-30",
            "not a day of the calendar",
            "YYYY-MM-DD; it begins at 00:00 UTC",
        ),
        ("      sunset: {below: '1.20', at: tomorrow}\n", "", "tomorrow", "not a day", "YYYY-MM-DD"),
        ("      sunset: {below: '1.20', at: 2999-12-31T00:00}\n", "", "2999", "not a day", "YYYY-MM-DD"),
        ("      sunset: {below: soon, at: 2999-12-31}\n", "", "soon", "not a version", "write `1.31`"),
        ("      sunset: {below: '1.20'}\n", "", "sunset", "the key 'at' is missing", "add `at: ...`"),
        (
            "      deprecated: {below: '1.20', since: 2023-07-01, link: old/page.html}\n",
            "",
            "old/page",
            "not an absolute URL",
            "https://HOST/PATH",
        ),
        (
            "      deprecated: {below: '1.20', since: 2023-07-01, link: 'https://a/>;x=\"'}\n",
            "",
            "'https",
            "not an absolute URL",
            "without blanks or quotation marks",
        ),
        (
            "      deprecated: {below: '1.20', since: 2998-01-02}\n",
            "      sunset: {below: '1.20', at: 2998-01-01}\n",
            "2998-01-01",
            "this is before the deprecation, 2998-01-02",
            "write a later day",
        ),
        (
            "      deprecated: {below: '1.10', since: 2023-07-01}\n",
            "      sunset: {below: '1.20', at: 2999-12-31}\n",
            "'1.20'",
            "versions from 1.10 on would end without being deprecated",
            "write 1.10 or less",
        ),
        (
            "      deprecated: {below: '1.21', since: 2023-07-01}\n",
            "    offer: {ceiling: '1.20'}\n",
            "'1.21'",
            "the ceiling is 1.20: every version on offer would be announced as ending",
            "write 1.20 or less",
        ),
        (
            "      sunset: {below: '1.20', at: 2999-12-31, enforce: maybe}\n",
            "",
            "maybe",
            "",
            "",
        ),
    ],
)
def test_bad_input_is_one_error_with_position_and_hint(
    keys: str, more: str, at: str, message: str, hint: str
) -> None:
    text = BASE + keys + more
    (problem,) = load_text(text).problems

    source = text.splitlines()[problem.line - 1]
    assert source[problem.column - 1 :].startswith(at), (source, problem)
    assert message in problem.message
    assert hint in (problem.hint or "")
    assert problem.severity is Severity.ERROR


def test_a_line_at_the_ceiling_leaves_one_version_that_stays() -> None:
    keys = "      deprecated: {below: '1.20', since: 2023-07-01}\n"

    assert lifecycle(keys, "    offer: {ceiling: '1.20'}\n") == Lifecycle(line("1.20", date(2023, 7, 1)))


def test_a_sunset_that_has_passed_is_a_warning_that_says_what_is_in_force() -> None:
    text = BASE + "      sunset: {below: '1.20', at: 2001-01-01}\n"
    loaded = load_text(text)

    (problem,) = loaded.problems
    assert (problem.severity, problem.code) == (Severity.WARNING, "sunset-passed")
    assert "versions below 1.20 are still served" in problem.message
    assert loaded.require().services[0].lifecycle == Lifecycle(None, line("1.20", date(2001, 1, 1)))


def test_an_enforced_sunset_that_has_passed_is_a_warning_that_says_what_is_in_force() -> None:
    loaded = load_text(BASE + "      sunset: {below: '1.20', at: 2001-01-01, enforce: true}\n")

    assert [problem.code for problem in loaded.problems] == ["sunset-passed"]
    assert "the floor rises to 1.20, unless it did before" in loaded.problems[0].message
    found = loaded.require().services[0].lifecycle
    assert found is not None
    assert found.enforce


def test_an_enforced_sunset_asks_for_a_rule_for_clients_without_a_version() -> None:
    """As a floor in the file does: what such clients get would change most."""
    keys = "      sunset: {below: '1.20', at: 2999-12-31, enforce: true}\n"
    text = (BASE + keys).replace("plain", "ironic")
    (problem,) = load(text, filename="x.yaml", environ={}).problems

    assert "clients that name no version rely on 1.1" in problem.message
    assert not load(text + "    default_version: minimum\n", filename="x.yaml", environ={}).problems


def test_brown_outs_before_an_enforced_sunset_have_an_effect() -> None:
    keys = (
        "      deprecated: {below: '1.20', since: 2023-07-01}\n"
        "      brownouts: [{at: 2998-01-01T10:00Z, for: 5m}]\n"
        "      sunset: {below: '1.20', at: 2999-12-31, enforce: true}\n"
    )
    assert not load_text(BASE + keys).problems


@pytest.mark.parametrize("until, problems", [("2999-12-30", 0), ("2999-12-31", 1)])
def test_an_own_pace_must_have_ended_when_the_floor_rises_above_it(until: str, problems: int) -> None:
    keys = "      sunset: {below: '1.20', at: 2999-12-31, enforce: true}\n"
    pace = f"    offer: {{for: [{{clients: [old], ceiling: '1.19', until: {until}}}]}}\n"
    found = load_text("clients: [{name: old, user_agent: old}]\n" + BASE + keys + pace).problems

    assert [problem.message for problem in found] == [
        "one in `for` is 1.19: nothing would be offered"
    ] * problems


def test_a_version_without_quotation_marks_is_a_warning() -> None:
    loaded = load_text(BASE + "      deprecated: {below: 1.20, since: 2023-07-01}\n")

    assert [(problem.code, problem.hint) for problem in loaded.problems] == [("number", 'write "1.20"')]
