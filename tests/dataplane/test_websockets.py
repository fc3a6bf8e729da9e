"""WebSockets, with the `websockets` library on both ends: through the gateway everything is as it is direct.

Each test runs one course of events twice, once from the client to the server and once through the gateway,
and compares what both ends have seen.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import EXTERNAL_CLOSE_CODES, Frame, Opcode
from websockets.http11 import Request, Response

from gateway.core.fleet.backend import Backend
from gateway.dataplane.exchange.tunnel import Tunnel
from tests.kit.ironic import NEW, versions
from tests.kit.messages import KIB
from tests.kit.networks import LOOPBACK, reset
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway, Testbed

MIB: Final = KIB * KIB
TARGET: Final = "/v1/nodes"

Seen = list[object]
"""What one end has seen, in order."""
ServerPart = Callable[[ServerConnection, Seen], Awaitable[None]]
ClientPart = Callable[[ClientConnection, Seen], Awaitable[None]]


def closed(error: ConnectionClosed) -> object:
    """How a connection was closed: the codes and reasons of both close frames, and which came first."""
    frames = [frame and (frame.code, frame.reason) for frame in (error.rcvd, error.sent)]
    return type(error).__name__, *frames, error.rcvd_then_sent


async def receive(connection: ServerConnection | ClientConnection, seen: Seen) -> None:
    """Receive up to the end."""
    try:
        while True:
            message = await connection.recv()
            seen.append(message if len(message) < KIB else len(message))
    except ConnectionClosed as error:
        seen.append(closed(error))


async def echo(connection: ServerConnection, seen: Seen) -> None:
    """Send every message back."""
    try:
        async for message in connection:
            seen.append(message if len(message) < KIB else len(message))
            await connection.send(message)
    except ConnectionClosed:
        pass
    seen.append((connection.close_code, connection.close_reason))


@asynccontextmanager
async def fronted(
    testbed: Testbed, server: ServerPart, **options: Any
) -> AsyncIterator[tuple[int, Gateway, asyncio.Queue[Seen]]]:
    """A server and a gateway in front of it: the port of the server, the gateway, and what the server has
    seen of each connection."""
    timeouts = {name: options.pop(name) for name in ("tunnel_idle",) if name in options}
    all_seen: asyncio.Queue[Seen] = asyncio.Queue()

    async def handler(connection: ServerConnection) -> None:
        seen: Seen = []
        await server(connection, seen)
        all_seen.put_nowait(seen)

    async with serve(handler, LOOPBACK, 0, max_size=None, **options) as running:
        port = running.sockets[0].getsockname()[1]
        backend = Backend("api-1", LOOPBACK, port, declared=versions(NEW))
        yield port, await testbed.gateway(backend, upgrade=["websocket"], **timeouts), all_seen


async def both_ways(
    testbed: Testbed,
    client: ClientPart,
    server: ServerPart = echo,
    *,
    client_options: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> tuple[Seen, Seen]:
    """What client and server have seen, which must be the same through the gateway as direct."""
    results: list[tuple[Seen, Seen]] = []
    async with (
        fronted(testbed, server, **options) as (port, gateway, seen_by_server),
        asyncio.timeout(PATIENCE),
    ):
        for address in ((LOOPBACK, port), gateway.address):
            seen: Seen = []
            uri = "ws://{}:{}{}".format(*address, TARGET)
            async with connect(uri, proxy=None, max_size=None, **client_options) as connection:
                await client(connection, seen)
            results.append((seen, await seen_by_server.get()))
        assert (await gateway.recorded()).status == 101
    assert results[0] == results[1]
    return results[0]


# --- what passes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["deflate", None])
async def test_messages_of_every_kind(testbed: Testbed, compression: str | None) -> None:
    async def client(connection: ClientConnection, seen: Seen) -> None:
        seen.append(connection.subprotocol)
        for message in ("", "text", "ä€😀", b"", b"\x00\xff", "x" * 125, b"y" * 126, b"z" * 65_536):
            await connection.send(message)
            seen.append(await connection.recv() == message)
        await connection.send(["in ", "three ", "parts"])
        await connection.send([b"\x01", b"", b"\x02"])
        seen += [await connection.recv(), await connection.recv()]
        await (await connection.ping(b"payload of a ping"))
        await connection.pong(b"nobody has asked")
        await connection.close(1000, "done")
        seen.append((connection.close_code, connection.close_reason))

    options = {"compression": compression, "subprotocols": ["v2.x", "v1.x"]}
    client_saw, _ = await both_ways(
        testbed, client, client_options=options, compression=compression, subprotocols=["v1.x"]
    )
    assert client_saw == ["v1.x", *[True] * 8, "in three parts", b"\x01\x02", (1000, "done")]


def raw_frame(opcode: int, payload: bytes, *, masked: bool, fin: bool = True, rsv: int = 0) -> bytes:
    head = bytes([fin << 7 | rsv << 4 | opcode, masked << 7 | len(payload)])
    if not masked:
        return head + payload
    mask = b"\x01\x02\x03\x04"
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


@pytest.mark.parametrize("opcode", range(16))
@pytest.mark.parametrize("sender", ["client", "server"])
async def test_every_opcode_defined_or_not(testbed: Testbed, opcode: int, sender: str) -> None:
    """One that is reserved is refused by the end that gets it (RFC 6455 5.2), and nobody else."""
    payload = (1000).to_bytes(2, "big") + b"bye" if opcode == Opcode.CLOSE else b"data"

    async def send(connection: ClientConnection | ServerConnection, *, masked: bool) -> None:
        connection.transport.write(raw_frame(opcode, payload, masked=masked))
        if opcode in {Opcode.TEXT, Opcode.BINARY, Opcode.PING, Opcode.PONG}:
            await connection.close(1001)

    async def client(connection: ClientConnection, seen: Seen) -> None:
        if sender == "client":
            await send(connection, masked=True)
        await receive(connection, seen)

    async def server(connection: ServerConnection, seen: Seen) -> None:
        if sender == "server":
            await send(connection, masked=False)
        await receive(connection, seen)

    await both_ways(testbed, client, server)


@pytest.mark.parametrize("frame", ["fragment of a ping", "unmasked", "reserved bits", "not UTF-8"])
async def test_frames_that_are_refused(testbed: Testbed, frame: str) -> None:
    data = {
        "fragment of a ping": raw_frame(Opcode.PING, b"x", masked=True, fin=False),
        "unmasked": raw_frame(Opcode.TEXT, b"x", masked=False),
        "reserved bits": raw_frame(Opcode.TEXT, b"x", masked=True, rsv=3),
        "not UTF-8": raw_frame(Opcode.TEXT, b"\xff", masked=True),
    }[frame]

    async def client(connection: ClientConnection, seen: Seen) -> None:
        connection.transport.write(data)
        await receive(connection, seen)

    async def server(connection: ServerConnection, seen: Seen) -> None:
        await receive(connection, seen)

    client_saw, _ = await both_ways(testbed, client, server)
    assert "ConnectionClosedError" in str(client_saw)


CODES: Final = (*sorted(EXTERNAL_CLOSE_CODES), 3000, 3999, 4000, 4999)


@pytest.mark.parametrize("code", CODES)
async def test_every_close_code(testbed: Testbed, code: int) -> None:
    async def closes(connection: ClientConnection | ServerConnection, seen: Seen) -> None:
        await connection.close(code, f"because of {code}")
        await receive(connection, seen)

    async def receives(connection: ClientConnection | ServerConnection, seen: Seen) -> None:
        await receive(connection, seen)

    for client, server in ((closes, receives), (receives, closes)):
        client_saw, server_saw = await both_ways(testbed, client, server)
        assert str(code) in str(client_saw)
        assert f"because of {code}" in str(server_saw)


async def test_a_close_frame_without_a_code(testbed: Testbed) -> None:
    async def client(connection: ClientConnection, seen: Seen) -> None:
        connection.transport.write(Frame(Opcode.CLOSE, b"").serialize(mask=True))
        await receive(connection, seen)

    client_saw, server_saw = await both_ways(testbed, client)
    assert "1005" in str(client_saw)
    assert server_saw == [(1005, "")]


async def test_large_messages_both_ways_at_once(testbed: Testbed) -> None:
    """`tests/load` moves a gibibyte."""

    async def client(connection: ClientConnection, seen: Seen) -> None:
        message = os.urandom(4 * MIB)
        sending = asyncio.create_task(connection.send(message))
        seen.append(await connection.recv() == message)
        await sending
        await connection.close()
        seen.append(connection.close_code)

    client_saw, server_saw = await both_ways(
        testbed, client, compression=None, client_options={"compression": None}
    )
    assert (client_saw, server_saw) == ([True, 1000], [4 * MIB, (1000, "")])


def _passed(gateway: Gateway) -> int:
    """Bytes that have passed through the only tunnel, both ways."""
    (tunnel,) = gateway.worker.context.tunnels
    assert isinstance(tunnel, Tunnel)
    return tunnel._client.bytes_in + tunnel._upstream.bytes_in


async def test_pings_keep_a_tunnel_open(testbed: Testbed) -> None:
    async def server(connection: ServerConnection, seen: Seen) -> None:
        await receive(connection, seen)

    async with (
        fronted(testbed, server, ping_interval=0.01, tunnel_idle=10.0) as (_, gateway, _),
        connect("ws://{}:{}{}".format(*gateway.address, TARGET), proxy=None) as connection,
    ):
        gateway.clock.stop()
        for _ in range(5):
            passed = _passed(gateway)
            await until(lambda passed=passed: _passed(gateway) > passed)  # type: ignore[misc]
            gateway.turn(7.0)
        assert gateway.records == []
        await (await connection.ping())


# --- abrupt ends --------------------------------------------------------------------------------------------


def aborts(connection: ClientConnection | ServerConnection) -> None:
    connection.transport.abort()


def resets(connection: ClientConnection | ServerConnection) -> None:
    class Writer:
        transport = connection.transport
        get_extra_info = connection.transport.get_extra_info

    reset(Writer())  # type: ignore[arg-type]


def half_closes(connection: ClientConnection | ServerConnection) -> None:
    connection.transport.write_eof()


def stops_inside_a_frame(connection: ClientConnection | ServerConnection) -> None:
    connection.transport.write(raw_frame(Opcode.BINARY, b"x" * 100, masked=True)[:50])
    connection.transport.abort()


@pytest.mark.parametrize("ends", [aborts, resets, half_closes, stops_inside_a_frame])
@pytest.mark.parametrize("who", ["client", "server"])
async def test_abrupt_ends(
    testbed: Testbed, ends: Callable[[ClientConnection | ServerConnection], None], who: str
) -> None:
    async def client(connection: ClientConnection, seen: Seen) -> None:
        await connection.send("one")
        seen.append(await connection.recv())
        if who == "client":
            ends(connection)
        await receive(connection, seen)

    async def server(connection: ServerConnection, seen: Seen) -> None:
        seen.append(await connection.recv())
        await connection.send("two")
        if who == "server":
            seen.append(await connection.recv())
            ends(connection)
        await receive(connection, seen)

    async def talking_client(connection: ClientConnection, seen: Seen) -> None:
        await connection.send("one")
        seen.append(await connection.recv())
        await connection.send("go")
        await receive(connection, seen)

    client_saw, server_saw = await both_ways(testbed, client if who == "client" else talking_client, server)
    assert (client_saw[0], server_saw[0]) == ("two", "one")
    assert "ConnectionClosedError" in str(client_saw[-1])
    assert "ConnectionClosedError" in str(server_saw[-1])


# --- handshakes that fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [HTTPStatus.FORBIDDEN, HTTPStatus.UPGRADE_REQUIRED, HTTPStatus.OK])
async def test_a_server_that_refuses_the_handshake(testbed: Testbed, status: HTTPStatus) -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        return connection.respond(status, "not here\n")

    results = []
    async with fronted(testbed, echo, process_request=refuse) as (port, gateway, _):
        for address in ((LOOPBACK, port), gateway.address):
            with pytest.raises(InvalidStatus) as raised:
                await connect("ws://{}:{}{}".format(*address, TARGET), proxy=None)
            results.append((raised.value.response.status_code, raised.value.response.body))

    assert results == [(status, b"not here\n")] * 2


async def test_a_service_that_allows_no_websocket(testbed: Testbed) -> None:
    """The server gets an ordinary request, which it refuses itself."""
    async with fronted(testbed, echo) as (port, _, seen_by_server):
        backend = Backend("api-1", LOOPBACK, port, declared=versions(NEW))
        gateway = await testbed.gateway(backend, upgrade=["other"])
        with pytest.raises(InvalidStatus) as raised:
            await connect("ws://{}:{}{}".format(*gateway.address, TARGET), proxy=None)

    assert raised.value.response.status_code == 426
    assert seen_by_server.empty()
