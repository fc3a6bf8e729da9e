"""Heads: any bytes are read or refused, never anything else; and what is read is read as llhttp reads it.

The reader of `wire` is the third opinion: it takes a line only when it is exactly one field."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

import contextlib

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.message import METHODS, fold
from gateway.dataplane.http1 import HEAD_END, ReplyReader, RequestReader
from gateway.dataplane.names import APART, DROP, HOST, NameTable, fields_named
from gateway.dataplane.upload import Upload
from gateway.errors import FramingError
from gateway.settings import Limits
from tests.dataplane.wire import SERVED, STANDARD, read_fields, reply, request

OWNED = frozenset({fold(SERVED), fold(STANDARD)})
REQUESTS = NameTable.for_requests(OWNED)
REPLIES = NameTable.for_replies(frozenset({fold(SERVED), "vary"}))
SAME = ("method", "target", "path", "query", "host", "minor", "close", "fields", "expects_continue")
STATUSES = {400, 405, 414, 417, 431, 501, 505, 508}


class Llhttp:
    """What llhttp makes of a head."""

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


def read_request(head: bytes) -> RequestReader | FramingError:
    reader = RequestReader()
    try:
        reader.read(head, REQUESTS, Limits())
    except FramingError as error:
        return error
    return reader


def read_reply(head: bytes, *, to_head: bool = False) -> ReplyReader | FramingError:
    reader = ReplyReader()
    try:
        reader.read(head, REPLIES, to_head=to_head)
    except FramingError as error:
        return error
    return reader


PLAIN = request(
    "POST",
    "/v1/nodes?a=b",
    "Content-Length: 5",
    "Connection: x-hop, keep-alive",
    "X-Hop: 1",
    f"{SERVED}: 1.10",
    "Via: 1.0 a",
)
REPLY = reply(
    200,
    "Content-Type: application/json",
    f"{SERVED}: 1.10",
    "Vary: Accept",
    "Location: /x",
    "Connection: x-hop",
    body=b"",
)
NASTY = st.sampled_from(
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
    """`good` with a few places changed, up to its first empty line."""

    @st.composite
    def strategy(draw: st.DrawFn) -> bytes:
        head = good
        for _ in range(draw(st.integers(0, 4))):
            place = draw(st.integers(0, len(head)))
            head = head[:place] + draw(NASTY) + head[place + draw(st.integers(0, 3)) :]
        head += HEAD_END
        return head[: head.index(HEAD_END) + 4]

    return strategy()


BYTES = st.binary(max_size=300).map(lambda data: (data + HEAD_END)[: (data + HEAD_END).index(HEAD_END) + 4])


@given(damaged(PLAIN) | BYTES)
@example(request("GET", "/", "Connection: " + "a" * 8000))
@example(request("GET", "/", "Connection: ^, [, ], \\, (, *, -, _, |"))
@example(request("GET", "/", "Connection: \xe4\xf6, \xff"))
@example(b"\r\n\r\n")
def test_S10_any_bytes_are_a_request_or_a_refusal(head: bytes) -> None:
    read = read_request(head)
    if isinstance(read, FramingError):
        assert read.status in STATUSES
        return
    heard = Llhttp()
    parser = httptools.HttpRequestParser(heard)
    feed(parser, head)
    assert heard.complete
    assert heard.fields == read_fields(head)
    assert parser.get_method().decode() == read.method
    assert parser.get_http_version() == f"1.{read.minor}"
    assert heard.url.endswith(read.target)
    assert read.target == f"{read.path}{'?' if b'?' in read.target else ''}{read.query}".encode()
    hosts = [value for name, value in heard.fields if name.lower() == "host"]
    assert len(hosts) == 1 or (read.minor == 0 and not hosts)
    ours = [(fold(name), value) for name, value in heard.fields if name.lower() in OWNED]
    assert [each for each in read.fields if each in ours] == ours


@given(damaged(REPLY) | BYTES)
@example(reply(200, "Connection: " + "a" * 8000))
@example(b"\r\n\r\n")
@example(b"HTTP/1.1 200 OK\r\nX: a\r\n\tb\r\n\r\n")
@example(b"HTTP/1.1 200 OK\r\nX : a\r\n\r\n")
def test_B15_any_bytes_are_a_reply_or_a_refusal(head: bytes) -> None:
    read = read_reply(head)
    if isinstance(read, FramingError):
        return
    fields = read_fields(head)  # asserts that every line is exactly one field
    heard = Llhttp()
    parser = httptools.HttpResponseParser(heard)
    feed(parser, head)
    assert heard.complete
    assert heard.fields == fields
    assert parser.get_status_code() == read.status
    assert 100 <= read.status <= 599
    lengths = [value for name, value in fields if name.lower() == "content-length"]
    assert len(lengths) <= 1
    assert read.length == (int(lengths[0]) if lengths else -1)


@given(damaged(PLAIN))
def test_S17_a_reader_remembers_nothing_of_a_head_before(head: bytes) -> None:
    """One reader serves a whole connection: what it reads must not depend on what it has read."""
    fresh, used = read_request(head), RequestReader()
    for _ in range(2):
        for before in (
            PLAIN,
            request("GET", "http://other/", "Connection: close"),
            request(http="1.0", host=None),
        ):
            used.read(before, REQUESTS, Limits())
        if isinstance(fresh, FramingError):
            with pytest.raises(FramingError) as caught:
                used.read(head, REQUESTS, Limits())
            assert (caught.value.status, caught.value.reason) == (fresh.status, fresh.reason)
        else:
            used.read(head, REQUESTS, Limits())
            for name in SAME:
                assert getattr(used, name) == getattr(fresh, name), name


@pytest.mark.parametrize("method", METHODS)
def test_methods_that_we_proxy_are_known_to_llhttp(method: str) -> None:
    assert isinstance(read_request(request(method)), RequestReader)


SIMPLE = request("GET", "/v1/nodes", f"{SERVED}: 1.10", "Via: 1.0 a")


@given(damaged(SIMPLE) | damaged(request("GET", "/v1//x?a=%20", f"{SERVED}: 1.10", "Via: 1.0 a")))
@example(SIMPLE.replace(b"1.1\r", b"1.0\r"))
@example(SIMPLE.replace(b"/v1", b"/v1/../v2"))
@example(SIMPLE.replace(b"/v1", b"http://other"))
@example(SIMPLE.replace(b"/v1", b"*"))
@example(SIMPLE.replace(b"GET", b"TRACE"))
@example(SIMPLE.replace(b"/v1", b"/" + b"a" * 9000))
def test_S17_the_short_way_through_known_fields_leads_to_the_same(head: bytes) -> None:
    fresh, used = read_request(head), RequestReader()
    used.read(SIMPLE, REQUESTS, Limits())
    try:
        known = used.read_known(head, REQUESTS, Limits())
    except FramingError as error:
        assert isinstance(fresh, FramingError)
        assert error.status == fresh.status  # noqa: PT017 - it may raise or not
        return
    if known:
        assert isinstance(fresh, RequestReader)
        for name in SAME:
            assert getattr(used, name) == getattr(fresh, name), name


# --- names -------------------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(OWNED)), st.data())
def test_V4_every_spelling_of_an_owned_name_is_found_and_only_the_real_one_is_read(
    name: str, data: st.DataObject
) -> None:
    spelled = "".join(
        data.draw(st.sampled_from([each.lower(), each.upper()] if each != "-" else ["-", "_"]))
        for each in name
    )
    found = REQUESTS.pattern.findall(f"GET / HTTP/1.1\r\nHost: x\r\n{spelled}:  1.5 \r\n\r\n".encode())

    assert (spelled.encode(), b"1.5 ") in found
    assert REQUESTS[spelled.encode()] == (DROP if "_" in spelled else APART)


def test_names_that_only_begin_alike_are_left_alone() -> None:
    head = b"GET / HTTP/1.1\r\nHosts: a\r\nX-Host: b\r\nViaduct: c\r\nTEa: d\r\nX: Host: e\r\n\r\n"

    assert not REQUESTS.pattern.search(head)


def test_what_is_learned_of_spellings_is_bounded() -> None:
    table = NameTable.for_requests(OWNED)
    for number in range(2**14):
        spelled = "".join(
            each.upper() if number >> at & 1 else each for at, each in enumerate("transfer-encoding")
        )
        assert table[spelled.encode()] == table[b"transfer-encoding"]

    assert len(table) <= 1024


NAMES = st.from_regex(r"[a-cx-z][a-cx-z-]{0,5}", fullmatch=True)


@given(st.sets(NAMES, min_size=1, max_size=20), NAMES)
def test_a_pattern_finds_exactly_the_names_that_it_was_made_of(listed: set[str], name: str) -> None:
    pattern = fields_named(listed)

    assert bool(pattern.search(f"X\r\n{name}: v\r\n".encode())) == (name in listed)
    assert bool(pattern.search(f"X\r\n{name.upper().replace('-', '_')}: v\r\n".encode())) == (name in listed)


def test_host_is_no_name_of_a_dialect() -> None:
    assert REQUESTS[b"HOST"] == HOST


# --- uploads -----------------------------------------------------------------------------------------------


def upload(*lines: str, **limits: int) -> Upload:
    reader = read_request(request("POST", "/", *lines))
    assert isinstance(reader, RequestReader)
    return Upload(reader.block, Limits().model_copy(update=limits))


def test_a_held_body_can_be_taken_again() -> None:
    body = upload("Content-Length: 10")
    assert (body.feed(b"hello"), body.done) == (b"", False)
    assert (body.feed(b"world+rest"), body.done) == (b"+rest", True)

    assert body.take() == body.take() == b"helloworld"
    assert (body.held, body.framing_line()) == (True, b"Content-Length: 10\r\n")


def test_a_streaming_body_is_gone_once_some_of_it_was_taken() -> None:
    body = upload("Content-Length: 10", replay_body=9)
    body.feed(b"hello")
    assert (body.streams, body.held) == (True, True)

    assert body.take() == b"hello"
    assert (body.take(), body.held) == (b"", False)


def test_a_chunked_body_streams_only_once_it_outgrows_the_limit() -> None:
    body = upload("Transfer-Encoding: chunked", replay_body=5)
    body.feed(b"5\r\nhello\r\n")
    assert not body.streams
    body.feed(b"1\r\n!\r\n")
    assert (body.streams, body.framing_line()) == (True, b"Transfer-Encoding: chunked\r\n")
    assert body.take() == b"6\r\nhello!\r\n"
    assert (body.feed(b"0\r\n\r\nrest"), body.take()) == (b"rest", b"0\r\n\r\n")


def test_a_body_is_too_large_as_soon_as_it_is_known() -> None:
    assert upload("Content-Length: 11", body=10).too_large
    body = upload("Transfer-Encoding: chunked", body=4)
    body.feed(b"5\r\nhel")
    assert not body.too_large
    body.feed(b"lo")
    assert body.too_large
