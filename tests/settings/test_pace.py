"""`services.NAME.offer.for`: what an operator writes, and entries that mean nothing or too much."""

from __future__ import annotations

from datetime import date

import pytest

from gateway.core.clients import Client
from gateway.core.fleet.pace import Pace
from gateway.core.versions.version import Version
from gateway.settings.yaml.problem import Severity
from tests.settings.texts import BASE, load_text

NO_DAY = "not a day of the calendar since 1970"
CLIENTS = """\
clients:
  - {name: first, header: {X-Team: a}}
  - {name: cron, user_agent: curl}
  - {name: nova, networks: [10.0.0.0/8]}
"""


def problems(*entries: str, offer: str = "", base: str = BASE) -> list[tuple[str, int, str]]:
    """Code, number of the entry and message of each problem."""
    lines = "".join(f"        - {entry}\n" for entry in entries)
    text = f"{base}    offer:\n{offer}      for:\n{lines}{CLIENTS}"
    before = text.partition("      for:\n")[0].count("\n") + 1
    return [(each.code, each.line - before, each.message) for each in load_text(text).problems]


def test_own_paces_as_they_are_written() -> None:
    text = '{clients: [cron], ceiling: "1.5", until: 2099-06-30}, {clients: [cron2, nova], ceiling: "1.7"}'
    (service,) = (
        load_text(f"{BASE}    offer: {{for: [{text}]}}\n{CLIENTS}  - {{name: cron2, user_agent: x}}\n")
        .require()
        .services
    )

    assert service.paces == (
        Pace(("cron",), Version(1, 5), date(2099, 6, 30)),
        Pace(("cron2", "nova"), Version(1, 7)),
    )
    assert [rule.name for rule in service.naming.rules] == ["first", "cron", "nova", "cron2"]


def test_rules_behind_the_last_one_with_a_pace_do_not_decide() -> None:
    (service,) = (
        load_text(f'{BASE}    offer: {{for: [{{clients: [cron], ceiling: "1.5"}}]}}\n{CLIENTS}')
        .require()
        .services
    )

    assert service.naming.rules == (Client("first", header={"X-Team": "a"}), Client("cron", "curl"))
    assert (service.naming.vary(()), service.naming.private) == (("X-Team", "User-Agent"), ())


def test_a_change_of_a_deciding_rule_is_a_change_of_the_service() -> None:
    text = f'{BASE}    offer: {{for: [{{clients: [cron], ceiling: "1.5"}}]}}\n{CLIENTS}'
    before, same, other = (
        load_text(each).require().services[0]
        for each in (text, text.replace("10.0.0.0", "11.0.0.0"), text.replace("curl", "wget"))
    )

    assert same.is_written_as(before)
    assert not other.is_written_as(before)


@pytest.mark.parametrize(
    "entry, code, message",
    [
        ('{clients: [corn], ceiling: "1.5"}', "bad-value", "no entry of `clients` has this name"),
        ('{clients: [cron, cron], ceiling: "1.5"}', "contradiction", "this client is named already (line 9)"),
        ('{clients: [], ceiling: "1.5"}', "bad-value", "the list is empty"),
        ("{clients: [cron]}", "missing-key", "the key 'ceiling' is missing"),
        ('{ceiling: "1.5"}', "missing-key", "the key 'clients' is missing"),
        ('{clients: [cron], ceiling: "1.5", until: 2026-02-30}', "bad-value", NO_DAY),
        ('{clients: [cron], ceiling: "1.5", until: tomorrow}', "bad-value", NO_DAY),
        ('{clients: [cron], ceiling: "1.5", at: 2026-01-01}', "unknown-key", "there is no key 'at' here"),
    ],
)
def test_an_entry_that_is_wrong(entry: str, code: str, message: str) -> None:
    assert problems(entry) == [(code, 1, message)]


def test_a_client_has_one_pace() -> None:
    assert problems('{clients: [cron], ceiling: "1.5"}', '{clients: [nova, cron], ceiling: "1.6"}') == [
        ("contradiction", 2, "this client is named already (line 9)")
    ]


def test_a_ceiling_that_is_no_version() -> None:
    ((code, entry, _),) = problems("{clients: [cron], ceiling: five}")

    assert (code, entry) == ("bad-value", 1)


def test_an_own_pace_outside_of_the_reach_of_the_offer() -> None:
    declared = f'{BASE}        versions: "1.4-1.9"\n'

    assert problems('{clients: [cron], ceiling: "1.3"}', base=declared) == [
        ("ceiling-below-minimum", 1, "the lowest declared version is 1.4: nothing would be offered to them")
    ]
    assert problems('{clients: [cron], ceiling: "1.4"}', base=declared) == []
    assert problems('{clients: [cron], ceiling: "1.7"}', offer='      ceiling: "1.7"\n') == [
        ("no-effect", 1, "the ceiling of the service is 1.7: this hides nothing")
    ]


def test_a_day_that_has_passed_is_a_warning_that_says_what_is_in_force() -> None:
    text = f'{BASE}    offer: {{for: [{{clients: [cron], ceiling: "1.5", until: 2001-01-01}}]}}\n{CLIENTS}'
    (problem,) = load_text(text).problems

    assert (problem.severity, problem.code) == (Severity.WARNING, "passed")
    assert problem.message == "the day has passed: these clients are offered what all others are"


@pytest.mark.parametrize("until, found", [("2001-01-01", ["passed"]), ("2999-12-31", ["contradiction"])])
def test_a_floor_above_an_own_ceiling_leaves_nothing_while_that_is_in_force(
    until: str, found: list[str]
) -> None:
    entry = f'{{clients: [cron], ceiling: "1.5", until: {until}}}'

    assert [code for code, _, _ in problems(entry, offer='      floor: "1.6"\n')] == found


def test_a_number_without_quotation_marks_is_warned_of() -> None:
    assert [code for code, _, _ in problems("{clients: [cron], ceiling: 1.50}")] == ["number"]
