"""Which heads ask for an upgrade, and which agree to one: never more than another reader sees in them."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import contextlib

import httptools
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.fleet.limits import Limits
from gateway.dataplane.exchange.tunnel import agreed_protocol
from gateway.dataplane.http1.names import NameTable
from gateway.dataplane.http1.request_head import RequestHead, read_request_head
from gateway.dataplane.http1.response_head import read_response_head
from gateway.errors import FramingError

NAMES = st.sampled_from(["Upgrade", "upgrade", "UPGRADE", "Connection", "connection", "Up_grade", "X-Other"])
WORDS = st.sampled_from(
    [
        "echo",
        "ECHO",
        "echo/2",
        "h2c",
        "upgrade",
        "Upgrade",
        "keep-alive",
        "close",
        "x",
        "",
        " ",
        "e cho",
        "\t",
        '"echo"',
    ]
)
VALUES = st.lists(WORDS, max_size=4).map(",".join) | st.text(st.characters(max_codepoint=255), max_size=12)
LINES = st.lists(st.tuples(NAMES, VALUES), max_size=5)
ALLOWED = frozenset({"echo", "echo/2", "h2c"})


def head_of(start: str, lines: list[tuple[str, str]]) -> bytes:
    return "\r\n".join((start, *(f"{name}: {value}" for name, value in lines), "", "")).encode("latin-1")


class Other:
    """llhttp's reading of the fields, names in lower case."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, str]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.decode().lower(), value.decode("latin-1")))

    def every(self, name: str) -> list[str]:
        values = ",".join(value for found, value in self.fields if found == name)
        return [item.strip(" \t").lower() for item in values.split(",") if item.strip(" \t")]


def other_reading(kind: type, head: bytes) -> Other:
    other = Other()
    with contextlib.suppress(httptools.HttpParserUpgrade):
        kind(other).feed_data(head)
    return other


def read_request(lines: list[tuple[str, str]], version: str = "1.1") -> tuple[RequestHead, bytes] | None:
    head = head_of(f"GET / HTTP/{version}", [("Host", "x"), *lines])
    try:
        return read_request_head(head, NameTable.for_requests(frozenset()), Limits()), head
    except FramingError:
        return None


@given(LINES, st.sampled_from(["1.0", "1.1"]))
def test_H3_a_request_asks_only_for_what_another_reader_sees(
    lines: list[tuple[str, str]], version: str
) -> None:
    found = read_request(lines, version)
    if found is None:
        return
    request, head = found
    other = other_reading(httptools.HttpRequestParser, head)

    assert b"pgrade:" not in request.passthrough.lower()
    if request.upgrade:
        assert version == "1.1"
        assert [name.lower() for name in request.upgrade] == other.every("upgrade")
        assert "upgrade" in other.every("connection")


@given(LINES)
def test_H3_what_is_forwarded_asks_for_exactly_what_was_allowed(lines: list[tuple[str, str]]) -> None:
    found = read_request(lines)
    if found is None:
        return
    for protocols in ((), ("echo",), ("echo", "Other/2")):
        forwarded = found[0].with_upgrade(protocols)
        other = other_reading(
            httptools.HttpRequestParser, b"GET / HTTP/1.1" + forwarded.passthrough + b"\r\n\r\n"
        )

        assert other.every("upgrade") == [name.lower() for name in protocols]
        assert other.every("connection") == (["upgrade"] if protocols else [])
        assert forwarded.upgrade == protocols


@given(LINES, st.sampled_from(["1.0", "1.1"]), st.sampled_from([("echo",), ("ECHO", "echo/2"), ("h2c",), ()]))
def test_H5_a_101_agrees_only_to_what_was_asked_for(
    lines: list[tuple[str, str]], version: str, asked: tuple[str, ...]
) -> None:
    head = head_of(f"HTTP/{version} 101 Switching", lines)
    try:
        read_response_head(head, NameTable.for_responses(frozenset()), is_head_request=False)
    except FramingError:
        return
    other = other_reading(httptools.HttpResponseParser, head)
    protocol = agreed_protocol(head, asked, ALLOWED)

    agrees = (
        version == "1.1"
        and "upgrade" in other.every("connection")
        and len(other.every("upgrade")) == 1
        and other.every("upgrade")[0] in {name.lower() for name in asked} - {"h2c"}
    )
    assert bool(protocol) == agrees
    assert not protocol or [protocol.lower()] == other.every("upgrade")
