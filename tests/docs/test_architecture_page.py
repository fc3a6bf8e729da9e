"""docs/ARCHITECTURE.md speaks of the source as it is."""

from __future__ import annotations

import re

import pytest

from gateway.core.decision import decision
from gateway.core.fleet.backend import FRESHNESS_AFTER_FAILURES
from gateway.dataplane.local_responses.failures import FAILURES
from tests.architecture.house import COMMAND, code_map, page_as_it_should_be
from tests.docs.pages import exists, mentioned, names, page, rows, section

PAGE = page("docs/ARCHITECTURE.md")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
CLASS = re.compile(r"[A-Z][a-z]\w+")
ELSEWHERE = re.compile(r"\.(?:md|toml|yaml)$|^(?:limits|timeouts|offer|probe)\.|^Host$|^Vary$")
"""Files, keys of the configuration, header names."""


@pytest.mark.parametrize(
    "name, right",
    [
        ("dataplane.exchange.exchange", True),
        ("decision.decide", True),
        ("core.decision.decision.decide", True),
        ("Fleet.observe", True),
        ("SnapshotHolder.current", True),
        ("Context.decision_cache", True),
        ("AccessLog.record", True),
        ("RequestRecord", True),
        ("demo.director", True),
        ("dataplane.exchanger", False),
        ("decision.divide", False),
        ("Fleet.observes", False),
        ("RequestRecords", False),
        ("observe.Fleet", False),
    ],
)
def test_a_name_is_looked_up_in_the_source(name: str, right: bool) -> None:
    assert exists(name) is right


def test_every_name_exists() -> None:
    named = {name for name in mentioned(PAGE) if DOTTED.fullmatch(name) or CLASS.fullmatch(name)}
    wrong = sorted(name for name in named if not ELSEWHERE.search(name) and not exists(name))

    assert len(named) > 40
    assert wrong == []


def test_picture_imports_and_code_map_are_made_from_the_source() -> None:
    assert page_as_it_should_be(PAGE) == PAGE, f"run: {COMMAND}"
    assert code_map() == page("docs/code-map.md"), f"run: {COMMAND}"


def test_every_module_has_a_row() -> None:
    mapped = [row[0].strip("`*") for row in rows(page("docs/code-map.md"))]

    assert sorted(mapped) == sorted(set(names().modules) - {""})


def test_the_table_of_failures_is_the_one_in_force() -> None:
    found = [
        tuple(cell.strip("`") for cell in row) for row in rows(section(PAGE, "When something goes wrong"))
    ]
    words = {
        "always": "always",
        "if_idempotent": "if idempotent",
        "if_safe": "if safe",
        "never": "never",
    }

    assert found == [(str(failure), str(row.status), words[row.retry]) for failure, row in FAILURES.items()]


def test_the_freshness_values_come_in_this_order() -> None:
    found = re.search(r"0, 1, 2, 3 and more: (.+?);", PAGE)

    assert found is not None
    assert found[1] == ", ".join(f"`{freshness}`" for freshness in FRESHNESS_AFTER_FAILURES)


def test_both_ways_are_described_stop_by_stop() -> None:
    for heading, stops in (("A request: eight stops", 8), ("A probe: six stops", 6)):
        numbers = re.findall(r"^(\d)\. ", section(PAGE, heading), re.MULTILINE)
        assert numbers == [str(number) for number in range(1, stops + 1)]


def test_the_one_pure_call_is_named_by_its_source() -> None:
    assert decision.decide.__name__ in PAGE
    assert "one pure call, `decision.decide`" in PAGE
