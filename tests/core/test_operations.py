"""Operations: sets of versions with open ends, paths with placeholders, and what is found for a request."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.operations import (
    NO_OPERATIONS,
    Entry,
    Extent,
    Operations,
    PathTemplate,
    Status,
    Stretch,
    segments_of,
)
from gateway.core.ranges import VersionRange, VersionSet
from gateway.core.version import CalendarDate, MajorMinor, Version, WholeNumber
from gateway.errors import PathTemplateError, VersionTextError

XY = MajorMinor()
GRID = [Version(major, minor) for major in (1, 2, 3) for minor in range(8)]


@st.composite
def stretches(draw: st.DrawFn) -> Stretch:
    low, high = sorted(draw(st.tuples(st.sampled_from(GRID), st.sampled_from(GRID))))
    return Stretch(draw(st.sampled_from([low, None])), draw(st.sampled_from([high, None])))


EXTENTS = st.lists(stretches(), max_size=4).map(Extent.of)


def extent(text: str) -> Extent:
    return Extent.read(text, XY)


# --- versions with open ends -------------------------------------------------------------------------------


@given(st.lists(stretches(), max_size=5), st.sampled_from(GRID))
def test_a_union_holds_what_any_of_them_holds(parts: list[Stretch], version: Version) -> None:
    assert (version in Extent.of(parts)) == any(version in part for part in parts)


@given(EXTENTS, EXTENTS, st.sampled_from(GRID))
def test_or_and_and_are_those_of_sets(one: Extent, other: Extent, version: Version) -> None:
    assert (version in one | other) == (version in one or version in other)
    assert (version in one & other) == (version in one and version in other)


@given(
    st.lists(stretches(), max_size=5).flatmap(lambda parts: st.tuples(st.just(parts), st.permutations(parts)))
)
def test_a_union_has_one_spelling(parts: tuple[list[Stretch], list[Stretch]]) -> None:
    first, second = map(Extent.of, parts)

    assert first == second
    assert first | first == first
    for before, after in pairwise(first.stretches):
        assert before.high is not None
        assert after.low is not None
        assert before.high.step(1) < after.low, "they would be one"


@given(EXTENTS, st.lists(st.tuples(st.sampled_from(GRID), st.integers(0, 4)), max_size=3))
def test_within_a_set_of_versions(one: Extent, ranges: list[tuple[Version, int]]) -> None:
    offer = VersionSet.of(VersionRange(low, low.step(more)) for low, more in ranges)

    assert set(one.within(offer)) == {version for version in offer if version in one}


@given(EXTENTS, st.sampled_from(GRID))
def test_what_begins_after_a_version_holds_nothing_up_to_it(one: Extent, version: Version) -> None:
    until = Extent.of([Stretch(None, version)])

    assert one.begins_after(version) == (not one & until)


@pytest.mark.parametrize(
    "text, held, not_held",
    [
        (">=1.58", ["1.58", "1.59", "2.0"], ["1.57", "1.5"]),
        ("<=2.4", ["2.4", "2.0", "1.99"], ["2.5", "3.0"]),
        ("1.1-1.58", ["1.1", "1.10", "1.58"], ["1.0", "1.59", "2.1"]),
        ("1.0-2.3", ["1.0", "1.99", "2.3"], ["2.4", "0.9"]),
        ("1.5", ["1.5"], ["1.4", "1.6"]),
        ("1.1 - 1.3 , 1.7,>= 2.0", ["1.1", "1.3", "1.7", "2.0", "9.9"], ["1.4", "1.6", "1.8"]),
    ],
)
def test_what_is_written_is_what_is_held(text: str, held: list[str], not_held: list[str]) -> None:
    found = extent(text)

    assert [each for each in held if XY.require(each) not in found] == []
    assert [each for each in not_held if XY.require(each) in found] == []


@pytest.mark.parametrize(
    "text",
    ["", ">=", "<=x", ">1.5", "<1.5", "=1.5", "1.5-1.4", "2.0-1.9", "1.5,", ",", "1.05", "1-2", "next"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(VersionTextError):
        extent(text)


@pytest.mark.parametrize(
    "text, told",
    [
        (">=2.4", "2.4 and later"),
        ("<=2.4", "2.4 and earlier"),
        ("1.0-2.3", "1.0-2.3"),
        ("1.5-1.5", "1.5"),
        ("1.3,1.1-1.2,>=1.9", "1.1-1.3, 1.9 and later"),
        ("<=1.4,>=1.5", "every version"),
    ],
)
def test_how_it_is_told(text: str, told: str) -> None:
    assert extent(text).format(XY) == told


def test_dates_and_whole_numbers() -> None:
    dates = CalendarDate()
    found = Extent.read("2020-01-01..2021-06-30", dates)

    assert dates.require("2020-12-31") in found
    assert found.format(dates) == "2020-01-01..2021-06-30"
    assert Extent.read("0-1, 3", WholeNumber()).format(WholeNumber()) == "0-1, 3"
    assert Extent().format(XY) == "no version yet"
    assert not Extent()


# --- paths -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, segments, spoken",
    [
        ("/", (), "/"),
        ("/v1/nodes", ("v1", "nodes"), "/v1/nodes"),
        ("/users/{user}/keys/{_k2}", ("users", None, "keys", None), "/users/:user/keys/:_k2"),
        ("/a,b=c/x:y/~$&'()*+,@", ("a,b=c", "x:y", "~$&'()*+,@"), "/a,b=c/x:y/~$&'()*+,@"),
    ],
)
def test_a_template(text: str, segments: tuple[str | None, ...], spoken: str) -> None:
    template = PathTemplate.read(text)

    assert (template.text, template.segments, template.spoken) == (text, segments, spoken)


@pytest.mark.parametrize(
    "text",
    [
        *("", "v1", "/v1/", "//v1", "/v1//x", "/v1/../x", "/./x", "/a b", "/a%20", "/a?b", "/a#b", "/ä"),
        *("/a;b", "/{}", "/{1a}", "/{a-b}", "/{a", "/a}", "/x{a}", "/{a}{b}", "/:user", "/{a}/{a}"),
    ],
)
def test_no_template(text: str) -> None:
    with pytest.raises(PathTemplateError):
        PathTemplate.read(text)


def test_names_do_not_make_another_path() -> None:
    assert PathTemplate.read("/users/{user}") == PathTemplate.read("/users/{name}")


@pytest.mark.parametrize(
    "path, segments",
    [
        ("/v1/nodes", ("v1", "nodes")),
        ("//v1///nodes/", ("v1", "nodes")),
        ("/v1/%6eodes", ("v1", "nodes")),
        ("/v1%2Fnodes", ("v1", "nodes")),
        ("/v1;a=b/nodes;c/;d/x%3By", ("v1", "nodes", "x")),
        ("/", ()),
        ("*", ("*",)),
        ("/%ff%zz", ("\ufffd%zz",)),
    ],
)
def test_a_path_is_read_as_servers_read_it(path: str, segments: tuple[str, ...]) -> None:
    assert segments_of(path) == segments


# --- the table ---------------------------------------------------------------------------------------------


def entry(methods: str, path: str, versions: str = ">=1.5", **more: object) -> Entry:
    held = Extent() if versions == "next" else extent(versions)
    return Entry(tuple(methods.split()), PathTemplate.read(path), held, **more)  # type: ignore[arg-type]


TABLE = Operations.of(
    [
        entry("GET POST", "/v1/nodes"),
        entry("GET", "/v1/nodes/{id}"),
        entry("GET", "/v1/nodes/detail"),
        entry("DELETE", "/v1/nodes/{id}"),
        entry("GET", "/v1/{what}/detail"),
        entry("GET", "/{a}/{b}/{c}"),
        entry("HEAD", "/v1/nodes", "<=1.3"),
        entry("GET", "/"),
    ]
)


@pytest.mark.parametrize(
    "method, path, found",
    [
        ("GET", "/v1/nodes", "GET /v1/nodes"),
        ("POST", "/v1/nodes/", "POST /v1/nodes"),
        ("PUT", "/v1/nodes", None),
        ("GET", "/v1/nodes/detail", "GET /v1/nodes/detail"),
        ("GET", "/v1/nodes/5", "GET /v1/nodes/{id}"),
        ("GET", "/v1/ports/detail", "GET /v1/{what}/detail"),
        ("GET", "/v1/ports/5", "GET /{a}/{b}/{c}"),
        ("DELETE", "/v1/nodes/detail", "DELETE /v1/nodes/{id}"),
        ("GET", "/v1/nodes/5/vifs", None),
        ("GET", "/V1/nodes", None),
        ("GET", "/", "GET /"),
        ("HEAD", "/v1/nodes", "HEAD /v1/nodes"),
        ("HEAD", "/v1/nodes/detail", "GET /v1/nodes/detail"),
    ],
)
def test_what_is_found(method: str, path: str, found: str | None) -> None:
    """A literal segment beats a placeholder, the leftmost first; HEAD follows GET unless it has its own."""
    operation = TABLE.find(method, path)

    assert (f"{operation.method} {operation.path.text}" if operation else None) == found


@given(
    st.lists(
        st.tuples(st.sampled_from(["GET", "PUT"]), st.sampled_from(["/a", "/{x}", "/{y}"]), EXTENTS),
        max_size=6,
    ),
    st.sampled_from(["GET", "PUT", "HEAD"]),
    st.sampled_from(["/a", "/b"]),
    st.sampled_from(GRID),
)
def test_entries_of_one_method_and_path_add_up(
    written: list[tuple[str, str, Extent]], method: str, path: str, version: Version
) -> None:
    table = Operations.of(Entry((verb,), PathTemplate.read(text), held) for verb, text, held in written)
    own = [(text, held) for verb, text, held in written if verb == ("GET" if method == "HEAD" else method)]
    literal = [held for text, held in own if text == path]
    meant = literal or [held for text, held in own if text != "/a"]

    found = table.find(method, path)

    assert (found is None) == (not meant)
    if found is not None:
        assert (version in found.extent) == any(version in held for held in meant)
        assert [each.versions for each in found.entries] == meant


def test_what_is_still_to_come_adds_no_version() -> None:
    table = Operations.of(
        [
            entry("GET", "/a", "1.1-1.2"),
            entry("GET", "/a", "next", status=Status.UNSTABLE),
            entry("GET", "/b", "next", refusal=400),
        ]
    )
    both, none = table.find("GET", "/a"), table.find("GET", "/b")

    assert both is not None
    assert both.extent == extent("1.1-1.2")
    assert both.format(XY) == "GET /a exists only in 1.1-1.2"
    assert none is not None
    assert (none.extent, none.refusal) == (Extent(), 400)
    assert none.format(XY) == "GET /b exists in no version yet"


def test_a_method_named_twice_is_named_once() -> None:
    (one,) = Operations.of([entry("GET GET", "/a")]).listed

    assert len(one.entries) == 1


def test_without_operations_nothing_is_found() -> None:
    assert not NO_OPERATIONS
    assert NO_OPERATIONS.find("GET", "/") is None
    assert TABLE
