"""A backend at any address of loopback that needs a new connection for each request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.demo.ironic import HIGHEST, LOWEST, SERVED


@asynccontextmanager
async def backend(host: str, port: int = 0) -> AsyncIterator[tuple[asyncio.Server, list[str]]]:
    """An Ironic of 1.1 to 1.90, and what it received. It closes each connection after one response."""
    received: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            received.append(head.split()[1])
            writer.write(
                f"HTTP/1.1 200 OK\r\n{SERVED}: 1.1\r\n{LOWEST}: 1.1\r\n{HIGHEST}: 1.90\r\n"
                "Connection: close\r\nContent-Type: application/json\r\n"
                'Content-Length: 12\r\n\r\n{"id": "v1"}'.encode()
            )
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, host, port) as server:
        yield server, received
