"""`services.NAME.bridge`: what an operator writes, and entries that mean nothing or too much."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from gateway.core.fleet.bridge import Bridge, BridgeMatch
from gateway.settings.yaml.problem import Severity
from tests.settings.texts import BASE, load_text

CLIENTS = """\
clients:
  - {name: first, header: {X-Team: a}}
  - {name: ci, user_agent: curl}
  - {name: nova, networks: [10.0.0.0/8]}
"""
ENTRY = "{clients: [ci], match: nearest, until: 2099-06-30}"


def text_of(*entries: str) -> str:
    lines = "".join(f"      - {entry}\n" for entry in entries)
    return f"{BASE}    bridge:\n{lines}{CLIENTS}"


def problems(*entries: str) -> list[tuple[str, int, str]]:
    """Code, number of the entry and message of each problem."""
    before = BASE.count("\n") + 1
    return [(each.code, each.line - before, each.message) for each in load_text(text_of(*entries)).problems]


def test_bridges_as_they_are_written() -> None:
    across = "{clients: [nova], match: nearest_later, until: 2099-06-30, across_majors: true}"
    (service,) = load_text(text_of(ENTRY, across)).require().services

    assert service.bridges == (
        Bridge(("ci",), BridgeMatch.NEAREST, date(2099, 6, 30)),
        Bridge(("nova",), BridgeMatch.NEAREST_LATER, date(2099, 6, 30), across_majors=True),
    )
    assert [rule.name for rule in service.naming.rules] == ["first", "ci", "nova"]


def test_rules_behind_the_last_one_that_is_used_do_not_decide() -> None:
    (service,) = load_text(text_of(ENTRY)).require().services

    assert (service.naming.vary(()), service.naming.private) == (("X-Team", "User-Agent"), ())


def test_a_client_may_have_an_own_pace_and_a_bridge() -> None:
    pace = '    offer: {for: [{clients: [ci], ceiling: "1.5"}]}\n'
    loaded = load_text(text_of(ENTRY).replace("    bridge:", f"{pace}    bridge:"))

    assert loaded.problems == ()
    assert loaded.require().services[0].naming.vary(()) == ("X-Team", "User-Agent")


@pytest.mark.parametrize(
    "entry, code, message",
    [
        (ENTRY.replace(", until: 2099-06-30", ""), "missing-key", "the key 'until' is missing"),
        (ENTRY.replace("clients: [ci], ", ""), "missing-key", "the key 'clients' is missing"),
        (ENTRY.replace(", match: nearest", ""), "missing-key", "the key 'match' is missing"),
        (ENTRY.replace("[ci]", "[]"), "bad-value", "the list is empty"),
        (ENTRY.replace("[ci]", "'*'"), "wrong-type", "a list is expected here"),
        (ENTRY.replace("ci", "cj"), "bad-value", "no entry of `clients` has this name"),
        (ENTRY.replace("[ci]", "[ci, ci]"), "contradiction", "this client is named already (line 8)"),
        (ENTRY.replace("nearest", "later"), "bad-value", "not one of the allowed values"),
        (ENTRY.replace("2099-06-30", "2026-02-30"), "bad-value", "not a day of the calendar since 1970"),
    ],
)
def test_an_entry_that_is_wrong(entry: str, code: str, message: str) -> None:
    [(found, number, text)] = problems(entry)

    assert (found, number) == (code, 1)
    assert message in text


@pytest.mark.parametrize("networks", ["0.0.0.0/0", "0.0.0.0/0, '::/0'"])
def test_a_bridge_is_not_for_everybody(networks: str) -> None:
    everybody = load_text(text_of(ENTRY).replace("user_agent: curl", f"networks: [{networks}]"))
    some = load_text(text_of(ENTRY).replace("user_agent: curl", f"user_agent: curl, networks: [{networks}]"))

    assert "one of these names is that of every client" in [each.message for each in everybody.problems]
    assert some.problems == ()


def test_a_client_has_one_bridge() -> None:
    assert problems(ENTRY, ENTRY) == [("contradiction", 2, "this client is named already (line 8)")]


def test_a_day_that_has_passed_is_a_warning_that_says_what_is_in_force() -> None:
    (problem,) = load_text(text_of(ENTRY.replace("2099", "2001"))).problems

    assert (problem.severity, problem.code) == (Severity.WARNING, "passed")
    assert problem.message == "the day has passed: the versions that these clients ask for are refused"


def test_the_last_month_of_a_bridge_is_a_warning() -> None:
    today = datetime.now(UTC).date()
    found = [problems(ENTRY.replace("2099-06-30", str(today + timedelta(days=days)))) for days in (5, 40)]

    assert [[code for code, _, _ in each] for each in found] == [["ends-soon"], []]
    [(_, _, last)] = problems(ENTRY.replace("2099-06-30", str(today)))
    assert last.startswith(("tomorrow the versions", "the day has passed")), "passed: it is midnight"
