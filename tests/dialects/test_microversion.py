"""What the OpenStack dialects share: the text of a request that counts, its grammar, documents, releases."""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

from sys import getrefcount
from typing import Any

import pytest

from gateway.core.dialect import (
    NO_VERSION_REQUESTED,
    Advertisement,
    Links,
    RequestedKind,
    RequestedVersion,
)
from gateway.core.http.json_body import MAX_DEPTH
from gateway.core.http.message import agreed_text, as_mapping
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.microversion import (
    MICROVERSION,
    RANGE_KEYS,
    Latest,
    dump_document,
    is_json,
    load_document,
    parse_microversion,
    parse_requested,
    read_legacy,
    read_range,
    read_standard,
    release_table,
    write_ranges,
)
from gateway.errors import VersionTextError

COMPUTE = frozenset({"compute"})
OFFER = VersionSet.between(Version(1, 1), Version(1, 58))
LINKS = Links(backend="http://10.0.0.5:6385", host="api.test:6385", public="https://api.test/baremetal")


def standard(*lines: str) -> str | None:
    return read_standard(as_mapping([("openstack-api-version", line) for line in lines]), COMPUTE)


# --- which text of a request counts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines,text",
    [
        (["compute 2.5"], "2.5"),
        (["Compute   2.5"], "2.5"),
        (["COMPUTE\t2.5\t"], "2.5"),
        (["compute 2.5, baremetal 1.9, compute 2.6"], "2.6"),
        (["compute 2.6", "compute 2.5"], "2.5"),
        (["compute 2.6", "baremetal 1.9"], "2.6"),
        (["compute 2.6, compute"], "2.6"),
        (["compute latest"], "latest"),
        (["compute 2.5 x"], "2.5 x"),
    ],
)
def test_the_last_item_that_names_the_service_counts(lines: list[str], text: str) -> None:
    assert standard(*lines) == text


@pytest.mark.parametrize(
    "lines",
    [[], [""], [","], ["compute"], ["2.5"], ["nova 2.6"], ["baremetal 1.9"], ["compute:2.5"], ["compute \t"]],
)
def test_an_item_for_another_service_or_without_a_version_is_ignored(lines: list[str]) -> None:
    assert standard(*lines) is None


def test_a_separator_that_HTTP_does_not_call_blank_makes_the_version_malformed() -> None:
    """Servers split at U+00A0, too. The gateway must not drop it, and must not ignore the item."""
    text = standard("compute\xa02.5")

    assert text == "\xa02.5"
    assert parse_microversion(text) is None


def test_a_service_may_have_several_types() -> None:
    magnum = frozenset({"container-infra", "container-infrastructure"})
    headers = as_mapping([("openstack-api-version", "container-infra 1.5, Container-Infrastructure 1.6")])

    assert read_standard(headers, magnum) == "1.6"


@pytest.mark.parametrize(
    "lines,text",
    [
        ([("x-old", "1.5")], "1.5"),
        ([("x-old", "1.5, 1.6")], "1.6"),
        ([("x-old", "1.5"), ("x-old", "1.6")], "1.6"),
        ([("x-old", "1.5"), ("x-new", "1.7")], "1.7"),
        ([("x-old", " \t1.5 ")], "1.5"),
        ([("x-old", "")], ""),
        ([("x-old", "1.5,")], ""),
        ([("x-old", "\xa01.5")], "\xa01.5"),
        ([], None),
    ],
)
def test_of_legacy_headers_the_first_name_and_its_last_item_count(
    lines: list[tuple[str, str]], text: str | None
) -> None:
    assert read_legacy(as_mapping(lines), ("x-new", "x-old")) == text


# --- what that text may be ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text,version",
    [("2.1", Version(2, 1)), ("1.0", Version(1, 0)), ("0.9", None), ("2", None), ("2.01", None)],
)
def test_a_microversion_of_the_guideline_has_a_major_of_at_least_one(
    text: str, version: Version | None
) -> None:
    assert parse_microversion(text) == version


@pytest.mark.parametrize(
    "text,latest,kind",
    [
        ("latest", Latest.EXACT, RequestedKind.LATEST),
        ("LATEST", Latest.EXACT, RequestedKind.MALFORMED),
        ("latest", Latest.ANY_CASE, RequestedKind.LATEST),
        ("Latest", Latest.ANY_CASE, RequestedKind.LATEST),
        ("latest", Latest.OFF, RequestedKind.MALFORMED),
        ("2.latest", Latest.ANY_CASE, RequestedKind.MALFORMED),
        ("late\u017ft", Latest.ANY_CASE, RequestedKind.MALFORMED),
        ("", Latest.ANY_CASE, RequestedKind.MALFORMED),
        ("spam", Latest.EXACT, RequestedKind.MALFORMED),
    ],
)
def test_latest_counts_in_the_spelling_of_the_service(text: str, latest: Latest, kind: RequestedKind) -> None:
    assert parse_requested(text, parse_microversion, latest) == RequestedVersion(kind, text=text)


def test_a_text_requests_an_exact_version_and_none_requests_no_version() -> None:
    assert parse_requested("2.5", parse_microversion, Latest.EXACT) == RequestedVersion(
        RequestedKind.EXACT, Version(2, 5), "2.5"
    )
    assert parse_requested(None, parse_microversion, Latest.EXACT) is NO_VERSION_REQUESTED


# --- response headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values,text",
    [((), ""), (("1.5",), "1.5"), (("1.5", "1.5"), "1.5"), (("1.5", "1.6"), ""), (("", "1.5"), "")],
)
def test_V9_lines_of_a_response_header_that_differ_are_ignored(values: tuple[str, ...], text: str) -> None:
    assert agreed_text(values) == text


def test_a_minimum_and_a_maximum_make_an_advertisement() -> None:
    assert read_range("1.1", "1.115") == Advertisement(VersionSet.between(Version(1, 1), Version(1, 115)))
    assert read_range("1.1", "1.1") == Advertisement(VersionSet.only(Version(1, 1)))


@pytest.mark.parametrize(
    "lowest,highest",
    [("1.2", "1.1"), ("1.1", "2.5"), ("2.1", "1.5"), ("", "1.5"), ("1.1", "x"), ("01.1", "1.5")],
)
def test_an_invalid_range_makes_no_advertisement(lowest: str, highest: str) -> None:
    assert read_range(lowest, highest) is None


# --- documents ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html></html>",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe{}",
        b'{"a": ',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"1" * 5000 + b"}",
    ],
)
def test_a_body_that_is_not_an_object_is_no_document(body: bytes) -> None:
    assert load_document(body) is None


def nested(levels: int) -> bytes:
    return b'{"a": ' + b"[" * (levels - 1) + b"0" + b"]" * (levels - 1) + b"}"


def test_documents_are_accepted_up_to_a_depth() -> None:
    assert load_document(nested(MAX_DEPTH)) is not None
    assert load_document(nested(MAX_DEPTH + 1)) is None


def test_documents_are_written_as_the_servers_write_them() -> None:
    document = load_document('{"b":1,"a":["é",null]}'.encode())

    assert document is not None
    assert dump_document(document, LINKS) == b'{"b": 1, "a": ["\\u00e9", null]}'


@pytest.mark.parametrize("body", [b'{"a": NaN}', b'{"a": [-Infinity]}', b'{"a": 1e999}'])
def test_what_json_does_not_have_is_not_written(body: bytes) -> None:
    document = load_document(body)

    assert document is not None
    assert dump_document(document, LINKS) is None


@pytest.mark.parametrize(
    "document,expected",
    [
        ({"min_version": "1.1", "version": "1.115"}, {"min_version": "1.1", "version": "1.58"}),
        ({"version": "1.10"}, {"version": "1.58"}),
        ({"min_version": "", "version": ""}, {"min_version": "", "version": ""}),
        ({"min_version": "2.1", "version": "2.5"}, {"min_version": "2.1", "version": "2.5"}),
        ({"max_version": "1.115"}, {"max_version": "1.58"}),
        ({"a": [{"b": {"version": "1.115"}}]}, {"a": [{"b": {"version": "1.58"}}]}),
        ({"version": {"version": "1.115"}}, {"version": {"version": "1.58"}}),
        ({"version": None}, {"version": None}),
        ({}, {}),
    ],
)
def test_the_offer_replaces_every_range_of_the_same_major(
    document: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert write_ranges(document, OFFER)
    assert document == expected


@pytest.mark.parametrize("key", RANGE_KEYS)
@pytest.mark.parametrize("value", [1.1, 1, True, ["1.5"], "v1.5", "1.5 ", "1.05", "latest"])
def test_a_value_in_the_place_of_a_version_that_is_none_makes_no_document(key: str, value: object) -> None:
    assert not write_ranges({"versions": [{key: value}]}, OFFER)


@pytest.mark.parametrize("kind,expected", [("application/json; charset=UTF-8", True), ("text/html", False)])
def test_a_response_is_json_by_its_content_type(kind: str, expected: bool) -> None:
    assert is_json(as_mapping([("content-type", kind)])) is expected
    assert not is_json(as_mapping([("content-type", kind), ("content-type", "text/plain")]))
    assert not is_json(as_mapping([]))


def test_every_link_in_a_document_is_rewritten() -> None:
    document: dict[str, object] = {
        "href": "http://api.test:6385/v1/",
        "links": [
            {"href": "http://10.0.0.5:6385/v1/", "rel": "self"},
            {"href": 7},
            "http://api.test:6385/v1/",
            None,
        ],
        "nodes": [[{"href": "http://api.test:6385/v1/nodes/"}]],
        "docs": {"href": "https://docs.openstack.org/ironic"},
    }

    dump_document(document, LINKS)

    assert document == {
        "href": "https://api.test/baremetal/v1/",
        "links": [
            {"href": "https://api.test/baremetal/v1/", "rel": "self"},
            {"href": 7},
            "http://api.test:6385/v1/",
            None,
        ],
        "nodes": [[{"href": "https://api.test/baremetal/v1/nodes/"}]],
        "docs": {"href": "https://docs.openstack.org/ironic"},
    }


# --- releases ----------------------------------------------------------------------------------------------


def test_a_release_table_is_read_by_name() -> None:
    table = release_table({"1.82": "21.4 antelope 2023.1", "1.90": "24.1"})

    assert table == {name: Version(1, 82) for name in ("21.4", "antelope", "2023.1")} | {
        "24.1": Version(1, 90)
    }
    assert MICROVERSION.format(table["24.1"]) == "1.90"


def test_mistakes_in_a_release_table_are_errors() -> None:
    with pytest.raises(VersionTextError):
        release_table({"1.O": "21.4"})
    with pytest.raises(ValueError, match="zed"):
        release_table({"1.80": "zed", "1.81": "21.3 zed"})


def test_R_B12_what_is_too_long_for_a_version_is_not_kept() -> None:
    text = "1." + "9" * 100_000
    before = getrefcount(text)

    assert read_range("1.1", text) is None
    assert getrefcount(text) == before
