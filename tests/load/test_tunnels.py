"""A gibibyte through WebSockets, both ways at once, while nothing waits in the gateway but two buffers."""

from __future__ import annotations

import asyncio
import os
import resource
from hashlib import sha256
from typing import Any, Final

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from gateway.core.fleet.backend import Backend
from tests.dataplane.testbed import LOOPBACK, NEW, Testbed, versions

pytestmark = pytest.mark.load

MIB: Final = 1024 * 1024
MESSAGE: Final = os.urandom(MIB)
CONNECTIONS: Final = 4
TIMES: Final = 1024 // (2 * CONNECTIONS)
"""Messages of each connection. All of them come back."""


async def exchange(connection: ClientConnection) -> str:
    """Send all messages and receive as many; gives the digest of what came."""
    digest = sha256()

    async def send() -> None:
        for _ in range(TIMES):
            await connection.send(MESSAGE)

    sending = asyncio.create_task(send())
    for _ in range(TIMES):
        message = await connection.recv()
        assert isinstance(message, bytes)
        digest.update(message)
    await sending
    return digest.hexdigest()


async def test_a_gibibyte_through_websockets() -> None:
    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    testbed = Testbed()
    options: dict[str, Any] = {"compression": None, "max_size": None, "max_queue": 2}
    async with serve(echo, LOOPBACK, 0, **options) as server:
        port = server.sockets[0].getsockname()[1]
        backend = Backend("api-1", LOOPBACK, port, declared=versions(NEW))
        gateway = await testbed.gateway(backend, upgrade=["websocket"])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        connections = [
            await connect("ws://{}:{}/v1/nodes".format(*gateway.address), proxy=None, **options)
            for _ in range(CONNECTIONS)
        ]
        digests = await asyncio.gather(*(exchange(connection) for connection in connections))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        for connection in connections:
            await connection.close()
        records = [await gateway.recorded(number) for number in range(1, CONNECTIONS + 1)]
    await testbed.close()

    expected = sha256()
    for _ in range(TIMES):
        expected.update(MESSAGE)
    assert set(digests) == {expected.hexdigest()}
    assert all(record.bytes_out > TIMES * MIB for record in records)
    print(f"a gibibyte in {max(record.seconds for record in records):.1f} s, {grown // 1024} MiB more memory")
    assert grown < 256 * 1024
