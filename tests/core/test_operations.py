"""Operations: paths with placeholders, and which operation a request is for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.operations import (
    NO_OPERATIONS,
    OperationRule,
    Operations,
    OperationStatus,
    PathTemplate,
    segments_of,
)
from gateway.core.versions.ranges import NEWEST, OLDEST, VersionRange, VersionSet
from gateway.core.versions.version import MajorMinor, Version
from gateway.errors import TextRefused

XY = MajorMinor()
GRID = [Version(major, minor) for major in (1, 2, 3) for minor in range(8)]


@st.composite
def version_ranges(draw: st.DrawFn) -> VersionRange:
    low, high = sorted(draw(st.tuples(st.sampled_from(GRID), st.sampled_from(GRID))))
    return VersionRange(draw(st.sampled_from([low, OLDEST])), draw(st.sampled_from([high, NEWEST])))


VERSIONS = st.lists(version_ranges(), max_size=4).map(VersionSet.of)


# --- paths -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, segments, rfc041_text",
    [
        ("/", (), "/"),
        ("/v1/nodes", ("v1", "nodes"), "/v1/nodes"),
        ("/users/{user}/keys/{_k2}", ("users", None, "keys", None), "/users/:user/keys/:_k2"),
        ("/a,b=c/x:y/~$&'()*+,@", ("a,b=c", "x:y", "~$&'()*+,@"), "/a,b=c/x:y/~$&'()*+,@"),
    ],
)
def test_a_template(text: str, segments: tuple[str | None, ...], rfc041_text: str) -> None:
    template = PathTemplate.read(text)

    assert (template.text, template.segments, template.rfc041_text) == (text, segments, rfc041_text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "v1", "/v1/", "//v1", "/v1//x", "/v1/../x", "/./x", "/a b", "/a%20", "/a?b", "/a#b", "/ä"),
        *("/a;b", "/{}", "/{1a}", "/{a-b}", "/{a", "/a}", "/x{a}", "/{a}{b}", "/:user", "/{a}/{a}"),
    ],
)
def test_no_template(text: str) -> None:
    with pytest.raises(TextRefused):
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


def rule(methods: str, path: str, versions: str = ">=1.5", **more: object) -> OperationRule:
    exists = VersionSet() if versions == "next" else VersionSet.read_open(versions, XY)
    return OperationRule(tuple(methods.split()), PathTemplate.read(path), exists, **more)  # type: ignore[arg-type]


TABLE = Operations.of(
    [
        rule("GET POST", "/v1/nodes"),
        rule("GET", "/v1/nodes/{id}"),
        rule("GET", "/v1/nodes/detail"),
        rule("DELETE", "/v1/nodes/{id}"),
        rule("GET", "/v1/{what}/detail"),
        rule("GET", "/{a}/{b}/{c}"),
        rule("HEAD", "/v1/nodes", "<=1.3"),
        rule("GET", "/"),
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
        st.tuples(st.sampled_from(["GET", "PUT"]), st.sampled_from(["/a", "/{x}", "/{y}"]), VERSIONS),
        max_size=6,
    ),
    st.sampled_from(["GET", "PUT", "HEAD"]),
    st.sampled_from(["/a", "/b"]),
    st.sampled_from(GRID),
)
def test_rules_of_one_method_and_path_add_up(
    written: list[tuple[str, str, VersionSet]], method: str, path: str, version: Version
) -> None:
    table = Operations.of(
        OperationRule((verb,), PathTemplate.read(text), held) for verb, text, held in written
    )
    own = [(text, held) for verb, text, held in written if verb == ("GET" if method == "HEAD" else method)]
    literal = [held for text, held in own if text == path]
    meant = literal or [held for text, held in own if text != "/a"]

    found = table.find(method, path)

    assert (found is None) == (not meant)
    if found is not None:
        assert (version in found.versions) == any(version in held for held in meant)
        assert [one.versions for one in found.rules] == meant


def test_what_is_still_to_come_adds_no_version() -> None:
    table = Operations.of(
        [
            rule("GET", "/a", "1.1-1.2"),
            rule("GET", "/a", "next", status=OperationStatus.UNSTABLE),
            rule("GET", "/b", "next", refusal=400),
        ]
    )
    both, none = table.find("GET", "/a"), table.find("GET", "/b")

    assert both is not None
    assert both.versions == VersionSet.read("1.1-1.2", XY)
    assert both.format(XY) == "GET /a exists only in 1.1-1.2"
    assert none is not None
    assert (none.versions, none.refusal) == (VersionSet(), 400)
    assert none.format(XY) == "GET /b exists in no version yet"


def test_a_method_named_twice_is_named_once() -> None:
    (one,) = Operations.of([rule("GET GET", "/a")]).listed

    assert len(one.rules) == 1


def test_without_operations_nothing_is_found() -> None:
    assert not NO_OPERATIONS
    assert NO_OPERATIONS.find("GET", "/") is None
    assert TABLE
