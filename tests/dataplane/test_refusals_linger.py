"""A client that is refused while it still sends gets its refusal: the gateway reads on for a while.

A connection that is closed with bytes unread is reset, and the client loses what it has not read.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.dataplane.edge.client_connection import MAX_LINGER, ClientConnection
from gateway.dataplane.edge.phases import LINGERING
from tests.dataplane.listener_tls import tls_listener
from tests.kit.backends import serve
from tests.kit.messages import KIB, request, request_head, version_line
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed

PIECE = b"X-Filler: " + b"x" * (16 * KIB - 12) + b"\r\n"
POST = "POST /v1/nodes HTTP/1.1"

TOO_LARGE = b"GET /v1/nodes HTTP/1.1\r\nHost: api.example\r\n" + b"X-Many: y\r\n" * 9000
CASES = {
    "head": (TOO_LARGE, 431),
    "line": (b"GET /" + b"x" * 100 * KIB, 414),
    "broken": (request_head("X : y"), 400),
    "declared": (request_head(f"Content-Length: {1 << 40}", start=POST), 413),
    "refused": (request_head(version_line("1.999"), "Content-Length: 9000000", start=POST), 406),
    "grows": (request_head(version_line("1.999"), "Transfer-Encoding: chunked", start=POST), 406),
}


class Sender:
    """A client that writes all of its request before it reads, and for which a failed write is the end."""

    def __init__(self, gateway: Gateway) -> None:
        self.sock = socket.create_connection(gateway.address, timeout=PATIENCE)
        if gateway.listener.client_tls is not None:
            self.sock = gateway.listener.client_tls.wrap_socket(self.sock, server_hostname="localhost")

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    async def send(self, data: bytes) -> None:
        await asyncio.to_thread(self.sock.sendall, data)

    async def answer(self) -> bytes:
        """All that comes up to the end; a reset is an error."""
        return await asyncio.to_thread(lambda: b"".join(iter(lambda: self.sock.recv(64 * KIB), b"")))


@pytest.fixture(params=["plain", "tls"])
async def testbed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Testbed]:
    testbed = Testbed()
    if request.param == "tls":
        testbed.listener = tls_listener(tmp_path)
    yield testbed
    await testbed.close()


def the_client(gateway: Gateway) -> ClientConnection:
    (client,) = gateway.worker._clients
    return client


async def refused(gateway: Gateway, first: bytes) -> Sender:
    """A client that has sent `first` and more than is read at once, and has been refused meanwhile. The clock
    stands: on a busy machine the time for which it may linger could be over before anybody looks."""
    gateway.clock.stop()
    with ExitStack() as closing:
        client = closing.enter_context(await asyncio.to_thread(Sender, gateway))
        await client.send(first)
        await until(lambda: gateway.worker.number_of_clients() == 1)
        await until(lambda: the_client(gateway).phase is LINGERING or bool(gateway.records))
        closing.pop_all()
        return client


@pytest.mark.parametrize("case", CASES)
async def test_R3_V11_who_still_sends_gets_the_refusal(testbed: Testbed, case: str) -> None:
    first, status = CASES[case]
    gateway, backend = await testbed.gateway_and_backend(serve)
    piece = b"4000\r\n" + b"x" * 16 * KIB + b"\r\n" if case == "grows" else PIECE
    with await refused(gateway, first) as client:
        for _ in range(20):
            await client.send(piece)
        answer = await client.answer()

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert not backend.requests
    await until(lambda: gateway.worker.number_of_clients() == 0)


async def test_R3_V11_who_never_stops_sending_is_cut_off(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    with await refused(gateway, TOO_LARGE) as client, pytest.raises(OSError) as error:  # noqa: PT011
        await client.send(b"x" * 16 * MAX_LINGER)  # far more than all buffers in between
    assert not isinstance(error.value, TimeoutError)
    await until(lambda: gateway.worker.number_of_clients() == 0)


async def test_R3_V11_who_never_closes_is_cut_off(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    with await refused(gateway, TOO_LARGE) as client:
        lingering = the_client(gateway)
        assert lingering.deadline > gateway.worker.context.now

        lingering.deadline = 0.0

        await until(lambda: gateway.worker.number_of_clients() == 0)
        assert (await client.answer()).startswith(b"HTTP/1.1 431 ")


async def test_R3_V11_it_yields_to_others(testbed: Testbed) -> None:
    """It counts as any client that has sent no whole head."""
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"connections": 1})
    with await refused(gateway, TOO_LARGE):
        assert (await gateway.request(request())).status == 200
