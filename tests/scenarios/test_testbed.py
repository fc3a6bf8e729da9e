"""The comparison of responses finds every difference that a client sees, except the time of the response.

A fake server that stops leaves no connection open.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE
from tests.scenarios.fakes import Head, Ironic
from tests.scenarios.testbed import comparable

RESPONSE = Head("HTTP/1.1 200 OK", (("Date", "Sat, 21 Nov 2026 23:59:59 GMT"), ("Vary", "Accept")), b"body")


@pytest.mark.parametrize(
    "lines",
    [
        (("Date", "Sun, 22 Nov 2026 00:00:00 GMT"), ("Vary", "Accept")),
        (("Vary", "Accept"), ("date", "Sun, 22 Nov 2026 00:00:00 GMT")),
    ],
    ids=["a second later", "in another order"],
)
def test_the_time_of_a_response_makes_no_difference(lines: tuple[tuple[str, str], ...]) -> None:
    assert comparable(RESPONSE._replace(lines=lines)) == comparable(RESPONSE)


@pytest.mark.parametrize(
    "other",
    [
        RESPONSE._replace(start="HTTP/1.1 404 Not Found"),
        RESPONSE._replace(lines=(*RESPONSE.lines, ("Vary", "Accept"))),
        RESPONSE._replace(lines=(RESPONSE.lines[0], ("vary", "Accept"))),
        RESPONSE._replace(body=b"Body"),
    ],
    ids=["status", "a field twice", "the name of a field", "body"],
)
def test_every_other_difference_is_found(other: Head) -> None:
    assert comparable(other) != comparable(RESPONSE)


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_comes_just_before_the_end_is_closed(turns: int) -> None:
    """However far it has come: accepted by the system only, a transport, a protocol, or a handler."""
    server = Ironic(58)
    await server.start()
    with socket.create_connection((LOOPBACK, server.port)) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.close()
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionResetError):  # by the system
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
