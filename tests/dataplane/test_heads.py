"""Heads: any bytes are read or refused, and what is read is read as llhttp reads it.

A third reader is `read_fields`, which accepts a line only if it is exactly one field."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import contextlib

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.fleet.limits import Limits
from gateway.core.http.message import METHODS, fields_named, normalize_name
from gateway.dataplane.http1.fields import HEAD_END
from gateway.dataplane.http1.names import (
    DROP,
    FORWARDED_FOR,
    HOST,
    MAX_CACHED_NAME_SIZE,
    MAX_CACHED_NAMES,
    SELECTED,
    NameTable,
)
from gateway.dataplane.http1.request_head import RequestHead, read_request_head
from gateway.dataplane.http1.response_head import ResponseHead, read_response_head
from gateway.errors import FramingError
from tests.dataplane.damages import damaged
from tests.kit.messages import STANDARD_FIELD, VERSION_FIELD, read_fields, request, response

OWNED = frozenset({normalize_name(VERSION_FIELD), normalize_name(STANDARD_FIELD)})
REQUESTS = NameTable.for_requests(OWNED)
RESPONSES = NameTable.for_responses(frozenset({normalize_name(VERSION_FIELD), "vary"}))
STATUSES = {400, 405, 414, 417, 431, 501, 505, 508}


class Llhttp:
    """The callbacks of llhttp: they note what it reads of a head."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, str]] = []
        self.url = b""
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.decode(), value.decode("latin-1").rstrip(" \t")))

    def on_headers_complete(self) -> None:
        self.complete = True


def feed(parser: httptools.HttpRequestParser | httptools.HttpResponseParser, head: bytes) -> None:
    with contextlib.suppress(httptools.HttpParserUpgrade):
        parser.feed_data(head)


def read_request(head: bytes) -> RequestHead | FramingError:
    try:
        return read_request_head(head, REQUESTS, Limits())
    except FramingError as error:
        return error


def read_response(head: bytes, *, to_head: bool = False) -> ResponseHead | FramingError:
    try:
        return read_response_head(head, RESPONSES, is_head_request=to_head)
    except FramingError as error:
        return error


REQUEST = request(
    "POST",
    "/v1/nodes?a=b",
    "Content-Length: 5",
    "Connection: x-upstream, keep-alive",
    "X-Hop: 1",
    f"{VERSION_FIELD}: 1.10",
    "Via: 1.0 a",
)
RESPONSE = response(
    200,
    "Content-Type: application/json",
    f"{VERSION_FIELD}: 1.10",
    "Vary: Accept",
    "Location: /x",
    "Connection: x-hop",
    body=b"",
)
BYTES = st.binary(max_size=300).map(lambda data: (data + HEAD_END)[: (data + HEAD_END).index(HEAD_END) + 4])


@given(damaged(REQUEST) | BYTES)
@example(request("GET", "/", "Connection: " + "a" * 8000))
@example(request("GET", "/", "Connection: ^, [, ], \\, (, *, -, _, |"))
@example(request("GET", "/", "Connection: \xe4\xf6, \xff"))
@example(b"\r\n\r\n")
def test_S10_any_request_head_is_refused_or_read_as_llhttp_reads_it(head: bytes) -> None:
    read = read_request(head)
    if isinstance(read, FramingError):
        assert read.status in STATUSES
        return
    method = head[: head.index(b" ")]
    assert read.method.encode() == method
    if read.method not in METHODS:  # llhttp refuses methods that it does not know
        head = head.replace(method, b"PUT", 1)
    callbacks = Llhttp()
    parser = httptools.HttpRequestParser(callbacks)
    feed(parser, head)
    assert callbacks.complete
    assert callbacks.fields == read_fields(head)
    assert parser.get_method() == head[: head.index(b" ")]
    assert parser.get_http_version() == f"1.{read.minor}"
    assert callbacks.url.endswith(read.target)
    assert read.target == f"{read.path}{'?' if b'?' in read.target else ''}{read.query}".encode()
    hosts = [value for name, value in callbacks.fields if name.lower() == "host"]
    assert len(hosts) == 1 or (read.minor == 0 and not hosts)
    owned = [(normalize_name(name), value) for name, value in callbacks.fields if name.lower() in OWNED]
    assert [field for field in read.fields if field in owned] == owned


@given(damaged(RESPONSE) | BYTES)
@example(response(200, "Connection: " + "a" * 8000))
@example(b"\r\n\r\n")
@example(b"HTTP/1.1 200 OK\r\nX: a\r\n\tb\r\n\r\n")
@example(b"HTTP/1.1 200 OK\r\nX : a\r\n\r\n")
def test_B15_any_response_head_is_refused_or_read_as_llhttp_reads_it(head: bytes) -> None:
    read = read_response(head)
    if isinstance(read, FramingError):
        return
    fields = read_fields(head)  # asserts that every line is exactly one field
    callbacks = Llhttp()
    parser = httptools.HttpResponseParser(callbacks)
    feed(parser, head)
    assert callbacks.complete
    assert callbacks.fields == fields
    assert parser.get_status_code() == read.status
    assert 100 <= read.status <= 599
    lengths = [value for name, value in fields if name.lower() == "content-length"]
    assert len(lengths) <= 1
    assert read.length == (int(lengths[0]) if lengths else -1)


def test_other_content_makes_another_response_head() -> None:
    read = read_response(response(200, "ETag: x", "Location: /x", f"{VERSION_FIELD}: 1.10", body=b"12"))
    assert isinstance(read, ResponseHead)
    other = read.with_content(7, b"\r\nX: y")

    assert (read.length, other.length, other.passthrough) == (2, 7, b"\r\nX: y")
    assert b"ETag" in read.passthrough
    for name in ("status", "line", "location", "selected", "selected_fields", "close", "framing"):
        assert getattr(other, name) == getattr(read, name), name


@pytest.mark.parametrize("method", METHODS)
def test_known_methods_are_known_to_llhttp(method: str) -> None:
    assert isinstance(read_request(request(method)), RequestHead)


# --- names -------------------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(OWNED)), st.data())
def test_V4_every_spelling_of_an_owned_name_is_found_and_only_the_real_one_is_read(
    name: str, data: st.DataObject
) -> None:
    spelling = "".join(
        data.draw(st.sampled_from([letter.lower(), letter.upper()] if letter != "-" else ["-", "_"]))
        for letter in name
    )
    found = REQUESTS.pattern.findall(f"GET / HTTP/1.1\r\nHost: x\r\n{spelling}:  1.5 \r\n\r\n".encode())

    assert (spelling.encode(), b"1.5 ") in found
    assert REQUESTS.kind(spelling.encode()) == (DROP if "_" in spelling else SELECTED)


def test_names_that_only_begin_alike_are_not_matched() -> None:
    head = b"GET / HTTP/1.1\r\nHosts: a\r\nX-Host: b\r\nViaduct: c\r\nTEa: d\r\nX: Host: e\r\n\r\n"

    assert not REQUESTS.pattern.search(head)


def test_the_table_of_spellings_is_bounded() -> None:
    table = NameTable.for_requests(OWNED)
    for number in range(2**14):
        spelling = "".join(
            letter.upper() if number >> bit & 1 else letter for bit, letter in enumerate("transfer-encoding")
        )
        assert table.kind(spelling.encode()) == table.kind(b"transfer-encoding")

    assert len(table._by_spelling) <= MAX_CACHED_NAMES


NAMES = st.from_regex(r"[a-cx-z][a-cx-z-]{0,5}", fullmatch=True)


@given(st.sets(NAMES, min_size=1, max_size=20), NAMES, st.sampled_from("!#$%&'*+.^_`|~"))
def test_a_pattern_finds_exactly_the_names_that_it_was_made_of(
    listed: set[str], name: str, separator: str
) -> None:
    pattern = fields_named(listed)

    assert bool(pattern.search(f"X\r\n{name}: v\r\n".encode())) == (name in listed)
    alias = name.upper().replace("-", separator)
    assert bool(pattern.search(f"X\r\n{alias}: v\r\n".encode())) == (name in listed)


def test_host_is_not_selected_for_dialects() -> None:
    assert REQUESTS.kind(b"HOST") == HOST


@pytest.mark.parametrize("table", [REQUESTS, RESPONSES], ids=["request", "response"])
@pytest.mark.parametrize("separator", "!#$%&'*+.^`|~")
def test_R_A6_an_alias_with_any_separator_is_found_and_dropped(table: NameTable, separator: str) -> None:
    for position in range(VERSION_FIELD.count("-")):
        parts = VERSION_FIELD.split("-")
        alias = "-".join(parts[: position + 1]) + separator + "-".join(parts[position + 1 :])
        found = table.pattern.findall(f"GET / HTTP/1.1\r\nHost: x\r\n{alias}: 1.5\r\n\r\n".encode())

        assert (alias.encode(), b"1.5") in found
        assert table.kind(alias.encode()) == DROP


def test_R_A6_a_name_listed_in_connection_removes_its_aliases() -> None:
    read = read_request(request("GET", "/", "Connection: x-hop", "X.Hop: 1", "X-Hop: 2", "X-Hope: 3"))

    assert not isinstance(read, FramingError)
    assert read.passthrough == b"\r\nX-Hope: 3"


BEGINNINGS = st.from_regex(r"[a-cx-z][a-cx-z-]{0,3}\*", fullmatch=True)


@given(st.sets(NAMES | BEGINNINGS, min_size=1, max_size=12), NAMES, st.sampled_from("!#$%&'*+-.^_`|~"))
def test_R_B10_a_pattern_finds_exactly_the_names_that_begin_as_listed(
    listed: set[str], name: str, separator: str
) -> None:
    head = f"X\r\n{name.upper().replace('-', separator)}: v\r\n".encode()
    covered = name in listed or any(
        each[-1] == "*" and name.startswith(each.removesuffix("*")) for each in listed
    )

    assert bool(fields_named(listed).search(head)) == covered


def test_R_B10_a_name_that_has_a_use_keeps_it_under_a_common_beginning() -> None:
    table = NameTable.for_requests(
        frozenset({"x-forwarded-version"}), dropped=("X-Forwarded-*", "X-Real-IP", "x-other")
    )
    lines = (
        "X-Forwarded-Version: 1",
        "X-Forwarded-For: 2",
        "X-Forwarded-User: 3",
        "X-REAL-IP: 4",
        "X_Other: 5",
    )
    found = table.pattern.findall(request("GET", "/", *lines, "X-Others: 6", "X-Forwarded: 7"))

    assert [(table.kind(name), value) for name, value in found] == [
        (HOST, b"api.example"),
        (SELECTED, b"1"),
        (FORWARDED_FOR, b"2"),
        (DROP, b"3"),
        (DROP, b"4"),
        (DROP, b"5"),
    ]


def test_R_B10_the_table_of_spellings_keeps_no_long_names() -> None:
    """A peer chooses what follows a common beginning, up to the length of a line."""
    table = NameTable.for_requests(OWNED, dropped=("X-Forwarded-*",))
    for number in range(2000):
        assert table.kind(b"X-Forwarded-%d-" % number + b"x" * 4000) == DROP
        assert table.kind(b"X-Forwarded-%d" % number) == DROP

    assert len(table._by_spelling) <= MAX_CACHED_NAMES
    assert max(map(len, table._by_spelling)) <= MAX_CACHED_NAME_SIZE


@pytest.mark.parametrize(
    "lines,found",
    [
        ([], b""),
        (["User-Agent: curl/8.0"], b" curl/8.0"),
        (["Accept: user-agent: no", "uSER-aGENT:x", "Accept-Language: en"], b"x"),
        (["User-Agent: first", "User-Agent: second"], b" first"),
    ],
)
def test_the_user_agent_is_found_among_the_fields_that_pass_on(lines: list[str], found: bytes) -> None:
    head = "\r\n".join(["GET / HTTP/1.1", "Host: a", *lines, "", ""]).encode()
    table = NameTable.for_requests(frozenset(), frozenset(), ())
    assert read_request_head(head, table, Limits()).user_agent == found
