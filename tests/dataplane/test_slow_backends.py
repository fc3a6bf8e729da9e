"""Backends that read a request body slowly, or not at all.

`backend_head` runs from the end of the request. Before that the backend may take nothing for
`backend_write_idle`, and while bytes move there is no time-out.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from gateway.core.fleet.backend import Backend
from tests.dataplane.assertions import assert_ironic_error
from tests.kit.backends import ScriptedBackend, UpstreamConnection
from tests.kit.clients import Client
from tests.kit.ironic import NEW, versions
from tests.kit.messages import KIB, Message, chunked, request, response
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE
from tests.kit.workers import Gateway, Testbed, settle

MIB = KIB * KIB
IDLE: Final = 10.0
"""Seconds of the time-outs that slow reading must not reach, by the clock of the gateway."""
TIMES: Final = dict.fromkeys(
    ("backend_head", "backend_body_idle", "backend_write_idle", "client_body_idle"), IDLE
)
ROUNDS: Final = 5
"""How often a slow reader takes some pieces, each time in most of `IDLE`."""
END: Final = b"the end"
"""What each request here ends with."""
HELD = request("PUT", "/v1/x", body=b"x" * 60 * KIB + END)
LARGE = request("PUT", "/v1/x", body=b"x" * MIB + END)
VERY_LARGE = request("PUT", "/v1/x", body=b"x" * 8 * MIB + END)
LARGE_CHUNKED = request("PUT", "/v1/x", "Transfer-Encoding: chunked") + chunked(*[b"y" * KIB] * KIB, END)
THANKS: Final = response(200, body=b"thanks")


class RawBackend:
    """A server whose sockets hold little. It takes only what the test reads."""

    def __init__(self, receive_buffer: int) -> None:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._listener.bind((LOOPBACK, 0))
        self._listener.listen()
        self._listener.setblocking(False)
        self._connections: list[socket.socket] = []
        self.received = b""

    def backend(self, name: str = "slow", weight: int = 1) -> Backend:
        port = self._listener.getsockname()[1]
        return Backend(name, LOOPBACK, port, weight=weight, declared=versions(NEW))

    async def accept(self) -> socket.socket:
        async with asyncio.timeout(PATIENCE):
            connection, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        self._connections.append(connection)
        return connection

    async def read(self, connection: socket.socket, most: int = MIB) -> bool:
        """Take some bytes; False if the connection is closed."""
        async with asyncio.timeout(PATIENCE):
            data = await asyncio.get_running_loop().sock_recv(connection, most)
        self.received += data
        return bool(data)

    async def read_slowly(self, connection: socket.socket, piece: int, gateway: Gateway) -> None:
        """Take ten pieces again and again, and let most of `IDLE` pass each time: together several times
        as long as the backend may take nothing."""
        for _ in range(ROUNDS):
            for _ in range(10):
                await self.read(connection, piece)
            await settle()
            gateway.turn(0.7 * IDLE)

    async def read_rest(self, connection: socket.socket) -> None:
        """Take everything until the request is complete, or the connection is closed."""
        while not self.received.endswith((END, END + b"\r\n0\r\n\r\n")) and await self.read(connection):
            pass

    def close(self) -> None:
        for connection in (self._listener, *self._connections):
            connection.close()


@contextmanager
def raw_backend(receive_buffer: int = 16 * KIB) -> Iterator[RawBackend]:
    backend = RawBackend(receive_buffer)
    try:
        yield backend
    finally:
        backend.close()


async def turned_until_answered(gateway: Gateway, client: Client, method: str) -> Message:
    """The response that comes when enough time has passed: little at once, since the gateway looks at a
    deadline for what has moved."""
    answer = asyncio.get_running_loop().create_task(client.response(method))
    while not answer.done():
        gateway.turn(IDLE / 10)
        await settle()
    return await answer


async def uploading(
    testbed: Testbed, upload: bytes, *backends: ScriptedBackend | Backend, **options: Any
) -> tuple[Gateway, Client, asyncio.Task[None]]:
    """A client that sends this, to a gateway whose clock the test turns."""
    gateway = await testbed.gateway(*backends, **options)
    gateway.clock.stop()
    client = await gateway.client()
    return gateway, client, asyncio.get_running_loop().create_task(client.send(upload))


async def thank(connection: socket.socket) -> None:
    await asyncio.get_running_loop().sock_sendall(connection, THANKS)


@pytest.mark.parametrize(
    "upload, receive_buffer, piece",
    [(HELD, 4 * KIB, KIB), (LARGE, 16 * KIB, 4 * KIB), (VERY_LARGE, 16 * KIB, 4 * KIB)],
    ids=["held", "large", "very large"],
)
async def test_R_B2_a_backend_that_reads_a_body_slowly_may_take_its_time(
    testbed: Testbed, upload: bytes, receive_buffer: int, piece: int
) -> None:
    with raw_backend(receive_buffer) as backend:
        gateway, client, sending = await uploading(testbed, upload, backend.backend(), **TIMES)
        connection = await backend.accept()

        await backend.read_slowly(connection, piece, gateway)
        await backend.read_rest(connection)
        await thank(connection)

        assert (await client.response("PUT")).body == b"thanks"
        await sending
        body = upload.partition(b"\r\n\r\n")[2]
        assert backend.received.partition(b"\r\n\r\n")[2] == body


async def test_R_B2_the_same_for_a_chunked_body(testbed: Testbed) -> None:
    with raw_backend() as backend:
        gateway, client, sending = await uploading(testbed, LARGE_CHUNKED, backend.backend(), **TIMES)
        connection = await backend.accept()

        await backend.read_slowly(connection, 4 * KIB, gateway)
        await backend.read_rest(connection)
        await thank(connection)

        assert (await client.response("PUT")).body == b"thanks"
        await sending
        assert backend.received.count(b"y") == MIB


async def test_R_B2_backend_head_runs_from_the_end_of_the_request(testbed: Testbed) -> None:
    with raw_backend() as backend:
        gateway, client, sending = await uploading(testbed, LARGE, backend.backend(), **TIMES)
        connection = await backend.accept()
        await backend.read_slowly(connection, 4 * KIB, gateway)
        await backend.read_rest(connection)
        await sending
        await settle()
        gateway.turn(0.9 * IDLE)
        assert not gateway.records

        assert_ironic_error(await turned_until_answered(gateway, client, "PUT"), 504)

        assert (await gateway.recorded()).reason == "reply_timeout"


@pytest.mark.parametrize("upload", [HELD, LARGE, VERY_LARGE], ids=["held", "large", "very large"])
async def test_R_B2_a_backend_that_takes_nothing_is_504(testbed: Testbed, upload: bytes) -> None:
    with raw_backend(4 * KIB) as backend:
        gateway, client, sending = await uploading(
            testbed, upload, backend.backend(), backend_write_idle=IDLE
        )
        await backend.accept()

        assert_ironic_error(await turned_until_answered(gateway, client, "PUT"), 504)

        record = await gateway.recorded()
        assert (record.reason, record.attempts) == ("reply_timeout", 1)
        sending.cancel()


@pytest.mark.parametrize(
    "upload, status, attempts",
    [
        (HELD, 200, 2),
        (HELD.replace(b"PUT", b"POST"), 504, 1),  # a part of it was sent, so it may have been executed
        (LARGE, 504, 1),  # the part that was sent is not held any more
    ],
    ids=["held PUT", "held POST", "large PUT"],
)
async def test_R_B2_a_request_that_was_not_taken_is_sent_again_as_any_that_was_sent(
    testbed: Testbed, upload: bytes, status: int, attempts: int
) -> None:
    method = upload.partition(b" ")[0].decode()
    other = await testbed.backend()
    with raw_backend(4 * KIB) as backend:
        gateway, client, sending = await uploading(
            testbed, upload, backend.backend(weight=1_000_000), other, backend_write_idle=IDLE, retry=None
        )
        await backend.accept()

        assert (await turned_until_answered(gateway, client, method)).status == status

        assert (await gateway.recorded()).attempts == attempts
        assert len(other.requests) == attempts - 1
        sending.cancel()


@pytest.mark.parametrize("line", ["X-Waits: no", "Expect: 100-continue"])
@pytest.mark.parametrize("framing", ["Content-Length: 200000", "Transfer-Encoding: chunked"])
async def test_R_B2_a_slow_client_is_not_taken_for_a_slow_backend(
    testbed: Testbed, line: str, framing: str
) -> None:
    async def script(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await upstream.send(THANKS)

    gateway, backend = await testbed.gateway_and_backend(script, backend_head=IDLE, backend_write_idle=IDLE)
    gateway.clock.stop()
    client = await gateway.client()
    await client.send(request("POST", "/v1/x", framing, line))
    if line.startswith("Expect"):
        assert (await client.response("POST")).status == 100
    piece = b"z" * 100_000
    if "chunked" in framing:
        piece = b"%x\r\n%b\r\n" % (len(piece), piece)
    for number in range(2):
        await client.send(piece[:-10_000])
        await gateway.has_read((number + 1) * len(piece) - 10_000)
        await settle()
        gateway.turn(1.5 * IDLE)  # a slow client
        await client.send(piece[-10_000:])
    if "chunked" in framing:
        await client.send(b"0\r\n\r\n")

    assert (await client.response("POST")).body == b"thanks"
    assert backend.only_request.body == b"z" * 200_000


async def test_R_B2_a_response_that_begins_early_does_not_cut_the_upload(testbed: Testbed) -> None:
    with raw_backend() as backend:
        gateway, client, sending = await uploading(testbed, VERY_LARGE, backend.backend(), **TIMES)
        connection = await backend.accept()
        await backend.read(connection, KIB)
        await asyncio.get_running_loop().sock_sendall(connection, THANKS[:-6])

        await backend.read_slowly(connection, 4 * KIB, gateway)
        await backend.read_rest(connection)
        await asyncio.get_running_loop().sock_sendall(connection, THANKS[-6:])

        assert (await client.response("PUT")).body == b"thanks"
        await sending


async def test_a_request_without_a_body_has_backend_head_from_its_begin(testbed: Testbed) -> None:
    with raw_backend(4 * KIB) as backend:
        gateway = await testbed.gateway(backend.backend(), backend_head=IDLE)
        gateway.clock.stop()
        client = await gateway.client()
        await client.send(request())
        await backend.accept()

        assert_ironic_error(await turned_until_answered(gateway, client, "GET"), 504)
