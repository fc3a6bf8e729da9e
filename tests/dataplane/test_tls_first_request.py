"""TLS to backends: what lies unread on a new connection when the first request is about to be written.

Only on the loop of asyncio: uvloop writes the end of the handshake and the request in one turn.
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import select
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from tests.dataplane.backend_tls import raw_backend
from tests.kit.messages import request, response
from tests.kit.waiting import PATIENCE
from tests.kit.workers import Gateway, Testbed


def at_first_send(gateway: Gateway, action: Callable[[], None]) -> None:
    """Call `action` when a connection is there, and before the request is written on it, in the same turn."""
    context, calls = gateway.worker.context, iter((action,))

    def clock() -> float:
        if any(pool.connections for pool in gateway.worker.pools.by_key.values()):
            for call in calls:
                call()
        return monotonic()

    context.clock = clock


def wait_until_readable(gateway: Gateway, *, closed: bool) -> None:
    """What the backend has sent has arrived at the gateway, which has not read it."""
    (pool,) = gateway.worker.pools.by_key.values()
    (connection,) = pool.connections
    poll = select.poll()
    poll.register(
        connection.transport.get_extra_info("socket").fileno(), select.POLLRDHUP if closed else select.POLLIN
    )
    assert poll.poll(PATIENCE * 1000)


async def test_session_tickets_are_not_taken_for_a_response(testbed: Testbed, tmp_path: Path) -> None:
    """They may lie unread when the first request is written, and look like data."""
    async with raw_backend(tmp_path) as backend:
        gateway = await testbed.gateway(backend.backend)
        client = await gateway.client()

        def send_tickets() -> None:
            backend.peers[0].finish_handshake()
            wait_until_readable(gateway, closed=False)

        at_first_send(gateway, send_tickets)
        await client.send(request("POST", body=b""))
        peer = await backend.accept()
        await peer.begin_handshake()
        assert (await peer.read_until(b"\r\n\r\n")).startswith(b"POST ")
        await peer.send(response(200, body=b"yes"))

        assert (await client.response("POST")).body == b"yes"
        assert len(backend.peers) == 1


async def test_R_B5_a_close_that_nobody_has_read_is_noticed(testbed: Testbed, tmp_path: Path) -> None:
    async with raw_backend(tmp_path) as backend:
        gateway = await testbed.gateway(backend.backend)
        client = await gateway.client()

        def close() -> None:
            backend.peers[0].finish_handshake()
            backend.peers[0].socket.close()
            wait_until_readable(gateway, closed=True)

        at_first_send(gateway, close)
        await client.send(request("POST", body=b""))
        await (await backend.accept()).begin_handshake()

        assert (await client.response("POST")).status == 503
        assert (await gateway.recorded()).reason == "not_sent"
