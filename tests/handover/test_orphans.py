"""Workers whose parent is gone hand their listening sockets to the next gateway."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from gateway.dataplane.edge.listening_sockets import Inherited
from gateway.errors import StartupError
from gateway.handover.line import SUFFIX, path_of, short
from gateway.handover.orphan import NextGateway, offer_sockets
from gateway.handover.server import HandoverServer
from tests.handover.conftest import House, until
from tests.kit.waiting import PATIENCE


def of_group(count: int) -> list[socket.socket]:
    """Listening sockets of one address."""
    found: list[socket.socket] = []
    for _ in range(count):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", found[0].getsockname()[1] if found else 0))
        sock.listen(16)
        found.append(sock)
    return found


async def test_the_next_gateway_gets_the_sockets_of_all_orphans(house: House) -> None:
    sockets = of_group(2)
    port = sockets[0].getsockname()[1]
    written = f"127.0.0.1:{port}"
    offering = [
        asyncio.create_task(offer_sockets(house.path, [Inherited(sock, written)], slot=slot, workers=2))
        for slot, sock in enumerate(sockets)
    ]
    waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]

    gateway = await house.start(house.write(written))
    left = await asyncio.gather(*offering)
    for sock in sockets:  # as orphans do that have stopped accepting
        sock.close()
    assert gateway.parts.plan.handover.orphans_left()
    for each in left:
        each.close()

    for client in waiting:  # none of those that waited is lost
        client.sendall(b"GET /v1/nodes HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        client.settimeout(20)
        assert (await asyncio.to_thread(client.recv, 9)) == b"HTTP/1.1 "
        client.close()
    await until(lambda: not gateway.parts.plan.handover.orphans_left())


async def test_an_address_of_a_stranger_is_not_waited_for_long(house: House) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StartupError, match="is another gateway running"):
                await house.start(house.write(f"127.0.0.1:{other.getsockname()[1]}"))

    assert not house.path.exists()


async def test_an_orphan_goes_on_until_somebody_serves(house: House) -> None:
    """One that collects the sockets and dies has changed nothing."""
    [sock] = of_group(1)
    offering = asyncio.create_task(offer_sockets(house.path, [Inherited(sock, "x")], slot=0, workers=1))
    dies = HandoverServer(house.path)
    dies.start()
    [inherited] = await dies.orphans()
    assert inherited.sock.getsockname() == sock.getsockname()
    inherited.sock.close()
    await dies.close()
    assert not offering.done()

    lives = HandoverServer(house.path)
    lives.start()
    lives.take_orphans()

    found = await offering
    assert isinstance(found, NextGateway)
    assert lives.orphans_left
    found.close()
    await until(lambda: not lives.orphans_left)
    await lives.close()
    sock.close()


async def test_a_long_path_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    path = path_of(folder / "state.json")
    server = HandoverServer(path)
    server.start()
    server.take_orphans()

    (await offer_sockets(path, [], slot=0, workers=1)).close()

    assert path.name == f"state.json{SUFFIX}"
    await until(lambda: not server.orphans_left)
    await server.close()
    assert not path.exists()
    with short(tmp_path / "y") as name:
        assert name == str(tmp_path / "y")
