"""A gibibyte through WebSockets, both ways at once, while nothing waits in the gateway but two buffers."""

from __future__ import annotations

import asyncio
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from tests.kit.networks import LOOPBACK
from tests.kit.waiting import wait_until
from tests.real.gateway_process import Gateway

pytestmark = pytest.mark.load

MIB: Final = 1024 * 1024
MESSAGE: Final = os.urandom(MIB)
CONNECTIONS: Final = 4
"""Each of two workers gets one at least (`dataplane.edge.balance`)."""
TIMES: Final = 1024 // (2 * CONNECTIONS)
"""Messages of each connection. All of them come back."""
GROWTH: Final = 64 * MIB
"""Bytes by which all processes of the gateway together may grow: a sixteenth of what goes through them."""

CONFIGURATION: Final = """\
workers: {workers}
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin_port}"}}
access_log: {{path: {log}}}
services:
  console:
    dialect: ironic
    upgrade: [websocket]
    backends:
      - {{name: api-1, url: "http://127.0.0.1:{backend}", versions: 1.1-1.90}}
"""


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


async def test_a_gibibyte_through_websockets(tmp_path: Path, workers: int) -> None:
    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    log = tmp_path / "access.log"
    options: dict[str, Any] = {"compression": None, "max_size": None, "max_queue": 2}
    gateway = Gateway("tunnels", tmp_path / "gateway", {}, {})
    async with serve(echo, LOOPBACK, 0, **options) as server:
        text = CONFIGURATION.format(
            workers=workers,
            port=gateway.port,
            admin_port=gateway.admin_port,
            log=log,
            backend=server.sockets[0].getsockname()[1],
        )
        gateway.file.write_text(text)
        try:
            gateway.process.start()
            await asyncio.to_thread(gateway.process.wait_until, gateway.is_ready, "ready (/readyz 200)")
            connections = [
                await connect(f"ws://{LOOPBACK}:{gateway.port}/v1/nodes", proxy=None, **options)
                for _ in range(CONNECTIONS)
            ]
            shares = await asyncio.to_thread(clients_of_workers, gateway)
            pids = await asyncio.to_thread(processes_of, gateway)
            before = sum(map(forget_most_memory, pids))
            digests = await asyncio.gather(*(exchange(connection) for connection in connections))
            grown = sum(map(most_memory, pids)) - before
            for connection in connections:
                await connection.close()
            await asyncio.to_thread(wait_until, lambda: len(lines_of(log)) == CONNECTIONS, "a line for each")
        finally:
            gateway.process.stop()

    expected = sha256()
    for _ in range(TIMES):
        expected.update(MESSAGE)
    assert set(digests) == {expected.hexdigest()}
    assert len(shares) == workers
    assert min(shares) >= 1
    assert all(line["bytes_out"] > TIMES * MIB for line in lines_of(log))
    seconds = max(line["seconds"] for line in lines_of(log))
    print(f"a gibibyte in {seconds:.1f} s, {grown // MIB} MiB more memory")
    assert grown < GROWTH


def clients_of_workers(gateway: Gateway) -> list[float]:
    """How many connections each worker has."""
    metrics, name = gateway.metrics(), "skewgate_client_connections"
    return [metrics.total(name, **labels) for labels in metrics.labels(name)]


def processes_of(gateway: Gateway) -> set[int]:
    """The gateway and its workers."""
    _, text = gateway.admin("/status")
    return {gateway.process.pid, *(worker["pid"] for worker in json.loads(text)["workers"])}


def forget_most_memory(pid: int) -> int:
    """Have `most_memory` count from now on, and return what it is now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return most_memory(pid)


def most_memory(pid: int) -> int:
    """Bytes that this process has had resident at most."""
    (line,) = (
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")
    )
    return int(line.split()[1]) * 1024


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]
