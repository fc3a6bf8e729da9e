"""Any text gives settings or problems, never an exception, and every problem has a position in the text."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.settings import load
from gateway.settings.yaml.problem import split_lines
from tests.architecture.source import ROOT
from tests.settings.dialects import DIALECTS

WHOLE = Path(ROOT / "config" / "skewgate.yaml").read_text(encoding="utf-8").replace("ironic", "plain")
WORDS = [
    *(
        "listen",
        "services",
        "admin",
        "dialect",
        "backends",
        "url",
        "match",
        "offer",
        "ceiling",
        "probe",
        "headers",
    ),
    *(
        "plain",
        "dated",
        "1.90",
        "127.0.0.1:80",
        "http://a",
        "${A}",
        "${",
        "}",
        "${A:-",
        "release",
        "token",
        "null",
    ),
    *(
        ": ",
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "'",
        '"',
        "&a",
        "*a",
        "!!x",
        "#",
        "|\n",
        "? ",
        "---",
    ),
    *(
        "\t",
        "\ufeff",
        "\r",
        "\x85",
        "\u2028",
        "\x00",
        "\ud800",
        "\\ud800",
        "\\x",
        "<<",
        "%YAML 1.1",
        "@",
        "`",
    ),
]


def check(text: str) -> None:
    loaded = load(text, filename="x", environ={"A": "7"}, dialects=DIALECTS)

    assert (loaded.settings is None) == bool(loaded.errors)
    assert loaded.settings or loaded.problems
    lines = split_lines(text)
    for problem in loaded.problems:
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        assert problem.message
        assert "\n" not in problem.headline("x")
    loaded.render().encode()
    assert list(loaded.problems) == sorted(loaded.problems, key=lambda found: (found.line, found.column))


@given(st.text())
def test_any_text(text: str) -> None:
    check(text)


@given(st.lists(st.sampled_from(WORDS)).map("".join))
def test_any_words(text: str) -> None:
    check(text)


@given(
    st.integers(0, len(WHOLE)), st.integers(0, 30), st.lists(st.sampled_from(WORDS), max_size=3).map("".join)
)
def test_a_good_file_with_a_piece_replaced(at: int, removed: int, added: str) -> None:
    check(WHOLE[:at] + added + WHOLE[at + removed :])


def tree_texts() -> st.SearchStrategy[object]:
    """Values of any shape, for places where another shape is expected."""
    leaves = st.sampled_from(["1", "x", "", "${A}", "127.0.0.1:1", "http://a", "plain", "5s"])
    keys = st.sampled_from([word for word in WORDS if word.isidentifier()])
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )


@given(st.dictionaries(st.sampled_from(["listen", "services", "admin", "limits", "timeouts"]), tree_texts()))
def test_any_shape(tree: dict[str, object]) -> None:
    """Every shape under every key. JSON is YAML."""
    check(str(tree).replace("'", '"'))
