"""Attacks by clients, and what must follow: a refusal that echoes nothing, and nothing at any backend."""

from __future__ import annotations

from tests.dataplane.stand import Client, House, serve
from tests.dataplane.wire import HOST, Message

KIB = 1024
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: api.example\r\n\r\n"


def head(*lines: str, start: str = "GET /v1/nodes HTTP/1.1", host: bool = True) -> bytes:
    """A head that may hold anything."""
    return "\r\n".join((start, *([f"Host: {HOST}"] if host else []), *lines, "", "")).encode("latin-1")


async def refused(house: House, data: bytes, *statuses: int) -> Message:
    """`data`, and a good request behind it: one refusal, the end, and nothing at the backend."""
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    answer = await client.ask(data + SMUGGLED, method="GET")
    assert answer.status in (statuses or (400,)), answer
    assert answer.one("connection") == "close"
    assert answer.one("content-type").startswith("text/plain")
    assert len(answer.body) < 100
    assert (await client.ended()).rest == b""
    assert not backend.requests
    return answer


async def broken_body(house: House, data: bytes) -> None:
    """A body that is not framed as HTTP requires: one 400, in any shape, and the end."""
    gateway, backend = await house.behind(serve)
    client = await gateway.client()
    answer = await client.ask(data, method="POST")
    assert (answer.status, answer.one("connection")) == (400, "close")
    assert (await client.ended()).rest == b""
    assert not backend.requests
    assert sum(
        gateway.metric("skewgate_client_errors_total", reason=each) for each in ("chunk", "chunk_overhead")
    )


async def drip(client: Client, data: bytes) -> None:
    """One byte a segment."""
    for at in range(len(data)):
        client.writer.write(data[at : at + 1])
        if at % 64 == 0:
            await client.writer.drain()
