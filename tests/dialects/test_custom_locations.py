"""The locations of a version in a request: what is read there, what is written there, and which disguised
versions are malformed.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.dialect import NO_VERSION_REQUESTED, RequestedKind, RequestedVersion
from gateway.core.http.message import as_mapping
from gateway.core.versions.version import MajorMinor, Named, Version, WholeNumber
from gateway.dialects.custom.locations import (
    Affixes,
    HeaderLocation,
    PathLocation,
    QueryLocation,
    VersionSyntax,
    agreed,
)
from gateway.dialects.custom.media_types import MediaTypeLocation

NUMBER = VersionSyntax(WholeNumber(), newest="latest")
PLAIN = Affixes()
V = Affixes("v")
VENDOR = "application/vnd.x+json"


def exact(number: int, text: str) -> RequestedVersion:
    return RequestedVersion(RequestedKind.EXACT, Version(number), text)


def malformed(text: str) -> RequestedVersion:
    return RequestedVersion(RequestedKind.MALFORMED, text=text)


NEWEST = RequestedVersion(RequestedKind.LATEST, text="latest")


# --- affixes and agreement ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "affixes, text, inner",
    [
        (PLAIN, "3", "3"),
        (PLAIN, "", ""),
        (V, "v3", "3"),
        (V, "3", None),
        (Affixes("v", "x"), "v3x", "3"),
        (Affixes("v", "x"), "v3", None),
        (Affixes("v", ".", open_end=True), "v8.13.0", "8"),
        (Affixes("", "", open_end=True), "8.13", "8.13"),
        (Affixes("v", ".", open_end=True), "v8", "8"),
    ],
)
def test_affixes_are_removed_from_a_version(affixes: Affixes, text: str, inner: str | None) -> None:
    assert affixes.read(text) == inner


@given(st.text("v3x", max_size=2), st.text("v3x", max_size=2), st.from_regex(r"\A[0-9]{1,6}\Z"))
def test_what_is_written_with_affixes_can_be_read(before: str, after: str, text: str) -> None:
    affixes = Affixes(before, after)

    assert affixes.read(affixes.write(text)) == text


@pytest.mark.parametrize(
    "all_requested, together",
    [
        ([], NO_VERSION_REQUESTED),
        ([NO_VERSION_REQUESTED, NO_VERSION_REQUESTED], NO_VERSION_REQUESTED),
        ([NO_VERSION_REQUESTED, exact(3, "3")], exact(3, "3")),
        ([exact(3, "v3"), NO_VERSION_REQUESTED, exact(3, "3")], exact(3, "v3")),
        ([exact(3, "3"), exact(4, "4")], malformed("3, 4")),
        ([exact(3, "3"), NEWEST], malformed("3, latest")),
        ([exact(3, "3"), malformed("x"), malformed("y")], malformed("x")),
        ([malformed("x")], malformed("x")),
    ],
)
def test_all_locations_that_hold_a_version_must_agree(
    all_requested: list[RequestedVersion], together: RequestedVersion
) -> None:
    assert agreed(all_requested) == together


# --- headers -----------------------------------------------------------------------------------------------

HEADER = HeaderLocation("API-Version", NUMBER, PLAIN, sent=True)


@pytest.mark.parametrize(
    "lines, requested",
    [
        ([], NO_VERSION_REQUESTED),
        (["3"], exact(3, "3")),
        (["3", "3"], exact(3, "3")),
        (["3", "4"], malformed("3, 4")),
        (["3, 3"], malformed("3, 3")),
        (["latest"], NEWEST),
        (["Latest"], malformed("Latest")),
        ([""], malformed("")),
        (["03"], malformed("03")),
    ],
)
def test_a_header(lines: list[str], requested: RequestedVersion) -> None:
    assert HEADER.read(as_mapping(("api-version", line) for line in lines)) == requested


def test_a_header_is_written_once_or_not_at_all() -> None:
    assert HEADER.write(as_mapping([]), "3") == (("API-Version", "3"),)
    assert HEADER.write(as_mapping([]), None) == ()


# --- media types -------------------------------------------------------------------------------------------

VENDORS = MediaTypeLocation("version", (VENDOR, "text/vnd.x+csv"), NUMBER, PLAIN, sent=True)
ANY_TYPE = MediaTypeLocation("version", (), NUMBER, PLAIN, sent=True)


@pytest.mark.parametrize(
    "accept, requested",
    [
        ("", NO_VERSION_REQUESTED),
        ("*/*", NO_VERSION_REQUESTED),
        (f"{VENDOR}; version=3", exact(3, "3")),
        (f'{VENDOR.upper()} ;VERSION="3";q=0.5', exact(3, "3")),
        (f"{VENDOR};q=0.5 ;version=3", malformed(f"{VENDOR};q=0.5 ;version=3")),
        (f'{VENDOR}; version="\\3"', exact(3, "3")),
        (f"text/html, {VENDOR}; version=3, */*;q=0.1", exact(3, "3")),
        (f"{VENDOR}; version=latest", NEWEST),
        (f"{VENDOR}; version=3, {VENDOR}; version=4", malformed("3, 4")),
        (f"{VENDOR}; version=3; version=4", malformed(f"{VENDOR}; version=3; version=4")),
        (f"{VENDOR}; version", malformed(f"{VENDOR}; version")),
        (f"{VENDOR}; version=", malformed(f"{VENDOR}; version=")),
        (f'{VENDOR}; version="3', malformed(f'{VENDOR}; version="3')),
        ('text/html; title="', malformed('text/html; title="')),
        (f'{VENDOR}; title="b; c=9\\""', NO_VERSION_REQUESTED),
        (f'{VENDOR}; title="a, b; c=9\\""', malformed(f'{VENDOR}; title="a, b; c=9\\""')),
        (f'{VENDOR}; title="a, b; version=9"', malformed(f'{VENDOR}; title="a, b; version=9"')),
        (f"{VENDOR}; q=1; version*=UTF-8''9", malformed(f"{VENDOR}; q=1; version*=UTF-8''9")),
        (f"{VENDOR}; version*0=9", malformed(f"{VENDOR}; version*0=9")),
        ("text/plain; version=0.0.4", NO_VERSION_REQUESTED),
        (", ,", NO_VERSION_REQUESTED),
    ],
)
def test_a_media_type_parameter(accept: str, requested: RequestedVersion) -> None:
    assert VENDORS.read(as_mapping([("accept", accept)])) == requested


@pytest.mark.parametrize(
    "accept, kind, requested",
    [
        ("3", ["3"], exact(3, "3")),
        ("3", ["4"], malformed("3, 4")),
        (None, ["3"], exact(3, "3")),
        (None, ['"3'], malformed(f'{VENDOR}; version="3')),
        (None, ["3", "3"], malformed(f"{VENDOR}; version=3, {VENDOR}; version=3")),
    ],
)
def test_both_headers_must_agree(accept: str | None, kind: list[str], requested: RequestedVersion) -> None:
    lines = [("content-type", f"{VENDOR}; version={text}") for text in kind]
    lines += [] if accept is None else [("accept", f"{VENDOR}; version={accept}")]

    assert VENDORS.read(as_mapping(lines)) == requested


@pytest.mark.parametrize(
    "accept, written",
    [
        (None, f"{VENDOR}; version=3"),
        ("", f"{VENDOR}; version=3"),
        (VENDOR, f"{VENDOR}; version=3"),
        (f"{VENDOR};q=0.5", f"{VENDOR}; version=3"),
        (f"{VENDOR};version=9;charset=utf-8;q=0.5", f"{VENDOR}; version=3; charset=utf-8"),
        (f"Text/HTML,{VENDOR};q=0.3", f"{VENDOR}; version=3"),
        (f"text/csv;q=0.3,{VENDOR}", f"{VENDOR}; version=3"),
        (f"{VENDOR};q=0.35,text/csv;q=0.4", "text/vnd.x+csv; version=3"),
        (f"text/csv,{VENDOR};q=1.000", "text/vnd.x+csv; version=3"),
        (f"{VENDOR};q=0,text/csv;q=0.001", "text/vnd.x+csv; version=3"),
        (f"{VENDOR};q=.9,text/csv;q=0.8", f"{VENDOR}; version=3"),
        (f"{VENDOR};q=.7,text/csv;q=0.8", "text/vnd.x+csv; version=3"),
        ("application/json", f"{VENDOR}; version=3"),
        ("text/csv; header=present", "text/vnd.x+csv; version=3; header=present"),
        ("*/*", f"{VENDOR}; version=3"),
        ("text/*;q=0.5", "text/vnd.x+csv; version=3"),
        ("text/plain, application/json, */*", f"{VENDOR}; version=3"),
        ("text/plain", f"{VENDOR}; version=3"),
        (f"{VENDOR};q=0", f"{VENDOR}; version=3"),
    ],
)
def test_the_version_is_written_where_the_backend_reads_it(accept: str | None, written: str) -> None:
    lines = [] if accept is None else [("accept", accept)]

    assert VENDORS.write(as_mapping(lines), "3") == (("Accept", written),)


def test_the_version_is_written_into_the_type_of_a_body_too() -> None:
    lines = [("accept", VENDOR), ("content-type", "application/json; charset=utf-8")]

    assert VENDORS.write(as_mapping(lines), "3") == (
        ("Accept", f"{VENDOR}; version=3"),
        ("Content-Type", f"{VENDOR}; version=3; charset=utf-8"),
    )
    form = [("content-type", 'multipart/form-data; boundary="a,b"')]
    assert VENDORS.write(as_mapping(form), "3")[1] == ("Content-Type", 'multipart/form-data; boundary="a,b"')


def test_every_type_may_have_the_parameter() -> None:
    lines = [("accept", "text/html, application/json;q=0.5")]

    assert ANY_TYPE.write(as_mapping(lines), "3") == (
        ("Accept", "text/html; version=3, application/json; version=3; q=0.5"),
    )
    assert ANY_TYPE.write(as_mapping([]), "3") == (("Accept", "*/*; version=3"),)


def test_without_a_version_everything_else_stays_as_it_came() -> None:
    lines = [("accept", f"Text/HTML;q=0.3, {VENDOR};version=9;q=1"), ("content-type", "a/b;c=d")]

    assert VENDORS.write(as_mapping(lines), None) == (
        ("Accept", f"Text/HTML;q=0.3, {VENDOR}; q=1"),
        ("Content-Type", "a/b;c=d"),
    )
    assert VENDORS.write(as_mapping([]), None) == ()
    assert VENDORS.write(as_mapping([("accept", f"{VENDOR};q=0.5")]), None) == (
        ("Accept", f"{VENDOR};q=0.5"),
    )
    unreadable = [("accept", 'a/b; c="'), ("accept", "d/e")]
    assert VENDORS.write(as_mapping(unreadable), None) == (("Accept", 'a/b; c=", d/e'),)


@given(
    st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=30), max_size=3),
    st.lists(st.sampled_from([VENDOR, "application/json", "*/*", "text/plain;q=0.5", f"{VENDOR};version=8"])),
)
def test_whatever_a_client_accepts_the_backend_reads_the_negotiated_version(
    odd: list[str], types: list[str]
) -> None:
    lines = as_mapping([*(("accept", text) for text in odd), *(("accept", text) for text in types)])

    if VENDORS.read(lines).kind is not RequestedKind.MALFORMED:
        written = as_mapping(VENDORS.write(lines, "3"))
        assert VENDORS.read(written).version == Version(3)
        assert VENDORS.read(as_mapping(VENDORS.write(written, None))) == NO_VERSION_REQUESTED


def test_an_endless_list_of_types_is_not_read() -> None:
    """Reading it would take a hundred times longer than any other request."""
    longest = ", ".join(["text/plain"] * 200)[:2000]
    assert VENDORS.read(as_mapping([("accept", longest)])) == NO_VERSION_REQUESTED
    assert (
        VENDORS.read(as_mapping([("accept", longest), ("accept", longest)])).kind is RequestedKind.MALFORMED
    )
    assert VENDORS.read(as_mapping([("content-type", "x" * 5000)])).kind is RequestedKind.MALFORMED


# --- queries -----------------------------------------------------------------------------------------------

QUERY = QueryLocation("api-version", NUMBER, PLAIN, sent=True)


@pytest.mark.parametrize(
    "query, requested",
    [
        ("", NO_VERSION_REQUESTED),
        ("a=1&b", NO_VERSION_REQUESTED),
        ("api-version=3", exact(3, "3")),
        ("a=1&api-version=3&b=2", exact(3, "3")),
        ("api-version=3&api-version=3", exact(3, "3")),
        ("api-version=3&api%2dversion=4", malformed("3, 4")),
        ("%61pi-version=3", exact(3, "3")),
        ("Api-Version=3", malformed("3")),
        ("+api-version+=3", malformed("3")),
        ("api-version=%33", malformed("%33")),
        ("api-version", malformed("")),
        ("a=1;api-version=3", malformed("3")),
        ("api-version=3;a=1", malformed("3")),
        ("a=1;b=2&api-version=3", exact(3, "3")),
        ("xapi-version=3", NO_VERSION_REQUESTED),
        ("filter[api-version]=3", NO_VERSION_REQUESTED),
        ("api-version[]=3", malformed("3")),
        ("api-version%5B0%5D=3", malformed("3")),
        ("api-version%00x=3", malformed("3")),
        ("?api-version=3", malformed("3")),
    ],
)
def test_a_query_parameter(query: str, requested: RequestedVersion) -> None:
    assert QUERY.read("/a", query) == requested


@pytest.mark.parametrize(
    "query, written, without",
    [
        ("", "api-version=7", ""),
        ("a=%7e&b;c&&", "a=%7e&b;c&&&api-version=7", "a=%7e&b;c&&"),
        ("api-version=3", "api-version=7", ""),
        ("a=1&api-version=3&b=2", "a=1&api-version=7&b=2", "a=1&b=2"),
        ("api%2Dversion=3&a&api-version=3", "api-version=7&a", "a"),
    ],
)
def test_a_query_parameter_is_written_once_and_the_rest_stays(query: str, written: str, without: str) -> None:
    assert QUERY.covers("/anywhere")
    assert QUERY.write("/a", query, "7") == ("/a", written)
    assert QUERY.write("/a", query, None) == ("/a", without)


def test_a_query_of_endless_parameters_is_not_read() -> None:
    assert QUERY.read("/a", "id=1&" * 999 + "api-version=3") == exact(3, "3")
    assert QUERY.read("/a", "id=1&" * 1000 + "api-version=3").kind is RequestedKind.MALFORMED


def test_php_reads_a_dot_and_a_blank_as_an_underscore() -> None:
    location = QueryLocation("api_version", NUMBER, PLAIN, sent=True)

    assert location.read("/a", "api.version=3") == malformed("3")
    assert location.read("/a", "api+version=3") == malformed("3")
    assert location.read("/a", "api-versions=3") == NO_VERSION_REQUESTED


def test_the_target_of_options_for_a_whole_server_has_no_query() -> None:
    assert not QUERY.covers("*")
    assert QUERY.write("*", "", "7") == ("*", "")


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=40))
def test_a_query_that_can_be_read_is_read_as_it_was_written(query: str) -> None:
    if QUERY.read("/", query).kind is not RequestedKind.MALFORMED:
        _, written = QUERY.write("/", query, "7")
        assert QUERY.read("/", written) == exact(7, "7")
        assert QUERY.read("/", QUERY.write("/", written, None)[1]) == NO_VERSION_REQUESTED


# --- paths -------------------------------------------------------------------------------------------------

START = PathLocation("", NUMBER, V, sent=True)
BARE = PathLocation("", VersionSyntax(Named(("v1beta1", "v1")), newest="newest"), PLAIN, sent=True)
AFTER_PREFIX = PathLocation("/admin/api", NUMBER, PLAIN, sent=True)


@pytest.mark.parametrize(
    "path, requested",
    [
        ("/v3", exact(3, "v3")),
        ("/v3/", exact(3, "v3")),
        ("/v3/a/v4", exact(3, "v3")),
        ("/vlatest/a", NEWEST),
        ("/", NO_VERSION_REQUESTED),
        ("/volumes", NO_VERSION_REQUESTED),
        ("/v", NO_VERSION_REQUESTED),
        ("/x/v3", NO_VERSION_REQUESTED),
        ("/3/a", NO_VERSION_REQUESTED),
        ("*", NO_VERSION_REQUESTED),
        ("/a%20b", NO_VERSION_REQUESTED),
        ("/v03", malformed("v03")),
        ("/v3.1/a", malformed("v3.1")),
        ("/v3;a/b", malformed("v3;a")),
        ("/V3/a", malformed("V3")),
        ("/%763/a", malformed("v3")),
        ("/v%33/a", malformed("v3")),
        ("//v3/a", malformed("v3")),
        ("/;x/v3", malformed("v3")),
    ],
)
def test_a_segment_at_the_start(path: str, requested: RequestedVersion) -> None:
    assert START.read(path, "") == requested


@pytest.mark.parametrize(
    "path, requested",
    [
        ("/v1/a", RequestedVersion(RequestedKind.EXACT, Version(1), "v1")),
        ("/newest", RequestedVersion(RequestedKind.LATEST, text="newest")),
        ("/v2/a", NO_VERSION_REQUESTED),
        ("/apps", NO_VERSION_REQUESTED),
        ("/2/a", malformed("2")),
    ],
)
def test_a_name_at_the_start(path: str, requested: RequestedVersion) -> None:
    assert BARE.read(path, "") == requested


@pytest.mark.parametrize(
    "path, requested",
    [
        ("/admin/api/3/a", exact(3, "3")),
        ("/admin/api/latest", NEWEST),
        ("/admin/api", NO_VERSION_REQUESTED),
        ("/admin/api/", NO_VERSION_REQUESTED),
        ("/admin/apis/3", NO_VERSION_REQUESTED),
        ("/admin", NO_VERSION_REQUESTED),
        ("/x/admin/api/3", NO_VERSION_REQUESTED),
        ("/admin/api/shop.json", malformed("shop.json")),
        ("/admin/api//3", malformed("3")),
        ("/admin//api/3", malformed("3")),
        ("/Admin/API/3", exact(3, "3")),
        ("/%61dmin/api/3", exact(3, "3")),
        ("/%61dmin/api/%33", malformed("%33")),
        ("/admin;x/api/3", malformed("3")),
    ],
)
def test_a_segment_after_a_prefix(path: str, requested: RequestedVersion) -> None:
    assert AFTER_PREFIX.read(path, "") == requested


@pytest.mark.parametrize(
    "location, path, written, without",
    [
        (START, "/v3/a%2e//b", "/v7/a%2e//b", "/a%2e//b"),
        (START, "/v3", "/v7", "/"),
        (START, "/v3/", "/v7/", "/"),
        (START, "/", "/v7/", "/"),
        (START, "/volumes", "/v7/volumes", "/volumes"),
        (START, "*", "*", "*"),
        (AFTER_PREFIX, "/admin/api/3/a", "/admin/api/7/a", "/admin/api/a"),
        (AFTER_PREFIX, "/admin/api/3", "/admin/api/7", "/admin/api"),
        (AFTER_PREFIX, "/admin/api/", "/admin/api/7/", "/admin/api/"),
        (AFTER_PREFIX, "/admin/api", "/admin/api/7", "/admin/api"),
        (AFTER_PREFIX, "/admin/oauth", "/admin/oauth", "/admin/oauth"),
    ],
)
def test_a_version_is_written_into_its_segment(
    location: PathLocation, path: str, written: str, without: str
) -> None:
    assert location.write(path, "q", "7") == (written, "q")
    assert location.write(path, "q", None) == (without, "q")
    assert location.covers(path) == (written != path)


@given(
    st.sampled_from(["", "/admin/api"]),
    st.text("av37/%;.", max_size=12).map(lambda text: "/" + text),
    st.integers(0, 99),
)
def test_a_path_that_can_be_read_is_read_as_it_was_written(prefix: str, below: str, number: int) -> None:
    location, path = PathLocation(prefix, NUMBER, V, sent=True), prefix + below
    if location.read(path, "").kind is not RequestedKind.MALFORMED:
        written, _ = location.write(path, "", str(number))
        assert location.read(written, "") == exact(number, f"v{number}")


def test_two_numbers_are_a_version_where_the_scheme_has_two() -> None:
    location = PathLocation("", VersionSyntax(MajorMinor()), V, sent=True)

    assert location.read("/v1.43/info", "").version == Version(1, 43)
    assert location.read("/v1/info", "").kind is RequestedKind.MALFORMED
