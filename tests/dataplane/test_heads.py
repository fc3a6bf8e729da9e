"""Heads: any bytes are read or refused, and what is read is read as llhttp reads it.

A third reader is `read_fields`, which accepts a line only if it is exactly one field."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import contextlib

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.http.message import METHODS, normalize_name
from gateway.dataplane.http1.heads import (
    HEAD_END,
    RequestHead,
    RequestReader,
    ResponseHead,
    read_response_head,
)
from gateway.dataplane.http1.names import DROP, FORWARDED, HOST, SELECTED, NameTable, fields_named
from gateway.errors import FramingError
from gateway.settings import Limits
from tests.dataplane.messages import STANDARD_FIELD, VERSION_FIELD, read_fields, request, response

OWNED = frozenset({normalize_name(VERSION_FIELD), normalize_name(STANDARD_FIELD)})
REQUESTS = NameTable.for_requests(OWNED)
RESPONSES = NameTable.for_responses(frozenset({normalize_name(VERSION_FIELD), "vary"}))
ATTRIBUTES = ("method", "target", "path", "query", "host", "minor", "close", "fields", "expects_continue")
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
        return RequestReader().read(head, REQUESTS, Limits())
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
DAMAGES = st.sampled_from(
    [
        b"\r",
        b"\n",
        b"\r\n",
        b"\0",
        b" ",
        b"\t",
        b":",
        b";",
        b",",
        b"#",
        b"%",
        b"%2e",
        b"_",
        b"-",
        b"\x7f",
        b"\x80",
        b"\xff",
        b"0",
        b"9" * 20,
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"GET",
        b"Host: y\r\n",
        b"\r\n ",
        b"Content-Length: 6\r\n",
        b"(",
        b"/",
        b"@",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: host\r\n",
        b"Connection: " + b"a" * 2000 + b"\r\n",
        b"Upgrade: x\r\n",
        b"Expect: 100-continue\r\n",
        b"X: y\r\n" * 120,
        b"a" * 9000,
        b"http://h/",
        b"\xd9\xa5",
        b"X-" + b"n" * 300 + b": z\r\n",
    ]
)


def damaged(good: bytes) -> st.SearchStrategy[bytes]:
    """`good` with a few positions changed, up to its first empty line."""

    @st.composite
    def strategy(draw: st.DrawFn) -> bytes:
        head = good
        for _ in range(draw(st.integers(0, 4))):
            position = draw(st.integers(0, len(head)))
            head = head[:position] + draw(DAMAGES) + head[position + draw(st.integers(0, 3)) :]
        head += HEAD_END
        return head[: head.index(HEAD_END) + 4]

    return strategy()


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


@given(damaged(REQUEST))
def test_S17_a_reader_keeps_nothing_of_the_head_before(head: bytes) -> None:
    """One reader serves a whole connection. What it reads must not depend on earlier heads."""
    fresh, used = read_request(head), RequestReader()
    for _ in range(2):
        for before in (
            REQUEST,
            request("GET", "http://other/", "Connection: close"),
            request(http="1.0", host=None),
        ):
            used.read(before, REQUESTS, Limits())
        if isinstance(fresh, FramingError):
            with pytest.raises(FramingError) as caught:
                used.read(head, REQUESTS, Limits())
            assert (caught.value.status, caught.value.reason) == (fresh.status, fresh.reason)
        else:
            read = used.read(head, REQUESTS, Limits())
            for name in ATTRIBUTES:
                assert getattr(read, name) == getattr(fresh, name), name


def test_a_head_that_was_read_stays_as_it_is() -> None:
    """The exchange before may still be running, or be in the log, when the next head is read."""
    reader = RequestReader()
    first = reader.read(SIMPLE, REQUESTS, Limits())
    before = [getattr(first, name) for name in ATTRIBUTES]
    assert reader.read_cached(SIMPLE, REQUESTS, Limits()) not in (None, first)
    reader.read(request("POST", "http://other/", "Connection: close"), REQUESTS, Limits())

    assert [getattr(first, name) for name in ATTRIBUTES] == before


def test_other_content_makes_another_response_head() -> None:
    read = read_response(response(200, "ETag: x", "Location: /x", f"{VERSION_FIELD}: 1.10", body=b"12"))
    assert isinstance(read, ResponseHead)
    other = read.with_content(7, b"\r\nX: y\r\n")

    assert (read.length, other.length, other.passthrough) == (2, 7, b"\r\nX: y\r\n")
    assert b"ETag" in read.passthrough
    for name in ("status", "line", "location", "selected", "selected_fields", "close", "framing"):
        assert getattr(other, name) == getattr(read, name), name


@pytest.mark.parametrize("method", METHODS)
def test_known_methods_are_known_to_llhttp(method: str) -> None:
    assert isinstance(read_request(request(method)), RequestHead)


SIMPLE = request("GET", "/v1/nodes", f"{VERSION_FIELD}: 1.10", "Via: 1.0 a")


@given(damaged(SIMPLE) | damaged(request("GET", "/v1//x?a=%20", f"{VERSION_FIELD}: 1.10", "Via: 1.0 a")))
@example(SIMPLE.replace(b"1.1\r", b"1.0\r"))
@example(SIMPLE.replace(b"/v1", b"/v1/../v2"))
@example(SIMPLE.replace(b"/v1", b"http://other"))
@example(SIMPLE.replace(b"/v1", b"*"))
@example(SIMPLE.replace(b"GET", b"TRACE"))
@example(SIMPLE.replace(b"/v1", b"/" + b"a" * 9000))
def test_S17_a_cached_field_section_gives_the_same_result(head: bytes) -> None:
    fresh, used = read_request(head), RequestReader()
    used.read(SIMPLE, REQUESTS, Limits())
    try:
        cached = used.read_cached(head, REQUESTS, Limits())
    except FramingError as error:
        assert isinstance(fresh, FramingError)
        assert error.status == fresh.status  # noqa: PT017 - it may raise or not
        return
    if cached is not None:
        assert isinstance(fresh, RequestHead)
        for name in ATTRIBUTES:
            assert getattr(cached, name) == getattr(fresh, name), name


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
    assert REQUESTS[spelling.encode()] == (DROP if "_" in spelling else SELECTED)


def test_names_that_only_begin_alike_are_not_matched() -> None:
    head = b"GET / HTTP/1.1\r\nHosts: a\r\nX-Host: b\r\nViaduct: c\r\nTEa: d\r\nX: Host: e\r\n\r\n"

    assert not REQUESTS.pattern.search(head)


def test_the_table_of_spellings_is_bounded() -> None:
    table = NameTable.for_requests(OWNED)
    for number in range(2**14):
        spelling = "".join(
            letter.upper() if number >> bit & 1 else letter for bit, letter in enumerate("transfer-encoding")
        )
        assert table[spelling.encode()] == table[b"transfer-encoding"]

    assert len(table) <= 1024


NAMES = st.from_regex(r"[a-cx-z][a-cx-z-]{0,5}", fullmatch=True)


@given(st.sets(NAMES, min_size=1, max_size=20), NAMES, st.sampled_from("!#$%&'*+.^_`|~"))
def test_a_pattern_finds_exactly_the_names_that_it_was_made_of(
    listed: set[str], name: str, separator: str
) -> None:
    pattern = fields_named(listed)

    assert bool(pattern.search(f"X\r\n{name}: v\r\n".encode())) == (name in listed)
    twin = name.upper().replace("-", separator)
    assert bool(pattern.search(f"X\r\n{twin}: v\r\n".encode())) == (name in listed)


def test_host_is_not_selected_for_dialects() -> None:
    assert REQUESTS[b"HOST"] == HOST


@pytest.mark.parametrize("table", [REQUESTS, RESPONSES], ids=["request", "response"])
@pytest.mark.parametrize("separator", "!#$%&'*+.^`|~")
def test_R_A6_a_twin_with_any_separator_is_found_and_dropped(table: NameTable, separator: str) -> None:
    for position in range(VERSION_FIELD.count("-")):
        parts = VERSION_FIELD.split("-")
        twin = "-".join(parts[: position + 1]) + separator + "-".join(parts[position + 1 :])
        found = table.pattern.findall(f"GET / HTTP/1.1\r\nHost: x\r\n{twin}: 1.5\r\n\r\n".encode())

        assert (twin.encode(), b"1.5") in found
        assert table[twin.encode()] == DROP


def test_R_A6_a_name_listed_in_connection_removes_its_twins() -> None:
    read = read_request(request("GET", "/", "Connection: x-hop", "X.Hop: 1", "X-Hop: 2", "X-Hope: 3"))

    assert not isinstance(read, FramingError)
    assert read.field_section.passthrough == b"\r\nX-Hope: 3\r\n"


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

    assert [(table[name], value) for name, value in found] == [
        (HOST, b"api.example"),
        (SELECTED, b"1"),
        (FORWARDED, b"2"),
        (DROP, b"3"),
        (FORWARDED, b"4"),
        (DROP, b"5"),
    ]


def test_R_B10_the_table_of_spellings_keeps_no_long_names() -> None:
    """A peer chooses what follows a common beginning, up to the length of a line."""
    table = NameTable.for_requests(OWNED, dropped=("X-Forwarded-*",))
    for number in range(2000):
        assert table[b"X-Forwarded-%d-" % number + b"x" * 4000] == DROP
        assert table[b"X-Forwarded-%d" % number] == DROP

    assert len(table) <= 1024
    assert max(map(len, table)) <= 64
