"""Every reader finds the same version in a forwarded request: a fuzzer with readers as lenient as servers.

A request is forwarded with the negotiated version, or it is refused. So whatever a client wrote, each reader
below (of WSGI, PHP, Rack, Django, Node, Java) must find that version in it and no other.
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

from gateway.core.decision.negotiation import negotiate
from gateway.core.http.message import Header as Line
from gateway.core.http.message import as_mapping
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.custom.dialect import Custom
from gateway.dialects.custom.options import CustomOptions, LearnOptions, LocationOptions

OFFER: Final = VersionSet.between(Version(1), Version(5))
LEARN: Final = LearnOptions(path="/versions", minimum="$.low", maximum="$.high")
VENDOR: Final = "application/vnd.x+json"


def custom(*places: LocationOptions) -> Custom:
    return Custom.configured(CustomOptions(places=places, learn=LEARN, newest="latest"))


def forwarded(dialect: Custom, target: str, lines: list[Line]) -> tuple[str, str, tuple[Line, ...]] | None:
    """The negotiated version as text; the target and the owned lines that a backend gets. None: refused."""
    path, _, query = target.partition("?")
    endpoint = dialect.endpoint("GET", path, query)
    headers = as_mapping([(name.lower(), value) for name, value in lines])
    if not endpoint.negotiated:
        return None
    requested = dialect.read_requested(endpoint, headers)
    negotiated = negotiate(requested, OFFER, dialect.default_version)
    if not isinstance(negotiated, Version):
        return None
    written = dialect.write_request(endpoint, negotiated, headers)
    return dialect.scheme.format(negotiated), dialect.write_target(endpoint, target, negotiated), written


# --- queries -----------------------------------------------------------------------------------------------


def php(query: str) -> Iterator[tuple[str, str]]:
    for part in query.split("&"):
        name, _, value = part.partition("=")
        plain = unquote_plus(name).lstrip(" ").partition("\0")[0]
        before, bracket, rest = plain.partition("[")
        if bracket and (not before or "]" not in rest):  # only a closed bracket behind a name is an index
            before = f"{before}_{rest}"
        yield before.replace(".", "_").replace(" ", "_"), unquote_plus(value)


def rack(query: str) -> Iterator[tuple[str, str]]:
    for name, value in parse_qsl(query.replace(";", "&"), keep_blank_values=True):
        found = re.match(r"[\[\]]*([^\[\]]+)\]*", name)  # as Rack 2
        yield found[1] if found else "", value


QUERY_READERS: Final[dict[str, Callable[[str], Iterator[tuple[str, str]] | list[tuple[str, str]]]]] = {
    "WSGI": lambda query: parse_qsl(query, keep_blank_values=True),
    "with semicolons": lambda query: parse_qsl(query.replace(";", "&"), keep_blank_values=True),
    "Rack": rack,
    "Node": lambda query: [
        (next(filter(None, re.split(r"[\[\]]+", name)), ""), value)
        for name, value in parse_qsl(query.removeprefix("?"), keep_blank_values=True)
    ],
    "PHP": php,
    "without case": lambda query: [
        (name.strip().lower(), value.strip()) for name, value in parse_qsl(query, keep_blank_values=True)
    ],
    "decoding twice": lambda query: [
        (unquote_plus(name), unquote_plus(value)) for name, value in parse_qsl(query, keep_blank_values=True)
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
    *(
        "[version]",
        "%5bversion",
        "version]x",
        "[]version",
        "ver[sion",
        "ver%5Bsion",
        "[version][x]",
        "]version",
    ),
    *("v%2565rsion", "version%00[x", "_version", "version."),
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
def test_every_reader_finds_the_same_version_in_a_query(name: str) -> None:
    dialect = custom(LocationOptions(query=name))
    seen: set[str] = set()

    @given(queries())
    def holds(query: str) -> None:
        if (request := forwarded(dialect, f"/a?{query}", [])) is None:
            return
        version, target, _ = request
        seen.add(query)
        sent = target.partition("?")[2]
        for reader, read in QUERY_READERS.items():
            found = {value for found_name, value in read(sent) if found_name == name}
            assert found == {version}, f"{reader} reads {found} in {sent!r}"

    holds()
    assert seen, "every request was refused"


# --- media types -------------------------------------------------------------------------------------------


def quoted_split(text: str, separator: str) -> list[str]:
    """Split outside quotation marks only, as RFC 9110 requires."""
    return re.findall(rf'((?:"(?:\\.|[^"\\])*"|[^{separator}"])*)(?:{separator}|$)', text)


def blind_split(text: str, separator: str) -> list[str]:
    """Split as most frameworks do."""
    return text.split(separator)


def parameters(element: str, split: Callable[[str, str], list[str]], *, extended: bool) -> Iterator[str]:
    """Every value of `version`. Most readers take the last one. `extended`: `version*=` is one, too."""
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
    *(";\xa0version=9", "; version\x85=9", '; x="a, b"', '; x="a;b"', "; x=y", ", *;q=.2", "; .version=9"),
)


@st.composite
def media_types(draw: st.DrawFn) -> str:
    start = draw(st.sampled_from(("application/json", VENDOR, "*/*", "application/*", "")))
    return start + "".join(draw(st.lists(st.sampled_from(PIECES), max_size=4)))


@pytest.mark.parametrize("types", [(), (VENDOR,)])
def test_every_reader_finds_the_same_version_in_media_types(types: tuple[str, ...]) -> None:
    dialect = custom(LocationOptions(parameter="version", media_types=types))
    seen: set[tuple[str | None, str | None]] = set()

    @given(st.none() | media_types(), st.none() | media_types())
    def holds(accept: str | None, kind: str | None) -> None:
        lines = [
            (name, text) for name, text in (("Accept", accept), ("Content-Type", kind)) if text is not None
        ]
        if (request := forwarded(dialect, "/a", lines)) is None:
            return
        version, _, written = request
        seen.add((accept, kind))
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
    assert seen, "every request was refused"


# --- paths -------------------------------------------------------------------------------------------------


def tidy(path: str) -> str:
    """As a Java server reads it: no path parameters, escapes decoded, no empty segments."""
    return re.sub("//+", "/", "/".join(unquote(part.partition(";")[0]) for part in path.split("/")))


PATH_READERS: Final[dict[str, Callable[[str], str]]] = {
    "to the byte": str,
    "decoded": unquote,
    "merging slashes": lambda path: re.sub("//+", "/", unquote(path)),
    "Java": tidy,
    "without case": lambda path: tidy(path).lower(),
    "without case as Unicode has it": lambda path: tidy(path).casefold(),
    "Django": lambda path: re.sub("(?i)^/api", "/api", unquote(path)),
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
    *("ap%C4%B1", "AP%C4%B0", "%41p%69"),
)


@pytest.mark.parametrize("prefix", ["", "/api"])
def test_every_reader_finds_the_same_version_in_a_path(prefix: str) -> None:
    dialect = custom(LocationOptions(path=prefix + "/v{version}"))
    seen: set[str] = set()
    version_segment = re.compile(re.escape(prefix) + r"/v([0-9]+)(?=/|$)")

    @given(st.sampled_from((prefix, "")), st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=4))
    def holds(start: str, segments: list[str]) -> None:
        path = start + "/" + "/".join(segments)
        version, target = None, path
        if dialect.endpoint("GET", path, "").negotiated:
            if (request := forwarded(dialect, path, [])) is None:
                return
            version, target, _ = request
            seen.add(target)
        for reader, read in PATH_READERS.items():
            if not read(target).startswith(prefix + "/"):
                continue  # this server has no such path
            found = version_segment.match(read(target))
            assert version is not None, f"{reader} knows {target!r}, which was not negotiated"
            assert found is not None, f"{reader} reads none in {target!r}"
            assert found[1] == version, f"{reader} reads {found[1]} in {target!r}"

    holds()
    assert seen, "every request was refused"


# --- several locations -------------------------------------------------------------------------------------

EVERYWHERE: Final = (
    LocationOptions(header="API-Version"),
    LocationOptions(query="version"),
    LocationOptions(path="/v{version}"),
    LocationOptions(parameter="version"),
)


@given(
    st.sets(st.integers(0, 3), min_size=1),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("1", "3", "9", "latest"))), max_size=4),
)
def test_every_sent_location_holds_the_same_version_and_the_others_hold_none(
    unsent: set[int], pairs: list[tuple[int, str]]
) -> None:
    assume(len(unsent) < len(EVERYWHERE))
    dialect = custom(*(replace(place, sent=at not in unsent) for at, place in enumerate(EVERYWHERE)))
    texts = dict(pairs)
    target = (f"/v{texts[2]}" if 2 in texts else "") + "/a"
    target += f"?version={texts[1]}" if 1 in texts else ""
    lines = [("API-Version", texts[0])] if 0 in texts else []
    lines += [("Accept", f"a/b; version={texts[3]}")] if 3 in texts else []

    request = forwarded(dialect, target, lines)
    if len(set(texts.values())) > 1 or "9" in texts.values():
        assert request is None or set(texts.values()) == {"5", "latest"}
        return
    assert request is not None
    version, sent, written = request
    assert {version} >= set(texts.values()) - {"latest"}
    path, _, query = sent.partition("?")
    headers = dict(written)
    accept = re.search("; version=(.*)", headers.get("Accept", ""))
    found = [headers.get("API-Version"), dict(parse_qsl(query)).get("version")]
    found += [path.split("/")[1][1:] if path != "/a" else None, accept[1] if accept else None]
    assert found == [None if at in unsent else version for at in range(4)]
    assert path.endswith("/a")
