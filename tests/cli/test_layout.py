"""The layout of `fmt`: what it does, and two laws: it changes no meaning, and the second time nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.layout import NotYaml, laid_out
from gateway.errors import LayoutError
from tests.cli.processes import ROOT

FILES = sorted(path for path in (ROOT / "config").rglob("*.yaml"))


def meaning(text: str) -> object:
    """The file as the gateway reads it: every scalar is its text."""
    return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - makes nothing but texts


def comments(text: str) -> list[str]:
    """Those that the strategies below make. None of their texts ends as a comment does."""
    return re.findall(r"#\s*([a-z0-9.: ]+?)\s*$", text, re.MULTILINE)


def test_the_layout_of_each_kind_of_thing() -> None:
    written = """\


listen:   127.0.0.1:8080      # where
                              # clients come
# about
services:
    # deep
    baremetal :
        dialect:    ironic
        releases: {2024.1: 1.90,a: 1.5 , }
        backends:
        -   url: http://a
            # on versions
            versions: 1.90   # yes
        - name: |
            x
             y

          url: "a
             b"
        # end of the list


        # end of the service
state: >-
     foo

     bar
    # no
admin: {
  listen: x,   # c
  hosts: [a,
     b]
}
"""
    assert (
        laid_out(written)
        == """\
listen: 127.0.0.1:8080        # where
                              # clients come
# about
services:
  # deep
  baremetal:
    dialect: ironic
    releases: {"2024.1": "1.90", a: "1.5",}
    backends:
      - url: http://a
        # on versions
        versions: "1.90"  # yes
      - name: |
          x
           y

        url: "a
           b"
      # end of the list

      # end of the service
state: >-
     foo

     bar
# no
admin: {
  listen: x,   # c
  hosts: [a,
     b]
}
"""
    )


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_the_examples_have_this_layout(file: Path) -> None:
    assert laid_out(file.read_text()) == file.read_text()


@pytest.mark.parametrize(
    "scalar, expected",
    [
        ("1.90", '"1.90"'),
        ("2024.1", '"2024.1"'),
        ("2023-10-01", '"2023-10-01"'),
        ("1e3", '"1e3"'),
        ("12:30", '"12:30"'),
        ("'1.90'", "'1.90'"),
        ("1.1-1.58", "1.1-1.58"),
        ("5s", "5s"),
        ("8", "8"),
        ("off", "off"),
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("${NAME}", "${NAME}"),
    ],
)
def test_what_others_take_for_a_number_or_a_date_gets_quotation_marks(scalar: str, expected: str) -> None:
    assert laid_out(f"a: {scalar}\n") == f"a: {expected}\n"
    if "$" not in scalar:  # a brace ends a text between braces
        assert laid_out(f"{{a: [{scalar}]}}\n") == f"{{a: [{expected}]}}\n"


@pytest.mark.parametrize(
    "text", ["", "a: [", "a: &x 1\nb: *x\n", "a: !!int 1\n", "a: 1\n---\nb: 2\n", "\x00", 'a: "\\U00110000"']
)
def test_what_no_configuration_may_contain_is_refused(text: str) -> None:
    with pytest.raises(NotYaml):
        laid_out(text)


def test_other_line_ends_and_a_byte_order_mark_go() -> None:
    assert laid_out("\ufeffa: 1\r\nb: |\r\n  x\r\n") == "a: 1\nb: |\n  x\n"


# -- laws

words = st.sampled_from(
    ["a", "b1", "1.90", "'q # x'", '"w: \\" x"', "1.1-1.9", "http://h:1/x#y", "true", "2024.10"]
)
remarks = st.sampled_from(["", "", " # why", "   #x", "  # 1.90: no"])
blanks = st.sampled_from(["", "", "", "\n", "\n\n\n", "# own\n", "      # deep\n", "  \n  # both\n\n"])


@st.composite
def blocks(draw: st.DrawFn, column: int, depth: int) -> str:
    """A mapping or a list in block style, its items at `column`."""
    kind = draw(st.sampled_from(["mapping", "list"]))
    parts = []
    for number in range(draw(st.integers(1, 3))):
        parts.append(draw(blanks))
        lead = " " * column + ("- " + " " * draw(st.integers(0, 2)) if kind == "list" else f"k{number}:")
        parts.append(lead + draw(values(column, depth, in_list=kind == "list", width=len(lead))))
    return "".join(parts)


@st.composite
def values(draw: st.DrawFn, column: int, depth: int, *, in_list: bool, width: int) -> str:
    """What follows the mark of an item, to the end of its last line."""
    choice = draw(st.integers(0, 7 if depth else 4))
    gap = "" if in_list else " " * draw(st.integers(1, 3))
    deeper = column + draw(st.integers(1, 4))
    pad = " " * deeper
    if choice <= 1:
        return f"{gap}{draw(words)}{draw(remarks)}\n"
    if choice == 2:
        flow = ",".join(
            f"{draw(st.sampled_from(['', ' ']))}{draw(words)}" for _ in range(draw(st.integers(0, 3)))
        )
        return f"{gap}[{flow} ]{draw(remarks)}\n"
    if choice == 3:
        head = draw(st.sampled_from(["|", ">", "|-", ">+", "|2-" if not in_list else "|"]))
        inner = " " * (column + 2) if "2" in head else pad
        content = f"{inner}text: 1.90\n\n{inner}  deeper # not a comment\n"
        return f"{gap}{head}{draw(remarks)}\n{content}{draw(blanks)}"
    if choice == 4:
        middle = draw(st.sampled_from([f"\n{pad}", f",{draw(remarks)}\n{pad}y: 1.5"]))
        return f"{gap}{{x: {draw(words)}{middle}}}\n"
    if choice == 5:
        return f'{gap}"two\n{pad}lines \\\n{pad}  here"{draw(remarks)}\n'
    if in_list:
        nested = draw(blocks(width, depth - 1)).lstrip(" ")
        own_line = not nested[:1].isalpha() and nested[:1] != "-"
        return ("\n" if own_line else "") + (draw(blocks(deeper, depth - 1)) if own_line else nested)
    place = column if choice == 7 else deeper
    below = draw(blocks(place, depth - 1))
    if place == column and "- " not in below.split("k", 1)[0]:
        below = draw(blocks(deeper, depth - 1))
    return f"{draw(remarks)}\n{below}"


@given(blocks(0, 3))
def test_neither_a_value_nor_a_comment_changes_and_the_second_time_nothing(text: str) -> None:
    try:
        before = meaning(text)
    except yaml.YAMLError:
        return  # the generator is allowed to miss
    try:
        result = laid_out(text)
    except NotYaml:
        return
    except LayoutError:
        raise AssertionError(f"refused:\n{text}") from None

    assert meaning(result) == before
    assert comments(result) == comments(text)
    assert laid_out(result) == result
    assert "\n\n\n" not in result or "|" in text or ">" in text
