"""The options of a dialect, nested ones included: their values, and the position of each mistake."""

from __future__ import annotations

import pytest

from gateway.settings import Loaded, load
from tests.settings.dialects import DIALECTS, Dated, PaperOptions, StepOptions

BASE = """\
listen: 127.0.0.1:8080
services:
  api:
    dialect: dated
    backends:
      - url: http://127.0.0.1:6385
    dated:
"""


def load_text(options: str, **environ: str) -> Loaded:
    return load(BASE + options, filename="x.yaml", environ=environ, dialects=DIALECTS)


def test_parts_and_lists_of_parts_become_the_values_of_the_dialect() -> None:
    loaded = load_text(
        "      steps:\n        - {name: one, days: [mon, tue]}\n        - {name: two, since: 2024-01-31}\n"
        '      paper: {note: "a\\nb"}\n'
    )
    dialect = loaded.require().services[0].dialect

    assert isinstance(dialect, Dated)
    assert dialect.options.steps == (StepOptions("one", ("mon", "tue")), StepOptions("two", (), "2024-01-31"))
    assert dialect.options.paper == PaperOptions(4, "a\nb")


def test_left_out_they_have_their_defaults() -> None:
    dialect = load_text("      {}\n").require().services[0].dialect

    assert isinstance(dialect, Dated)
    assert (dialect.options.steps, dialect.options.paper) == ((StepOptions("only"),), PaperOptions())


@pytest.mark.parametrize(
    "options, found",
    [
        ("      steps: [{name: a}, {name: impossible}]\n", [("bad-value", 8, 33)]),
        (
            "      steps: [{name: impossible}]\n      paper: {size: 0}\n",
            [("bad-value", 8, 22), ("bad-value", 9, 21)],
        ),
        ("      steps: [{days: [x]}]\n", [("missing-key", 8, 15)]),
        ("      steps: [{name: a, nmae: b}]\n", [("unknown-key", 8, 25)]),
        ("      paper: {size: x}\n", [("bad-value", 8, 21)]),
        ('      paper: {note: "\\a"}\n', [("bad-value", 8, 21)]),
        ("      paper: x\n", [("wrong-type", 8, 14)]),
    ],
)
def test_a_mistake_has_its_position(options: str, found: list[tuple[str, int, int]]) -> None:
    problems = load_text(options).problems

    assert [(problem.code, problem.line, problem.column) for problem in problems] == found


def test_nothing_is_reported_about_a_default_that_replaces_a_wrong_value() -> None:
    loaded = load_text("      paper: {size: -1}\n      steps: [{name: impossible}]\n")

    assert [(problem.line, problem.message) for problem in loaded.problems] == [(8, "not a whole number")]


def test_a_message_does_not_quote_what_came_from_the_environment() -> None:
    loaded = load_text('      steps: [{name: "${STEP}"}]\n', STEP="impossible")

    assert [problem.message for problem in loaded.problems] == ["this step is impossible"]
    assert "comes from the environment: STEP" in (loaded.problems[0].hint or "")
