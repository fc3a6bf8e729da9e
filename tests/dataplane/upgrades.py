"""What the tests of tunnels share: requests that ask for one, backends that switch, what waits inside."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.dataplane.exchange.tunnel import Tunnel
from tests.kit.backends import Script, UpstreamConnection
from tests.kit.clients import Client
from tests.kit.messages import KIB, request
from tests.kit.waiting import PATIENCE, until
from tests.kit.workers import Gateway

ASKS: Final = ("Connection: Upgrade", "Upgrade: echo")
UPGRADE: Final = request("GET", "/v1/nodes", *ASKS)
SWITCHES: Final = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
ALLOWED: Final = ("echo", "other/2")


async def echo(upstream: UpstreamConnection) -> None:
    """Switch, and send back what comes, up to its end."""
    await upstream.head()
    await upstream.send(SWITCHES)
    while data := await upstream.reader.read(64 * KIB):
        await upstream.send(data)


def switching(head: bytes = SWITCHES, *, body: bool = False) -> Script:
    """Switch with this head, and wait for the end of the connection."""

    async def script(upstream: UpstreamConnection) -> None:
        await (upstream.request() if body else upstream.head())
        await upstream.send(head)
        await upstream.ended()

    return script


async def exactly(client: Client, size: int) -> bytes:
    """So many bytes that have come to the client."""
    async with asyncio.timeout(PATIENCE):
        return await client.reader.readexactly(size)


async def waiting_in(gateway: Gateway) -> int:
    """Bytes that wait in the only tunnel, once one of its sides is read no more."""
    (tunnel,) = gateway.worker.context.tunnels
    assert isinstance(tunnel, Tunnel)
    transports = [end.transport for end in (tunnel._client, tunnel._upstream)]
    await until(lambda: not all(transport.is_reading() for transport in transports))
    return sum(transport.get_write_buffer_size() for transport in transports)
