"""Paths into documents: what they find, what they change, and which texts are not paths."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http.json_body import read_json
from gateway.dialects.custom.json_path import DEEPEST, LONGEST, JsonPath, dump

DOCUMENT = {"a": {"b": [{"c": 1}, {"c": "two"}, {"d": 3}, 4]}, "min version": "1", "list": [[1, 2], [3]]}


@pytest.mark.parametrize(
    "path, found",
    [
        ("$", [DOCUMENT]),
        ("$.a.b[0].c", [1]),
        ("$.a.b[*].c", [1, "two"]),
        ("$.a.b[3]", [4]),
        ("$.a.b[4]", []),
        ("$.a.b.c", []),
        ("$.a[0]", []),
        ("$.a[*]", []),
        ("$['min version']", ["1"]),
        ('$["min version"]', ["1"]),
        ("$.list[*][*]", [1, 2, 3]),
        ("$.list[*][1]", [2]),
        ("$.nothing.at.all", []),
    ],
)
def test_a_path_finds_the_values_at_it(path: str, found: list[Any]) -> None:
    assert JsonPath.read(path).find(read_json(json.dumps(DOCUMENT).encode())) == found


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a",
            ".a",
            "$a",
            "$.",
            "$..a",
            "$.a.",
            "$[",
            "$[]",
            "$[*",
            "$[-1]",
            "$[01]",
            "$[1:2]",
            "$[?(@.a)]",
        ),
        *("$.1a", "$.a b", "$['a]", "$['']", "$['a\"]", "$.a\n", "$.\u00e4", "$[\u0661]", "$[9999999]"),
        "$" + ".a" * (DEEPEST + 1),
        "$['" + "a" * 64 + "']" * LONGEST,
    ],
)
def test_any_other_text_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="JSON path") as caught:
        JsonPath.read(text)
    assert len(text) < 4 or text not in str(caught.value)


def test_a_change_happens_in_place_at_every_value_of_the_path() -> None:
    document = read_json(json.dumps(DOCUMENT).encode())

    assert JsonPath.read("$.a.b[*].c").change(document, lambda value: f"<{value}>") == 2
    assert JsonPath.read("$.a.b[9].c").change(document, lambda value: None) == 0
    assert JsonPath.read("$").change(document, lambda value: None) == 0
    assert document["a"]["b"][:2] == [{"c": "<1>"}, {"c": "<two>"}]  # type: ignore[index,call-overload]


def test_a_path_is_split_into_its_last_list_and_the_path_in_an_item() -> None:
    assert JsonPath.read("$.list[*][*].x.y").list_and_item == (
        JsonPath.read("$.list[*]"),
        JsonPath.read("$.x.y"),
    )
    assert JsonPath.read("$.a[0]").list_and_item is None


def test_what_json_does_not_have_is_not_written() -> None:
    assert dump({"a": ["\u00e4", 1.5, True]}) == '{"a":["ä",1.5,true]}'.encode()
    assert dump(float("nan")) is None
    assert dump("\ud800") is None


STEPS = st.lists(st.sampled_from([".a", "[0]", "[*]", "['b c']"]), max_size=5).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b c"]), inner),
    max_leaves=12,
)


@given(STEPS, JSON)
def test_the_values_that_are_changed_are_those_that_are_found(steps: str, document: Any) -> None:
    path = JsonPath.read("$" + steps)
    found = path.find(document)

    count = path.change(document, lambda value: "changed")

    assert count == (len(found) if path.steps else 0)
    if count:
        assert path.find(document) == ["changed"] * count


@given(st.text(max_size=30))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = JsonPath.read("$" + text)
    except ValueError:
        return
    assert len(path.steps) <= DEEPEST
