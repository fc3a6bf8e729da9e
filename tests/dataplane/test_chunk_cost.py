"""What many small chunks cost, and how many of them there may be (threats R-B3, D5)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dataplane.http1.chunked import LAST_CHUNK, ChunkedDecoder
from gateway.errors import FramingError
from tests.kit.backends import UpstreamConnection, always, serve
from tests.kit.examples import examples
from tests.kit.messages import KIB, chunked, request, response
from tests.kit.workers import Testbed

SEGMENT = 64 * KIB
TINY = b"1\r\nx\r\n" * 1_000_000 + LAST_CHUNK
LARGE = chunked(*[b"x" * (64 * KIB)] * (len(TINY) // (64 * KIB)))
"""As many bytes on the wire as `TINY`, but in chunks of 64 KiB."""
CHUNKED = "Transfer-Encoding: chunked"


def decode(body: bytes, segment: int = SEGMENT) -> tuple[bytes, str]:
    """The content, and the reason why the body was refused."""
    decoder, content = ChunkedDecoder(), bytearray()
    try:
        for at in range(0, len(body), segment):
            content += decoder.feed(body[at : at + segment])
    except FramingError as error:
        return bytes(content), error.reason
    assert decoder.done
    return bytes(content), ""


def cost(body: bytes, times: int) -> float:
    """Seconds of CPU for decoding `body`, the best of several times."""
    seconds = []
    for _ in range(times):
        started = time.process_time()
        decode(body)
        seconds.append(time.process_time() - started)
    return min(seconds)


@pytest.mark.load
def test_R_B3_a_million_chunks_of_one_byte_cost_at_most_five_times_their_bytes_in_large_chunks() -> None:
    large = cost(LARGE, 9)

    assert any(cost(TINY, 1) < 5 * large for _ in range(2))


@pytest.mark.parametrize(
    "chunk",
    [
        b"1\r\nx\r\n",
        b"2\r\nxy\r\n",
        b"01\r\nx\r\n",
        b"000000000000002\r\nxy\r\n",
        b"1\r\nx\r\n2\r\nxy\r\n8\r\n12345678\r\n",
    ],
)
def test_R_B3_the_overhead_of_small_chunks_is_bounded(chunk: bytes) -> None:
    assert decode(chunk * 300_000 + LAST_CHUNK)[1] == "chunk_overhead"


@pytest.mark.parametrize(
    "piece",
    [b"{}\n", b"data: x\n\n", b'{"type":"ADDED"}\n', b"x" * 100, b":\n\n", b"\r\n\r\n"],
)
def test_R_B3_streams_of_short_lines_have_no_bound(piece: bytes) -> None:
    """Server-sent events, JSON line by line, tokens of a language model."""
    number = 200_000

    assert decode(b"%x\r\n%b\r\n" % (len(piece), piece) * number + LAST_CHUNK) == (piece * number, "")


@pytest.mark.parametrize("piece", [b"x", b"\r", b"\n", b" "])
def test_R_B3_a_sender_of_single_characters_has_tens_of_kilobytes(piece: bytes) -> None:
    """Old WSGI applications that return a text send it by characters; other senders keep a connection alive
    with a blank each second."""
    assert decode(b"1\r\n%b\r\n" % piece * 80_000 + LAST_CHUNK) == (piece * 80_000, "")


NEARLY = b"1\r\nx\r\n" * 87_379
"""Seven bytes are left until the bound."""
SMALL_CHUNKS = st.sampled_from(
    [b"1\r\ny\r\n", b"2\r\nyz\r\n", b"3\r\nxyz\r\n", b"01\r\nx\r\n", b"20\r\n%b\r\n" % (b"x" * 32)]
)


@given(st.lists(SMALL_CHUNKS, max_size=8), st.lists(st.integers(-40, 0), max_size=5))
@settings(max_examples=examples(50), deadline=None)
def test_R_B3_where_the_bound_is_does_not_depend_on_the_cuts(last: list[bytes], cuts: list[int]) -> None:
    body = NEARLY + b"".join(last)
    excess = {6: 3, 7: 1}
    left = 7 - sum(4 if chunk[:2] == b"01" else excess.get(len(chunk), 0) for chunk in last)

    decoder, refused = ChunkedDecoder(), False
    try:
        for low, high in pairwise(sorted({0, *(len(body) + cut for cut in cuts), len(body)})):
            decoder.feed(body[low:high])
    except FramingError as error:
        refused = error.reason == "chunk_overhead"
    assert refused == (left < 0)


@pytest.mark.load
@pytest.mark.parametrize("segment", [1, 2, 3, 5, 7])
def test_R_B3_bytes_that_come_one_by_one_cost_the_same_for_each(segment: int) -> None:
    """Content is handed on as it comes, and of a line only the beginning is kept."""
    body = chunked(b"x" * 100_000)
    many = chunked(*[b"y" * 40] * 2000)

    started = time.process_time()
    assert decode(body, segment) == (b"x" * 100_000, "")
    assert decode(many, segment) == (b"y" * 80_000, "")
    assert time.process_time() - started < 2


# --- through a worker --------------------------------------------------------------------------------------


async def cpu_of(testbed: Testbed, body: bytes) -> tuple[float, int]:
    """Seconds of CPU that a request with this body takes, on all three sides, and the status."""
    gateway, _ = await testbed.gateway_and_backend(serve)
    assert (await gateway.request(request())).status == 200
    client = await gateway.client()
    client.writer.write(request("POST", "/v1/nodes", CHUNKED))
    started = time.process_time()
    client.writer.write(body)
    answer = await client.response("POST")
    return time.process_time() - started, answer.status


@pytest.mark.load
async def test_R_B3_small_chunks_through_a_worker_cost_at_most_five_times_their_bytes(
    testbed: Testbed,
) -> None:
    large, status = await cpu_of(testbed, LARGE)
    assert status == 200

    tiny, status = await cpu_of(testbed, TINY)

    assert status == 400
    assert tiny < 5 * large


async def test_R_B3_a_request_of_too_many_small_chunks_gets_400(testbed: Testbed) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)
    client = await gateway.client()
    client.writer.write(request("POST", "/v1/nodes", CHUNKED) + b"1\r\nx\r\n" * 200_000 + LAST_CHUNK)

    answer = await client.response("POST")

    assert (answer.status, answer.one("connection")) == (400, "close")
    assert gateway.metric("skewgate_client_errors_total", reason="chunk_overhead") == 1
    assert not backend.requests


async def test_R_B3_a_response_of_too_many_small_chunks_is_cut(testbed: Testbed) -> None:
    body = b"1\r\nx\r\n" * 200_000 + LAST_CHUNK
    gateway, backend = await testbed.gateway_and_backend(always(response(200, CHUNKED, body=body)))
    client = await gateway.client()
    await client.send(request("GET", "/v1/nodes", "Connection: close"))

    ended = await client.ended()

    assert ended.aborted or b" 502 " in ended.rest
    assert not ended.rest.endswith(LAST_CHUNK)
    await backend.disconnected()


async def test_D5_small_chunks_leave_as_large_ones(testbed: Testbed) -> None:
    """Towards either peer the content of one read is one chunk."""
    content = b"abc" * 50_000
    wire = b"3\r\nabc\r\n" * 50_000 + LAST_CHUNK
    sizes: list[int] = []

    async def script(upstream: UpstreamConnection) -> None:
        head = await upstream.reader.readuntil(b"\r\n\r\n")
        assert b"chunked" in head
        while size := int(await upstream.reader.readuntil(b"\r\n"), 16):
            sizes.append(size)
            await upstream.reader.readexactly(size + 2)
        await upstream.reader.readexactly(2)
        await upstream.send(response(200, CHUNKED, body=wire))
        await upstream.ended()

    gateway, _ = await testbed.gateway_and_backend(script)
    client = await gateway.client()
    async with asyncio.TaskGroup() as group:
        group.create_task(client.send(request("POST", "/v1/nodes", CHUNKED) + wire))
        answer = await client.response("POST")

    assert sum(sizes) == len(content)
    assert len(sizes) < len(content) // 3 // 100
    assert answer.body == content
