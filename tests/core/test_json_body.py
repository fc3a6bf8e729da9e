"""JSON of a backend is read within limits, which are measured on its text before it is parsed."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.http.json_body import MAX_DEPTH, MAX_DIGITS, MAX_VALUES, is_within_limits, read_json

TEXTS = st.text(st.sampled_from('[]{},:"\\ \n\u00e9\u2028\ud800a0')) | st.text(max_size=5)
"""Strings with all that has a meaning outside of strings."""

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def depth(document: Any) -> int:
    """The levels of lists and objects."""
    if isinstance(document, dict):
        document = list(document.values())
    return 1 + max(map(depth, document), default=0) if isinstance(document, list) else 0


def values(document: Any) -> int:
    """The number of values. An empty list and an empty object count twice."""
    if isinstance(document, dict):
        document = list(document.values())
    if not isinstance(document, list):
        return 1
    return 1 + (sum(map(values, document)) if document else 1)


@given(DOCUMENTS, st.booleans(), st.sampled_from([None, 0, 3]), st.integers(0, 8))
@example(["]"], False, None, 1)
@example({'\\"{': ['\\\\"', []]}, False, None, 2)
def test_R_B12_the_depth_of_a_text_is_that_of_its_value(
    document: Any, ensure_ascii: bool, indent: int | None, limit: int
) -> None:
    text = json.dumps(document, ensure_ascii=ensure_ascii, indent=indent)

    assert is_within_limits(text, depth=limit, values=10_000) == (depth(document) <= limit)


@given(DOCUMENTS, st.booleans(), st.integers(1, 40))
def test_R_B12_the_values_of_a_text_are_those_of_its_value(
    document: Any, ensure_ascii: bool, limit: int
) -> None:
    text = json.dumps(document, ensure_ascii=ensure_ascii)

    assert is_within_limits(text, depth=100, values=limit) == (values(document) <= limit)


@given(st.text(st.sampled_from('[]{},:"\\1a \n'), max_size=60), st.integers(1, 4))
def test_R_B12_what_a_parser_reads_of_any_text_is_within_the_limits_that_were_found(
    text: str, limit: int
) -> None:
    """Of a text that is not JSON a parser reads the beginning."""
    if is_within_limits(text, depth=limit, values=limit):
        opened = deepest = commas = 0
        for character in without_strings(valid_beginning(text)):
            opened += (character in "[{") - (character in "]}")
            deepest = max(deepest, opened)
            commas += character in ",[{"
        assert deepest <= limit
        assert commas < limit


def valid_beginning(text: str) -> str:
    """As far as the parser comes."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return text[: error.pos]
    return text


def without_strings(text: str) -> str:
    """A second reader of strings, character by character."""
    outside, inside, escaped = "", False, False
    for character in text:
        if inside:
            inside, escaped = escaped or character != '"', not escaped and character == "\\"
        else:
            inside = character == '"'
            outside += character
    return outside


@given(DOCUMENTS, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"]))
def test_what_is_within_the_limits_is_read_as_a_parser_reads_it(document: Any, encoding: str) -> None:
    text = json.dumps(document)

    assert read_json(text.encode(encoding)) == json.loads(text)
    assert read_json(text) == json.loads(text)


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_nothing_raises(body: bytes | str) -> None:
    read_json(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"\xff\xfe[",
        b"null",
        b"[1] [2]",
        b"\\",
        b"[" * 100_000,
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b"9" * (MAX_DIGITS + 1),
        b"-" + b"9" * MAX_DIGITS,
        b"[" + b"0," * MAX_VALUES + b"0]",
        b'["' + b'","' * MAX_VALUES + b'"]',
        b'{"a":"' + b'","a":"' * MAX_VALUES + b'"}',
    ],
)
def test_R_B12_what_is_not_json_or_outside_the_limits_is_none(body: bytes) -> None:
    assert read_json(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b"9" * MAX_DIGITS,
        b"0." + b"9" * 10_000,
        b"[" + b"0," * (MAX_VALUES - 2) + b"0]",
        b'{"a":"' + b'","a":"' * (MAX_VALUES - 2) + b'"}',
        b'["' + b"[" * 100_000 + b'"]',
        b'["' + b'\\"[' * 50_000 + b'"]',
    ],
)
def test_R_B12_what_is_within_the_limits_is_read(body: bytes) -> None:
    assert read_json(body) == json.loads(body)
