"""A start with sockets of systemd, in which clients wait: they get an answer that holds, or are told in time
that there is none."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from gateway.assembly import serving
from gateway.dataplane.edge.listening_sockets import Inherited
from gateway.demo.ironic import NEW, SERVED, IronicServer
from gateway.handover.inheritance import Inheritance
from tests.handover.conftest import House
from tests.kit.fleets import OLD


@pytest.fixture
async def waiting(house: House, servers: tuple[IronicServer, IronicServer]) -> AsyncIterator[socket.socket]:
    """The socket of systemd. The servers are down, and nothing is known of them."""
    for server in servers:
        await server.stop()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        house.write(f"127.0.0.1:{listening.getsockname()[1]}")
        yield listening


def ask(house: House, listening: socket.socket) -> asyncio.Task[int]:
    """The status that a client gets that is there before the gateway."""

    async def status() -> int:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/nodes"
        async with house.session.get(url, headers={SERVED: "1.31"}) as response:
            return response.status

    return asyncio.get_running_loop().create_task(status())


async def test_who_waits_in_a_socket_of_systemd_is_served_by_the_first_offer(
    house: House, waiting: socket.socket, servers: tuple[IronicServer, IronicServer]
) -> None:
    asked = ask(house, waiting)
    passed = Inheritance((Inherited(waiting.dup(), managed=True),))
    starting = asyncio.get_running_loop().create_task(
        house.start(house.folder / "skewgate.yaml", passed=passed)
    )
    done, _ = await asyncio.wait({asked, starting}, timeout=0.5)
    assert not done

    await servers[0].start(OLD)
    await servers[1].start(NEW)

    assert await asked == 200
    await starting


async def test_without_an_offer_those_who_wait_are_told_so(
    house: House, waiting: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "FIRST_OFFER", 0.3)
    asked = ask(house, waiting)
    passed = Inheritance((Inherited(waiting.dup(), managed=True),))

    await house.start(house.folder / "skewgate.yaml", passed=passed)

    assert await asked == 503
