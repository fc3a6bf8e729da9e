"""How a probe reads the bytes of a response: each framing of a body, and the bound of each kind of excess."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.controlplane.probe_client import ProbeClient
from gateway.controlplane.probe_connection import MAX_FRAMING, MAX_HEAD
from gateway.controlplane.resolver import addresses_only
from gateway.core.dialect import ProbeFault, ProbeResponse
from gateway.core.fleet.backend import Backend
from tests.controlplane.fakes import service
from tests.kit.networks import LOOPBACK

LIMIT = 4096
"""`limits.document` of these probes."""


async def fetched(*pieces: bytes, stays_open: bool = False) -> ProbeResponse | ProbeFault:
    """The result of a probe whose backend sends these bytes, and then closes unless it `stays_open`."""
    served: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if not stays_open:
            writer.close()

    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        backend = Backend("api-1", LOOPBACK, server.sockets[0].getsockname()[1])
        one = service(backend)
        one = replace(one, limits=replace(one.limits, document=LIMIT))
        try:
            return await ProbeClient(addresses_only).fetch("/v1", one, backend)
        finally:
            for writer in served:
                writer.close()


def ok(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join(("HTTP/1.1 200 OK", *lines, "", "")).encode() + body


CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    "sent, body",
    [
        ([ok("Content-Length: 2", body=b"{}")], b"{}"),
        ([ok("Content-Length: 2"), b"{", b"}"], b"{}"),
        ([ok(CHUNKED), b"1;x=y\r\n{\r\n", b"1\r\n}\r\n0\r\nX-Trailer: 1\r\n\r\n"], b"{}"),
        ([b"HTTP/1.0 200 OK\r\n\r\n", b"{}"], b"{}"),
        ([b"HTTP/1.1 100 Continue\r\nX-A: 1\r\n\r\n" + ok("Content-Length: 2", body=b"{}")], b"{}"),
        ([ok("Content-Length: 2", body=b"{}surplus")], b"{}"),
        ([ok("X-A: 1", body=b"x" * LIMIT)], b"x" * LIMIT),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
    ],
    ids=["length", "pieces", "chunked", "until close", "interim", "surplus", "limit", "no body"],
)
async def test_a_body_ends_where_its_framing_says(sent: Sequence[bytes], body: bytes) -> None:
    response = await fetched(*sent)

    assert isinstance(response, ProbeResponse)
    assert response.body == body
    assert "X-Trailer" not in response.headers


async def test_a_whole_response_is_read_on_a_connection_that_stays_open() -> None:
    response = await fetched(ok("X-A: 1", "X-a:  2 ", "Content-Length: 0"), stays_open=True)

    assert isinstance(response, ProbeResponse)
    assert list(response.headers.items()) == [("X-A", "1"), ("X-a", "2"), ("Content-Length", "0")]


@pytest.mark.parametrize(
    "sent, reason, detail",
    [
        ([], "protocol", "closed the connection without a response"),
        ([b"HTTP/1.1 200 OK\r\nX"], "protocol", "sent no valid HTTP response: cut off"),
        ([ok("Content-Length: 3", body=b"{}")], "protocol", "sent no valid HTTP response: cut off"),
        ([ok(CHUNKED, body=b"2\r\n{}\r\n")], "protocol", "sent no valid HTTP response: cut off"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "protocol", "sent no valid HTTP response: malformed"),
        (
            [ok("Content-Length: 2", CHUNKED, body=b"{}")],
            "protocol",
            "sent no valid HTTP response: malformed",
        ),
        (
            [ok("Content-Length: 2", "Content-Length: 3")],
            "protocol",
            "sent no valid HTTP response: malformed",
        ),
        ([ok("X-A : 1", "Content-Length: 0")], "protocol", "sent no valid HTTP response: malformed"),
        ([b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"], "protocol", "sent no valid HTTP response: malformed"),
    ],
)
async def test_a_response_that_is_cut_off_or_ambiguous_is_a_fault(
    sent: Sequence[bytes], reason: str, detail: str
) -> None:
    assert await fetched(*sent) == ProbeFault(reason, detail)


TOO_LARGE = ProbeFault("protocol", "sent no valid HTTP response: too large")


@pytest.mark.parametrize(
    "sent",
    [
        [b"HTTP/1.1 200 OK\r\nX-A: " + b"x" * MAX_HEAD],
        [b"HTTP/1.1 102 Processing\r\n\r\n" * (MAX_HEAD // 20)],
        [ok(CHUNKED), b"1;" + b"x" * (MAX_HEAD + MAX_FRAMING * LIMIT)],
        [ok(CHUNKED), b"0\r\nX: " + b"x" * (MAX_HEAD + MAX_FRAMING * LIMIT)],
    ],
    ids=["head", "interim", "chunk extension", "trailer"],
)
async def test_what_surrounds_a_body_is_bounded(sent: Sequence[bytes]) -> None:
    assert await fetched(*sent, stays_open=True) == TOO_LARGE


async def test_a_body_in_chunks_of_one_byte_is_read() -> None:
    response = await fetched(ok(CHUNKED, body=b"1\r\nx\r\n" * LIMIT + b"0\r\n\r\n"))

    assert isinstance(response, ProbeResponse)
    assert response.body == b"x" * LIMIT


async def test_a_head_that_settles_it_is_not_waited_on() -> None:
    """A redirect with an endless body is a redirect, not a timeout."""
    fault = await fetched(b"HTTP/1.1 302 Found\r\nLocation: /v2\r\n\r\n", stays_open=True)

    assert fault == ProbeFault("redirect", "redirects to /v2; probes follow no redirect")
