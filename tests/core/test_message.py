"""Names are compared folded, lines keep their order, and local responses are values."""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http.message import (
    FORWARDING,
    HOP_BY_HOP,
    UNLISTABLE,
    RequestHead,
    Response,
    all_values,
    as_mapping,
    method_of_text,
    normalize_name,
    render,
)


@pytest.mark.parametrize(
    "name",
    ["OpenStack-API-Version", "OPENSTACK_API_VERSION", "openstack_api-version", "openstack-api-version"],
)
def test_V4_aliases_of_a_name_fold_into_one(name: str) -> None:
    assert normalize_name(name) == "openstack-api-version"


@given(st.text())
def test_folding_is_done_once(name: str) -> None:
    assert normalize_name(normalize_name(name)) == normalize_name(name)


@pytest.mark.parametrize("names", [HOP_BY_HOP, FORWARDING, UNLISTABLE])
def test_the_tables_of_names_are_folded(names: frozenset[str]) -> None:
    assert {normalize_name(name) for name in names} == names


@pytest.mark.parametrize(
    "text, method", [("get", "GET"), ("Trace", "TRACE"), ("M-Search", "M-Search"), ("", "")]
)
def test_a_known_method_may_be_typed_in_any_letters(text: str, method: str) -> None:
    assert method_of_text(text) == method


def test_lines_are_written_in_order_as_they_are() -> None:
    assert render([("B", "2"), ("a", "1"), ("B", "\xe9")]) == b"B: 2\r\na: 1\r\nB: \xe9\r\n"
    assert render([]) == b""


def test_a_mapping_of_lines_keeps_all_of_them_in_any_case() -> None:
    headers = as_mapping([("x-version", "1"), ("accept", "*/*"), ("X-Version", "2")])

    assert all_values(headers, "X-VERSION") == ("1", "2")
    assert all_values(headers, "absent") == ()


def test_a_plain_mapping_has_one_value_a_name() -> None:
    assert all_values({"x-version": "1"}, "x-version") == ("1",)
    assert all_values({"x-version": "1"}, "absent") == ()


def test_with_headers_makes_a_new_response() -> None:
    bare = Response(503, (("Content-Type", "text/plain"),), b"no")

    assert bare.with_headers(("Retry-After", "2"), ("Vary", "*")) == Response(
        503, (("Content-Type", "text/plain"), ("Retry-After", "2"), ("Vary", "*")), b"no"
    )
    assert bare.headers == (("Content-Type", "text/plain"),)


def test_equal_request_heads_are_one_key() -> None:
    head = RequestHead("GET", "/v1/nodes", "limit=1", (("accept", "*/*"),))

    assert hash(head) == hash(RequestHead("GET", "/v1/nodes", "limit=1", (("accept", "*/*"),)))
    assert RequestHead("GET", "/").fields == ()


@pytest.mark.parametrize("separator", "!#$%&'*+.^`|~")
def test_R_A6_every_character_but_letters_and_digits_is_the_same(separator: str) -> None:
    assert normalize_name(f"X{separator}Api-Version{separator}2") == "x-api-version-2"
