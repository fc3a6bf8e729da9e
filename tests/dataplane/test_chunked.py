"""The chunked decoder compared with llhttp: both read a body alike, however it is cut into pieces."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dataplane.http1.chunked import LAST_CHUNK, ChunkedDecoder, encode_chunk
from gateway.errors import FramingError
from tests.kit.messages import KIB

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class Llhttp:
    """The callbacks of llhttp: they note what it reads of a body."""

    def __init__(self) -> None:
        self.content = b""
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.content += data

    def on_message_complete(self) -> None:
        self.complete = True


def by_llhttp(body: bytes) -> bytes | None:
    """The content of exactly one whole body, as llhttp reads it; None if it refuses it."""
    callbacks = Llhttp()
    parser = httptools.HttpRequestParser(callbacks)
    try:
        parser.feed_data(HEAD)
        parser.feed_data(body)
    except httptools.HttpParserError:
        return None
    return callbacks.content if callbacks.complete else None


def by_decoder(pieces: list[bytes]) -> tuple[bytes, bool, bytes] | None:
    """The content, whether the body has ended, and the bytes behind it; None if it is refused."""
    decoder, content, behind = ChunkedDecoder(), [], []
    for piece in pieces:
        if decoder.done:
            behind.append(piece)
            continue
        try:
            content.append(decoder.feed(piece))
        except FramingError:
            return None
    rest = decoder.rest if decoder.done else b""
    return b"".join(content), decoder.done, rest + b"".join(behind)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """`data` cut at these positions, modulo its length."""
    positions = sorted({position % (len(data) + 1) for position in at})
    return [data[low:high] for low, high in zip([0, *positions], [*positions, len(data)], strict=True)]


CUTS = st.lists(st.integers(0, 10_000), max_size=12)
EXTENSION = st.sampled_from([b"", b";a", b";a=b", b';a="b c"', b";x=y;z"])
TRAILER = st.sampled_from([b"", b"X: y\r\n", b"ETag: 5\r\nSet-Cookie: a=b\r\n"])


SMALL = st.binary(min_size=1, max_size=18) | st.text("\r\n1x", min_size=1, max_size=17).map(str.encode)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A valid body and its content."""
    pieces = draw(st.lists(st.binary(min_size=1, max_size=300), max_size=8) | st.lists(SMALL, max_size=30))
    pieces *= draw(st.sampled_from([1, 1, 3]))  # runs of equal chunks are read in another way
    wire = []
    for piece in pieces:
        size = draw(st.sampled_from([b"%x", b"%X", b"0%x", b"000%X"])) % len(piece)
        wire.append(b"%b%b\r\n%b\r\n" % (size, draw(EXTENSION), piece))
    last = draw(st.sampled_from([b"0", b"00", b"0;last"]))
    return b"".join((*wire, last, b"\r\n", draw(TRAILER), b"\r\n")), b"".join(pieces)


@given(bodies(), CUTS, st.binary(max_size=20))
def test_valid_bodies_are_read_whole_however_they_are_cut(
    made: tuple[bytes, bytes], at: list[int], behind: bytes
) -> None:
    body, content = made

    assert by_decoder(cut(body + behind, at)) == (content, True, behind)


@given(bodies())
def test_valid_bodies_are_read_as_llhttp_reads_them(made: tuple[bytes, bytes]) -> None:
    body, content = made

    assert by_llhttp(body) == content


DAMAGES = st.sampled_from(
    [
        b"\r",
        b"\n",
        b"\r\n",
        b"\0",
        b" ",
        b"\t",
        b";",
        b"0",
        b"5",
        b"-",
        b"+",
        b"0x",
        b"_",
        b"x",
        b"\xff",
        b",",
        b"f" * 20,
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid body with a few positions changed."""
    body = draw(bodies())[0]
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(body)))
        body = body[:position] + draw(DAMAGES) + body[position + draw(st.integers(0, 3)) :]
    return body


def without_overhead(body: bytes) -> bytes:
    """A whole body without its extensions and trailers. Readers differ in what they accept there, not in
    where it ends."""
    pieces, at = [], 0
    while True:
        end = body.index(b"\r\n", at)
        size = body[at:end].split(b";")[0].rstrip(b" \t")
        pieces.append(size + b"\r\n")
        at = end + 2
        if not int(size, 16):
            return b"".join(pieces) + b"\r\n"
        pieces.append(body[at : at + int(size, 16) + 2])
        at += int(size, 16) + 2


@given(damaged() | st.binary(max_size=200))
def test_S7_every_accepted_body_is_read_alike_by_llhttp(body: bytes) -> None:
    read = by_decoder([body])
    if read is None or not read[1]:
        return
    content, _, behind = read
    assert by_llhttp(without_overhead(body[: len(body) - len(behind)])) == content


@given(damaged() | st.binary(max_size=400), CUTS)
@example(b"5;" + b"a" * 300, [100, 255, 256, 257])
@example(b"0\r\n" + b"X: y\r\n" * 10, [4, 5, 9])
@example(b"1\r\nx\r\n" * 9 + b"1\r\nxx\r\n", [54, 58, 59])
@example(b"2\r\n\r\n\r\n" * 9 + b"2\r\n\r\n\r\r\n", [9, 63, 66])
@example(b"1\r\n1\r\n" * 9 + b"1\n1\r\n", [54, 55, 56])
def test_S7_the_result_does_not_depend_on_the_cuts(body: bytes, at: list[int]) -> None:
    assert by_decoder(cut(body, at)) == by_decoder([body])


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_encoded_bodies_are_read_by_both_decoders(pieces: list[bytes]) -> None:
    body = b"".join(map(encode_chunk, pieces)) + LAST_CHUNK

    assert by_llhttp(body) == b"".join(pieces)
    assert by_decoder([body]) == (b"".join(pieces), True, b"")


def test_an_empty_piece_does_not_end_a_body() -> None:
    assert encode_chunk(b"") == b""


@pytest.mark.parametrize("size", [254, 255])
def test_S8_an_extension_may_be_as_long_as_a_size_line(size: int) -> None:
    line = b"1;" + b"a" * (size - 4) + b"\r\n"
    assert len(line) == size

    assert by_decoder([line + b"x\r\n0\r\n\r\n"]) == (b"x", True, b"")
    assert by_decoder([b"1;" + b"a" * 253 + b"\r\nx\r\n0\r\n\r\n"]) is None


def test_S8_extensions_and_trailers_of_a_whole_body_are_bounded() -> None:
    part = b"1;" + b"a" * 199 + b"\r\nx\r\n"

    assert by_decoder([part * 80]) is not None
    assert by_decoder([part * 82]) is None
    assert by_decoder([b"0\r\n", *[b"X: " + b"y" * 1000 + b"\r\n"] * 17]) is None
    assert by_decoder([b"0\r\n", *[b"x" * KIB] * 17]) is None


def test_D5_a_body_in_single_bytes_is_read_whole() -> None:
    body = b"1\r\nx\r\n" * 5000 + LAST_CHUNK

    assert by_decoder([body]) == (b"x" * 5000, True, b"")
    assert by_decoder([body[at : at + 1] for at in range(len(body))]) == (b"x" * 5000, True, b"")
