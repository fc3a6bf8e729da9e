"""Where a version stands in a request: what is read there, what is written, and what is only meant to look
like nothing.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.dialect import ASK_SILENT, Ask, AskKind
from gateway.core.message import as_mapping
from gateway.core.version import MajorMinor, Named, Version, WholeNumber
from gateway.dialects._header_media_types import MediaTypePlace
from gateway.dialects._header_places import (
    HeaderPlace,
    PathPlace,
    QueryPlace,
    Spelling,
    Words,
    agreed,
)

NUMBER = Words(WholeNumber(), newest="latest")
PLAIN = Spelling()
V = Spelling("v")
VENDOR = "application/vnd.x+json"


def exact(number: int, text: str) -> Ask:
    return Ask(AskKind.EXACT, Version(number), text)


def garbled(text: str) -> Ask:
    return Ask(AskKind.GARBLED, text=text)


NEWEST = Ask(AskKind.LATEST, text="latest")


# --- spelling and agreement --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling, text, inner",
    [
        (PLAIN, "3", "3"),
        (PLAIN, "", ""),
        (V, "v3", "3"),
        (V, "3", None),
        (Spelling("v", "x"), "v3x", "3"),
        (Spelling("v", "x"), "v3", None),
        (Spelling("v", ".", open_end=True), "v8.13.0", "8"),
        (Spelling("", "", open_end=True), "8.13", "8.13"),
        (Spelling("v", ".", open_end=True), "v8", "8"),
    ],
)
def test_a_spelling_finds_the_version_in_it(spelling: Spelling, text: str, inner: str | None) -> None:
    assert spelling.read(text) == inner


@given(st.text("v3x", max_size=2), st.text("v3x", max_size=2), st.from_regex(r"\A[0-9]{1,6}\Z"))
def test_what_is_spelled_is_read_again(before: str, after: str, text: str) -> None:
    spelling = Spelling(before, after)

    assert spelling.read(spelling.write(text)) == text


@pytest.mark.parametrize(
    "asks, told",
    [
        ([], ASK_SILENT),
        ([ASK_SILENT, ASK_SILENT], ASK_SILENT),
        ([ASK_SILENT, exact(3, "3")], exact(3, "3")),
        ([exact(3, "v3"), ASK_SILENT, exact(3, "3")], exact(3, "v3")),
        ([exact(3, "3"), exact(4, "4")], garbled("3, 4")),
        ([exact(3, "3"), NEWEST], garbled("3, latest")),
        ([exact(3, "3"), garbled("x"), garbled("y")], garbled("x")),
        ([garbled("x")], garbled("x")),
    ],
)
def test_places_that_say_something_must_agree(asks: list[Ask], told: Ask) -> None:
    assert agreed(asks) == told


# --- headers -----------------------------------------------------------------------------------------------

HEADER = HeaderPlace("API-Version", NUMBER, PLAIN, sent=True)


@pytest.mark.parametrize(
    "lines, ask",
    [
        ([], ASK_SILENT),
        (["3"], exact(3, "3")),
        (["3", "3"], exact(3, "3")),
        (["3", "4"], garbled("3, 4")),
        (["3, 3"], garbled("3, 3")),
        (["latest"], NEWEST),
        (["Latest"], garbled("Latest")),
        ([""], garbled("")),
        (["03"], garbled("03")),
    ],
)
def test_a_header(lines: list[str], ask: Ask) -> None:
    assert HEADER.read(as_mapping(("api-version", line) for line in lines)) == ask


def test_a_header_is_written_once_or_not_at_all() -> None:
    assert HEADER.write(as_mapping([]), "3") == (("API-Version", "3"),)
    assert HEADER.write(as_mapping([]), None) == ()


# --- media types -------------------------------------------------------------------------------------------

VENDORS = MediaTypePlace("version", (VENDOR, "text/vnd.x+csv"), NUMBER, PLAIN, sent=True)
ANY_TYPE = MediaTypePlace("version", (), NUMBER, PLAIN, sent=True)


@pytest.mark.parametrize(
    "accept, ask",
    [
        ("", ASK_SILENT),
        ("*/*", ASK_SILENT),
        (f"{VENDOR}; version=3", exact(3, "3")),
        (f'{VENDOR.upper()};q=0.5 ;VERSION="3"', exact(3, "3")),
        (f'{VENDOR}; version="\\3"', exact(3, "3")),
        (f"text/html, {VENDOR}; version=3, */*;q=0.1", exact(3, "3")),
        (f"{VENDOR}; version=latest", NEWEST),
        (f"{VENDOR}; version=3, {VENDOR}; version=4", garbled("3, 4")),
        (f"{VENDOR}; version=3; version=4", garbled("3, 4")),
        (f"{VENDOR}; version", garbled("")),
        (f"{VENDOR}; version=", garbled("")),
        (f'{VENDOR}; version="3', garbled(f'{VENDOR}; version="3')),
        ('text/html; title="', garbled('text/html; title="')),
        (f'{VENDOR}; title="a, b; c=9\\""', ASK_SILENT),
        (f'{VENDOR}; title="a, b; version=9"', garbled(f'{VENDOR}; title="a, b; version=9"')),
        (f"{VENDOR}; q=1; version*=UTF-8''9", garbled(f"{VENDOR}; q=1; version*=UTF-8''9")),
        (f"{VENDOR}; version*0=9", garbled(f"{VENDOR}; version*0=9")),
        ("text/plain; version=0.0.4", ASK_SILENT),
        (", ,", ASK_SILENT),
    ],
)
def test_a_media_type_parameter(accept: str, ask: Ask) -> None:
    assert VENDORS.read(as_mapping([("accept", accept)])) == ask


@pytest.mark.parametrize(
    "accept, kind, ask",
    [
        ("3", ["3"], exact(3, "3")),
        ("3", ["4"], garbled("3, 4")),
        (None, ["3"], exact(3, "3")),
        (None, ['"3'], garbled(f'{VENDOR}; version="3')),
        (None, ["3", "3"], garbled(f"{VENDOR}; version=3, {VENDOR}; version=3")),
    ],
)
def test_both_headers_must_agree(accept: str | None, kind: list[str], ask: Ask) -> None:
    lines = [("content-type", f"{VENDOR}; version={text}") for text in kind]
    lines += [] if accept is None else [("accept", f"{VENDOR}; version={accept}")]

    assert VENDORS.read(as_mapping(lines)) == ask


@pytest.mark.parametrize(
    "accept, written",
    [
        (None, f"{VENDOR}; version=3"),
        ("", f"{VENDOR}; version=3"),
        (VENDOR, f"{VENDOR}; version=3"),
        (f"{VENDOR};q=0.5", f"{VENDOR}; version=3"),
        (f"{VENDOR};version=9;charset=utf-8;q=0.5", f"{VENDOR}; charset=utf-8; version=3"),
        (f"Text/HTML,{VENDOR};q=0.3", f"{VENDOR}; version=3"),
        (f"text/csv;q=0.3,{VENDOR}", f"{VENDOR}; version=3"),
        (f"{VENDOR};q=0.35,text/csv;q=0.4", "text/vnd.x+csv; version=3"),
        (f"text/csv,{VENDOR};q=1.000", "text/vnd.x+csv; version=3"),
        (f"{VENDOR};q=0,text/csv;q=0.001", "text/vnd.x+csv; version=3"),
        (f"{VENDOR};q=nonsense,text/csv;q=0.9", f"{VENDOR}; version=3"),
        ("application/json", f"{VENDOR}; version=3"),
        ("text/csv; header=present", "text/vnd.x+csv; header=present; version=3"),
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


def test_the_type_of_a_body_is_written_too() -> None:
    lines = [("accept", VENDOR), ("content-type", "application/json; charset=utf-8")]

    assert VENDORS.write(as_mapping(lines), "3") == (
        ("Accept", f"{VENDOR}; version=3"),
        ("Content-Type", f"{VENDOR}; charset=utf-8; version=3"),
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
def test_whatever_a_client_accepts_the_backend_reads_the_settled_version(
    odd: list[str], types: list[str]
) -> None:
    lines = as_mapping([*(("accept", text) for text in odd), *(("accept", text) for text in types)])

    if VENDORS.read(lines).kind is not AskKind.GARBLED:
        written = as_mapping(VENDORS.write(lines, "3"))
        assert VENDORS.read(written).version == Version(3)
        assert VENDORS.read(as_mapping(VENDORS.write(written, None))) == ASK_SILENT


def test_an_endless_list_of_types_is_not_read() -> None:
    """It would take a hundred times longer than any other request."""
    longest = ", ".join(["text/plain"] * 200)[:2000]
    assert VENDORS.read(as_mapping([("accept", longest)])) == ASK_SILENT
    assert VENDORS.read(as_mapping([("accept", longest), ("accept", longest)])).kind is AskKind.GARBLED
    assert VENDORS.read(as_mapping([("content-type", "x" * 5000)])).kind is AskKind.GARBLED


# --- queries -----------------------------------------------------------------------------------------------

QUERY = QueryPlace("api-version", NUMBER, PLAIN, sent=True)


@pytest.mark.parametrize(
    "query, ask",
    [
        ("", ASK_SILENT),
        ("a=1&b", ASK_SILENT),
        ("api-version=3", exact(3, "3")),
        ("a=1&api-version=3&b=2", exact(3, "3")),
        ("api-version=3&api-version=3", exact(3, "3")),
        ("api-version=3&API%2dVersion=4", garbled("3, 4")),
        ("Api-Version=3", exact(3, "3")),
        ("+api-version+=3", exact(3, "3")),
        ("api-version=%33", garbled("%33")),
        ("api-version", garbled("")),
        ("a=1;api-version=3", garbled("3")),
        ("api-version=3;a=1", garbled("3")),
        ("a=1;b=2&api-version=3", exact(3, "3")),
        ("xapi-version=3", ASK_SILENT),
        ("filter[api-version]=3", ASK_SILENT),
        ("api-version[]=3", garbled("3")),
        ("api-version%5B0%5D=3", garbled("3")),
        ("api-version%00x=3", garbled("3")),
        ("?api-version=3", garbled("3")),
    ],
)
def test_a_query_parameter(query: str, ask: Ask) -> None:
    assert QUERY.read("/a", query) == ask


@pytest.mark.parametrize(
    "query, written, without",
    [
        ("", "api-version=7", ""),
        ("a=%7e&b;c&&", "a=%7e&b;c&&&api-version=7", "a=%7e&b;c&&"),
        ("api-version=3", "api-version=7", ""),
        ("a=1&api-version=3&b=2", "a=1&api-version=7&b=2", "a=1&b=2"),
        ("API%2DVERSION=3&a&api-version=3", "api-version=7&a", "a"),
    ],
)
def test_it_is_written_once_and_all_else_stays(query: str, written: str, without: str) -> None:
    assert QUERY.covers("/anywhere")
    assert QUERY.write("/a", query, "7") == ("/a", written)
    assert QUERY.write("/a", query, None) == ("/a", without)


def test_a_query_of_endless_parameters_is_not_read() -> None:
    assert QUERY.read("/a", "id=1&" * 999 + "api-version=3") == exact(3, "3")
    assert QUERY.read("/a", "id=1&" * 1000 + "api-version=3").kind is AskKind.GARBLED


def test_php_has_an_underscore_for_a_dot_and_a_blank() -> None:
    place = QueryPlace("api_version", NUMBER, PLAIN, sent=True)

    assert place.read("/a", "api.version=3") == place.read("/a", "api+version=3") == garbled("3")
    assert place.read("/a", "api-version=3") == ASK_SILENT


def test_the_target_of_options_for_the_whole_server_has_no_query() -> None:
    assert not QUERY.covers("*")
    assert QUERY.write("*", "", "7") == ("*", "")


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#"), max_size=40))
def test_a_query_that_is_read_is_read_as_what_was_written(query: str) -> None:
    if QUERY.read("/", query).kind is not AskKind.GARBLED:
        _, written = QUERY.write("/", query, "7")
        assert QUERY.read("/", written) == exact(7, "7")
        assert QUERY.read("/", QUERY.write("/", written, None)[1]) == ASK_SILENT


# --- paths -------------------------------------------------------------------------------------------------

START = PathPlace("", NUMBER, V, sent=True)
BARE = PathPlace("", Words(Named(("v1beta1", "v1")), newest="newest"), PLAIN, sent=True)
BEHIND = PathPlace("/admin/api", NUMBER, PLAIN, sent=True)


@pytest.mark.parametrize(
    "path, ask",
    [
        ("/v3", exact(3, "v3")),
        ("/v3/", exact(3, "v3")),
        ("/v3/a/v4", exact(3, "v3")),
        ("/vlatest/a", NEWEST),
        ("/", ASK_SILENT),
        ("/volumes", ASK_SILENT),
        ("/v", ASK_SILENT),
        ("/x/v3", ASK_SILENT),
        ("/3/a", ASK_SILENT),
        ("*", ASK_SILENT),
        ("/a%20b", ASK_SILENT),
        ("/v03", garbled("v03")),
        ("/v3.1/a", garbled("v3.1")),
        ("/v3;a/b", garbled("v3;a")),
        ("/V3/a", garbled("V3")),
        ("/%763/a", garbled("v3")),
        ("/v%33/a", garbled("v3")),
        ("//v3/a", garbled("v3")),
        ("/;x/v3", garbled("v3")),
    ],
)
def test_a_segment_at_the_start(path: str, ask: Ask) -> None:
    assert START.read(path, "") == ask


@pytest.mark.parametrize(
    "path, ask",
    [
        ("/v1/a", Ask(AskKind.EXACT, Version(1), "v1")),
        ("/newest", Ask(AskKind.LATEST, text="newest")),
        ("/v2/a", ASK_SILENT),
        ("/apps", ASK_SILENT),
        ("/2/a", garbled("2")),
    ],
)
def test_a_name_at_the_start(path: str, ask: Ask) -> None:
    assert BARE.read(path, "") == ask


@pytest.mark.parametrize(
    "path, ask",
    [
        ("/admin/api/3/a", exact(3, "3")),
        ("/admin/api/latest", NEWEST),
        ("/admin/api", ASK_SILENT),
        ("/admin/api/", ASK_SILENT),
        ("/admin/apis/3", ASK_SILENT),
        ("/admin", ASK_SILENT),
        ("/x/admin/api/3", ASK_SILENT),
        ("/admin/api/shop.json", garbled("shop.json")),
        ("/admin/api//3", garbled("3")),
        ("/admin//api/3", garbled("3")),
        ("/Admin/API/3", garbled("3")),
        ("/%61dmin/api/3", garbled("3")),
        ("/admin;x/api/3", garbled("3")),
    ],
)
def test_a_segment_behind_a_prefix(path: str, ask: Ask) -> None:
    assert BEHIND.read(path, "") == ask


@pytest.mark.parametrize(
    "place, path, written, without",
    [
        (START, "/v3/a%2e//b", "/v7/a%2e//b", "/a%2e//b"),
        (START, "/v3", "/v7", "/"),
        (START, "/v3/", "/v7/", "/"),
        (START, "/", "/v7/", "/"),
        (START, "/volumes", "/v7/volumes", "/volumes"),
        (START, "*", "*", "*"),
        (BEHIND, "/admin/api/3/a", "/admin/api/7/a", "/admin/api/a"),
        (BEHIND, "/admin/api/3", "/admin/api/7", "/admin/api"),
        (BEHIND, "/admin/api/", "/admin/api/7/", "/admin/api/"),
        (BEHIND, "/admin/api", "/admin/api/7", "/admin/api"),
        (BEHIND, "/admin/oauth", "/admin/oauth", "/admin/oauth"),
    ],
)
def test_it_is_written_in_its_segment(place: PathPlace, path: str, written: str, without: str) -> None:
    assert place.write(path, "q", "7") == (written, "q")
    assert place.write(path, "q", None) == (without, "q")
    assert place.covers(path) == (written != path)


@given(
    st.sampled_from(["", "/admin/api"]),
    st.text("av37/%;.", max_size=12).map(lambda text: "/" + text),
    st.integers(0, 99),
)
def test_a_path_that_is_read_is_read_as_what_was_written(prefix: str, below: str, number: int) -> None:
    place, path = PathPlace(prefix, NUMBER, V, sent=True), prefix + below
    if place.read(path, "").kind is not AskKind.GARBLED:
        written, _ = place.write(path, "", str(number))
        assert place.read(written, "") == exact(number, f"v{number}")


def test_two_numbers_are_a_version_where_the_scheme_has_two() -> None:
    place = PathPlace("", Words(MajorMinor()), V, sent=True)

    assert place.read("/v1.43/info", "").version == Version(1, 43)
    assert place.read("/v1/info", "").kind is AskKind.GARBLED
