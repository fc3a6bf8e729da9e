"""Bytes that a backend sends before it has a request answer no request.

They may still lie unread in the kernel when the connection is used again. So a connection is looked at
directly before the first byte of a request is written on it. If there is anything to read, it is dropped, and
the request, of which nothing was sent, goes out on another one.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import final

import pytest

from bench.lane import Lane, MemoryTransport
from gateway.core.fleet.backend import Backend
from gateway.dataplane.backends.connection import BackendConnection
from gateway.dataplane.backends.pool import ConnectionPool
from tests.dataplane.assertions import assert_ironic_error
from tests.kit.clients import Client
from tests.kit.ironic import NEW, versions
from tests.kit.messages import Message, request, response
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import until
from tests.kit.workers import Gateway, Testbed

SURPLUS = response(200, body=b"nobody asked for this")
SOON = 2.0
"""Seconds that a test waits for the next step of the gateway."""
REQUESTS = pytest.mark.parametrize(
    "data",
    [request(), request("POST"), request("POST", body=b"x" * 20_000 + b"\r\n\r\n")],
    ids=["GET", "POST", "large POST"],
)


class RawBackend:
    """A server of which the test makes every step, without a turn of the event loop between two of them."""

    def __init__(self) -> None:
        self.listener = socket.create_server((LOOPBACK, 0))
        self.connections: list[socket.socket] = []

    def backend(self, name: str = "raw", weight: int = 1) -> Backend:
        port = self.listener.getsockname()[1]
        return Backend(name, LOOPBACK, port, weight=weight, declared=versions(NEW))

    async def accept(self) -> socket.socket:
        self.listener.setblocking(False)
        async with asyncio.timeout(SOON):
            connection, _ = await asyncio.get_running_loop().sock_accept(self.listener)
        connection.setblocking(False)
        self.connections.append(connection)
        return connection

    def close(self) -> None:
        for sock in (self.listener, *self.connections):
            sock.close()


@contextmanager
def raw_backend() -> Iterator[RawBackend]:
    backend = RawBackend()
    try:
        yield backend
    finally:
        backend.close()


async def received(connection: socket.socket) -> bytes:
    """The next request; empty if the gateway has closed the connection."""
    loop, data = asyncio.get_running_loop(), b""
    try:
        async with asyncio.timeout(SOON):
            while not data.endswith(b"\r\n\r\n") and (piece := await loop.sock_recv(connection, 65536)):
                data += piece
    except ConnectionResetError:  # closed with bytes that it had not read
        return b""
    return data


async def first_response(gateway: Gateway, backend: RawBackend, active: int = 0) -> socket.socket:
    """Have one request served; gives the connection to the backend, which then is idle. `active`: how many
    others are not."""
    client = await gateway.client()
    await client.send(request())
    connection = await backend.accept()
    await received(connection)
    connection.send(response(200, body=b"first"))
    assert (await client.response()).body == b"first"
    await until(lambda: gateway.worker.report().connections == {("baremetal", "raw"): (1, active)})
    return connection


async def second_response(client: Client, backend: RawBackend, data: bytes) -> Message:
    """Have the second request served on a new connection, as it must be."""
    method = data.partition(b" ")[0]
    connection = await backend.accept()
    message = await received(connection)
    assert message.startswith(method)
    assert message.partition(b"\r\n\r\n")[2] == data.partition(b"\r\n\r\n")[2]
    connection.send(response(200, body=b"second"))
    return await client.response(method.decode())


class _Trigger(asyncio.Protocol):
    """Calls a function in the turn of the event loop in which it is touched."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def data_received(self, data: bytes) -> None:
        self.action()


@asynccontextmanager
async def triggering(action: Callable[[], object]) -> AsyncIterator[socket.socket]:
    """A socket. After a byte was written to it, and what was readable before was read, `action` is called."""
    ours, theirs = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: _Trigger(action), sock=theirs)
    try:
        yield ours
    finally:
        transport.abort()
        ours.close()
        await asyncio.sleep(0)


def client_socket(client: Client) -> socket.socket:
    return socket.socket(fileno=socket.dup(client.writer.get_extra_info("socket").fileno()))


@REQUESTS
async def test_R_B5_bytes_that_arrive_together_with_the_next_request_are_not_its_response(
    testbed: Testbed, data: bytes
) -> None:
    """The gateway reads the request first, then the surplus response, and only then it writes."""
    with raw_backend() as backend:
        gateway = await testbed.gateway(backend.backend())
        idle = await first_response(gateway, backend)
        client = await gateway.client()
        with client_socket(client) as sock:
            sock.send(data)
            idle.send(SURPLUS)

        assert (await second_response(client, backend, data)).body == b"second"
        assert await received(idle) == b""


@pytest.mark.parametrize("data", [request(), request("POST", body=b"small\r\n\r\n")], ids=["GET", "POST"])
async def test_R_B5_bytes_that_nobody_has_read_are_noticed_before_the_request_is_written(
    testbed: Testbed, data: bytes
) -> None:
    """The surplus response arrives after the gateway has chosen the connection, and before it writes."""
    with raw_backend() as backend:
        gateway = await testbed.gateway(backend.backend())
        idle = await first_response(gateway, backend)
        client = await gateway.client()
        async with triggering(lambda: idle.send(SURPLUS)) as trigger:
            with client_socket(client) as sock:
                sock.send(data)
                trigger.send(b"!")

            assert (await second_response(client, backend, data)).body == b"second"
            assert await received(idle) == b""


async def test_R_B5_a_close_that_nobody_has_read_is_noticed_before_the_request_is_written(
    testbed: Testbed,
) -> None:
    """No byte was sent, so the request goes out on another connection, whatever its method."""
    data = request("POST")
    with raw_backend() as backend:
        gateway = await testbed.gateway(backend.backend())
        idle = await first_response(gateway, backend)
        client = await gateway.client()
        async with triggering(lambda: idle.shutdown(socket.SHUT_WR)) as trigger:
            with client_socket(client) as sock:
                sock.send(data)
                trigger.send(b"!")

            assert (await second_response(client, backend, data)).body == b"second"
            assert await received(idle) == b""


@REQUESTS
async def test_B5_bytes_on_an_idle_connection_close_it(testbed: Testbed, data: bytes) -> None:
    with raw_backend() as backend:
        gateway = await testbed.gateway(backend.backend())
        idle = await first_response(gateway, backend)
        client = await gateway.client()
        idle.send(SURPLUS)
        with client_socket(client) as sock:
            sock.send(data)

        assert (await second_response(client, backend, data)).body == b"second"


async def test_several_unusable_connections_in_a_row_are_dropped(testbed: Testbed) -> None:
    with raw_backend() as backend:
        gateway = await testbed.gateway(backend.backend())
        clients = [await gateway.client() for _ in range(3)]
        for client in clients:
            await client.send(request())
        idle = [await backend.accept() for _ in clients]
        for connection in idle:
            await received(connection)
            connection.send(response(200, body=b"first"))
        for client in clients:
            assert (await client.response()).body == b"first"
        for connection in idle:
            connection.send(SURPLUS)

        data = request("POST")
        await clients[0].send(data)

        assert (await second_response(clients[0], backend, data)).body == b"second"


# --- a new connection --------------------------------------------------------------------------------------


def hold_up() -> None:
    """Keep the event loop busy for a moment: whatever can arrive has arrived before its next turn."""
    time.sleep(0.005)


@contextmanager
def talking_first(backend: RawBackend) -> Iterator[list[bytes]]:
    """A thread that sends a response on every new connection at once; gives what it received."""
    stop, requests = threading.Event(), list[bytes]()
    backend.listener.setblocking(True)
    backend.listener.settimeout(0.05)

    def serve() -> None:
        while not stop.is_set():
            try:
                connection, _ = backend.listener.accept()
            except TimeoutError:
                continue
            backend.connections.append(connection)
            connection.setblocking(True)
            connection.sendall(SURPLUS)
            readable, _, _ = select.select([connection], [], [], 1)
            try:
                requests.append(connection.recv(65536) if readable else b"")
            except ConnectionResetError:
                requests.append(b"")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield requests
    finally:
        stop.set()
        thread.join()


async def response_in_a_busy_loop(client: Client) -> Message:
    answer = asyncio.get_running_loop().create_task(client.response("POST"))
    while not answer.done():
        hold_up()
        await asyncio.sleep(0)
    return answer.result()


async def test_R_B5_a_response_on_a_new_connection_before_the_request_is_not_taken(
    testbed: Testbed,
) -> None:
    """Nothing was sent, so another backend gets the request, whatever its method. Without one it is 503."""
    other = await testbed.backend()
    with raw_backend() as backend, talking_first(backend) as requests:
        gateway = await testbed.gateway(backend.backend())
        client = await gateway.client()
        await client.send(request("POST"))
        assert_ironic_error(await response_in_a_busy_loop(client), 503)

        gateway = await testbed.gateway(backend.backend(weight=1_000_000), other)
        client = await gateway.client()
        await client.send(request("POST"))
        answer = await response_in_a_busy_loop(client)

    assert (answer.status, answer.body) == (200, b'{"nodes": []}')
    assert [sent for sent in requests if sent] == []
    assert len(other.requests) == 1


@final
class ActingTransport(MemoryTransport):
    """Keeps what was written, and calls `action` for each write."""

    def __init__(self, sock: socket.socket, action: Callable[[], object]) -> None:
        super().__init__(sock)
        self._action = action
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self._action()

    def abort(self) -> None:
        self.aborted = True


async def test_R_B5_bytes_that_arrive_while_another_request_is_written_are_not_a_response() -> None:
    """Requests of one event-loop iteration are written together. So the kernel is asked for each of them, and
    not once for all (decision 0054)."""
    near, far = socket.socketpair()
    other_near, other_far = socket.socketpair()
    with near, far, other_near, other_far:
        lane = Lane(near)
        pool = lane.backend.pool
        assert isinstance(pool, ConnectionPool)
        pool.idle.clear()
        second = ActingTransport(near, lambda: None)
        first = ActingTransport(other_near, lambda: far.send(SURPLUS))
        for transport in (second, first):  # the one that was used last is taken first
            connection = BackendConnection(pool)
            connection.connection_made(transport)
            pool.on_idle(connection)
        for _ in range(2):
            lane.new_client().data_received(request())
        lane.flush()
        lane.close()
    assert first.written.startswith(b"GET ")
    assert (second.written, second.aborted) == (b"", True)
