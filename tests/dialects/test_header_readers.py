"""What leaves the gateway says one version to every reader: a fuzzer with readers as lenient as servers are.

A request goes out with what was settled on, or not at all. So whatever a client wrote, each reader below, be
it of WSGI, PHP, Rack, Django, Node or Java, must find that version in it and no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, unquote, unquote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.core.dialect import Bounds
from gateway.core.message import Header as Line
from gateway.core.message import as_mapping
from gateway.core.negotiation import settle
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from gateway.dialects._header_options import HeaderOptions, PlaceOptions
from gateway.dialects._header_telling_options import LearnOptions
from gateway.dialects.header import Header

OFFER: Final = Bounds(VersionSet.between(Version(1), Version(5)))
LEARN: Final = LearnOptions(path="/told", minimum="$.low", maximum="$.high")
VENDOR: Final = "application/vnd.x+json"


def dialect(*places: PlaceOptions, silence: str = "minimum") -> Header:
    return Header.configured(HeaderOptions(places=places, learn=LEARN, silence=silence, newest="latest"))


def sent(spoken: Header, target: str, lines: list[Line]) -> tuple[str, str, tuple[Line, ...]] | None:
    """The version in its spelling, the target and the owned lines as a backend gets them; None: refused."""
    path, _, query = target.partition("?")
    place = spoken.place("GET", path, query)
    headers = as_mapping([(name.lower(), value) for name, value in lines])
    if not place.negotiated:
        return None
    ask = spoken.read_ask(place, headers)
    settled = settle(ask, OFFER, spoken.silence)
    if not isinstance(settled, Version):
        return None
    written = spoken.write_request(place, settled, ask, silent=False, headers=headers)
    return spoken.scheme.format(settled), spoken.write_target(place, target, settled), written


# --- queries -----------------------------------------------------------------------------------------------


def php(query: str) -> Iterator[tuple[str, str]]:
    for part in query.split("&"):
        name, _, value = part.partition("=")
        plain = unquote_plus(name).lstrip(" ").partition("\0")[0].partition("[")[0]
        yield plain.replace(".", "_").replace(" ", "_"), unquote_plus(value)


QUERY_READERS: Final[dict[str, Callable[[str], Iterator[tuple[str, str]] | list[tuple[str, str]]]]] = {
    "WSGI": lambda query: parse_qsl(query, keep_blank_values=True),
    "with semicolons": lambda query: parse_qsl(query.replace(";", "&"), keep_blank_values=True),
    "Rack": lambda query: [
        (name.partition("[")[0], value)
        for name, value in parse_qsl(query.replace(";", "&"), keep_blank_values=True)
    ],
    "Node": lambda query: [
        (name.partition("[")[0], value)
        for name, value in parse_qsl(query.removeprefix("?"), keep_blank_values=True)
    ],
    "PHP": php,
    "without case": lambda query: [
        (name.strip().lower(), value.strip()) for name, value in parse_qsl(query, keep_blank_values=True)
    ],
}

NAMES: Final = (
    *(
        "version",
        "VERSION",
        "v%65rsion",
        "version[]",
        "version%5B0%5D",
        "version%00",
        "version%00x",
        "?version",
    ),
    *("+version", "version+", "%20version", "a", "api", "ver.sion", "ver_sion", "ver%20sion", "vers%C4%B1on"),
    *("ver%C5%BFion", "version%09", "a;version", "version;a", "ver-sion"),
)
VALUES: Final = (
    "1",
    "3",
    "5",
    "9",
    "03",
    "%33",
    "",
    "3;4",
    "latest",
    "3%00",
    "3=4",
    "3?version=4",
    "%E2%81%B3",
)


@st.composite
def queries(draw: st.DrawFn) -> str:
    pairs = draw(
        st.lists(
            st.tuples(st.sampled_from(NAMES), st.sampled_from(("=", "")), st.sampled_from(VALUES)), max_size=4
        )
    )
    return "".join("".join(each) + draw(st.sampled_from(("&", "&", ";", "&&"))) for each in pairs)


@pytest.mark.parametrize("name", ["version", "ver_sion"])
def test_a_query_says_one_version_to_every_reader(name: str) -> None:
    spoken = dialect(PlaceOptions(query=name))
    forwarded: set[str] = set()

    @given(queries())
    def holds(query: str) -> None:
        if (request := sent(spoken, f"/a?{query}", [])) is None:
            return
        version, target, _ = request
        forwarded.add(query)
        leaves = target.partition("?")[2]
        for reader, read in QUERY_READERS.items():
            found = {value for each, value in read(leaves) if each == name}
            assert found == {version}, f"{reader} reads {found} in {leaves!r}"

    holds()
    assert forwarded, "all were refused"


# --- media types -------------------------------------------------------------------------------------------


def quoted_split(text: str, separator: str) -> list[str]:
    """Outside quotation marks only, as RFC 9110 has it."""
    return re.findall(rf'((?:"(?:\\.|[^"\\])*"|[^{separator}"])*)(?:{separator}|$)', text)


def blind_split(text: str, separator: str) -> list[str]:
    """As most frameworks do."""
    return text.split(separator)


def parameters(element: str, split: Callable[[str, str], list[str]], *, extended: bool) -> Iterator[str]:
    """Values of `version`, the last of which counts for most; `extended`: `version*=` is one, too."""
    for part in split(element, ";")[1:]:
        name, _, value = part.partition("=")
        name = name.strip().strip("\"'").lower()
        if extended:
            name, star, _ = name.partition("*")
            value = value.rpartition("'")[2] if star else value
        if name == "version":
            yield value.strip().strip('"')


PIECES: Final = (
    *("; version=1", ";VERSION=3", '; version="3"', "; version = 3", "; version=9", "; version*=UTF-8''9"),
    *(
        "; version*0=9",
        '; x="',
        '"',
        '; x="a, application/json; version=9, b"',
        '; x="; version=9"',
        "; q=0.5",
    ),
    *(
        ", text/html",
        ", application/json",
        f", {VENDOR}",
        ', a/b; c="d\\"; version=9; e="',
        "; version",
        ";;",
        ",",
    ),
    *(
        "; 'version=9'",
        '; "version=9"',
        "; charset=utf-8",
        "; q=1; version*=UTF-8''9",
        "\\",
        "; version=latest",
    ),
)


@st.composite
def media_types(draw: st.DrawFn) -> str:
    start = draw(st.sampled_from(("application/json", VENDOR, "*/*", "application/*", "")))
    return start + "".join(draw(st.lists(st.sampled_from(PIECES), max_size=4)))


@pytest.mark.parametrize("types", [(), (VENDOR,)])
def test_media_types_say_one_version_to_every_reader(types: tuple[str, ...]) -> None:
    spoken = dialect(PlaceOptions(parameter="version", media_types=types))
    forwarded: set[tuple[str | None, str | None]] = set()

    @given(st.none() | media_types(), st.none() | media_types())
    def holds(accept: str | None, kind: str | None) -> None:
        lines = [
            (name, text) for name, text in (("Accept", accept), ("Content-Type", kind)) if text is not None
        ]
        if (request := sent(spoken, "/a", lines)) is None:
            return
        version, _, written = request
        forwarded.add((accept, kind))
        assert len({name for name, _ in written}) == len(written)
        for split in (quoted_split, blind_split):
            for extended in (False, True):
                found = {
                    value
                    for name, text in written
                    for element in (split(text, ",") if name == "Accept" else [text])
                    if not types or element.partition(";")[0].strip().lower() in types
                    for value in parameters(element, split, extended=extended)
                }
                assert found == {version}, f"{split.__name__} reads {found} in {written}"

    holds()
    assert forwarded, "all were refused"


# --- paths -------------------------------------------------------------------------------------------------


def tidy(path: str) -> str:
    """As a server in Java does: no path parameters, escapes decoded, no empty segments."""
    return re.sub("//+", "/", "/".join(unquote(part.partition(";")[0]) for part in path.split("/")))


PATH_READERS: Final[dict[str, Callable[[str], str]]] = {
    "to the byte": str,
    "decoded": unquote,
    "merging slashes": lambda path: re.sub("//+", "/", unquote(path)),
    "Java": tidy,
    "without case": lambda path: tidy(path).lower(),
}
SEGMENTS: Final = (
    *(
        "v1",
        "v3",
        "V3",
        "v9",
        "%763",
        "v%33",
        "v03",
        "v3;a=b",
        ";",
        ";v9",
        "",
        "v",
        "volumes",
        "vlatest",
        "api",
    ),
    *("API", "%61pi", "api;x", "v3%3Bv9", "v3%20", "a.v9", "v-9", "v9999999", "v٣"),
)


@pytest.mark.parametrize("prefix", ["", "/api"])
def test_a_path_says_one_version_to_every_reader(prefix: str) -> None:
    spoken = dialect(PlaceOptions(path=prefix + "/v{version}"))
    forwarded: set[str] = set()
    looks_like_one = re.compile(re.escape(prefix) + r"/v([0-9]+)(?=/|$)")

    @given(st.sampled_from((prefix, "")), st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=4))
    def holds(start: str, segments: list[str]) -> None:
        if (request := sent(spoken, start + "/" + "/".join(segments), [])) is None:
            return
        version, target, _ = request
        forwarded.add(target)
        for reader, read in PATH_READERS.items():
            found = looks_like_one.match(read(target))
            assert found is not None, f"{reader} reads none in {target!r}"
            assert found[1] == version, f"{reader} reads {found[1]} in {target!r}"

    holds()
    assert forwarded, "all were refused"


# --- several places ----------------------------------------------------------------------------------------

EVERYWHERE: Final = (
    PlaceOptions(header="API-Version"),
    PlaceOptions(query="version"),
    PlaceOptions(path="/v{version}"),
    PlaceOptions(parameter="version"),
)


@given(
    st.sets(st.integers(0, 3), min_size=1),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("1", "3", "9", "latest"))), max_size=4),
)
def test_every_place_says_the_same_and_one_that_is_not_sent_says_nothing(
    unsent: set[int], said: list[tuple[int, str]]
) -> None:
    assume(len(unsent) < len(EVERYWHERE))
    spoken = dialect(*(replace(each, sent=at not in unsent) for at, each in enumerate(EVERYWHERE)))
    by_place = dict(said)
    target = (f"/v{by_place[2]}" if 2 in by_place else "") + "/a"
    target += f"?version={by_place[1]}" if 1 in by_place else ""
    lines = [("API-Version", by_place[0])] if 0 in by_place else []
    lines += [("Accept", f"a/b; version={by_place[3]}")] if 3 in by_place else []

    request = sent(spoken, target, lines)
    if len(set(by_place.values())) > 1 or "9" in by_place.values():
        assert request is None or set(by_place.values()) == {"5", "latest"}
        return
    assert request is not None
    version, leaves, written = request
    assert {version} >= set(by_place.values()) - {"latest"}
    path, _, query = leaves.partition("?")
    headers = dict(written)
    accept = re.search("; version=(.*)", headers.get("Accept", ""))
    found = [headers.get("API-Version"), dict(parse_qsl(query)).get("version")]
    found += [path.split("/")[1][1:] if path != "/a" else None, accept[1] if accept else None]
    assert found == [None if at in unsent else version for at in range(4)]
    assert path.endswith("/a")
