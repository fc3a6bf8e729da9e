"""What a request allocates: nothing that stays, and few objects while it is under way.

Two connections with transports in memory, so that no event loop allocates beside them. The collector is off:
what a request leaves behind is counted as well if it is a cycle.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import AsyncIterator
from typing import final

import pytest

from bench.lane import Lane
from tests.kit.messages import VERSION_FIELD, request

REQUESTS = 1000
IN_FLIGHT = 16
"""Blocks that one request may hold while its backend works on it: its heads, exchange, attempt, record, and
the values in them."""
LEFT_BEHIND = 30
"""Blocks that may be new after all requests, whatever their number: dictionaries that have grown, free
lists."""

pytestmark = pytest.mark.interpreted("a compiled object takes other blocks")


@final
class Pair:
    """A client connection and a backend connection of a worker, and requests that pass through them."""

    def __init__(self, near: socket.socket) -> None:
        self.lane = Lane(near)
        self.client, self.backend = self.lane.new_client(), self.lane.backend

    def send(self, number: int) -> None:
        """A request with its own ids arrives, and is written to the backend."""
        head = request(
            "GET",
            f"/v1/nodes/{number}",
            f"{VERSION_FIELD}: 1.31",
            f"X-Openstack-Request-Id: req-0f5e7a9c-1b2d-4c3e-8f40-{number:012x}",
            f"X-Auth-Token: gAAAAABk{number:032x}",
        )
        self.client.data_received(head)
        self.lane.flush()

    def respond(self, number: int) -> None:
        """Its response arrives, and is written to the client."""
        head = (
            "HTTP/1.1 200 OK",
            f"X-Openstack-Request-Id: req-{number:012x}",
            f"{VERSION_FIELD}: 1.31",
            "Date: Sun, 06 Nov 1994 08:49:37 GMT",
            "Content-Length: 2",
            "",
            "{}",
        )
        self.backend.data_received("\r\n".join(head).encode())
        self.lane.flush()


@pytest.fixture(autouse=True)
def stages() -> None:
    """In place of the fixture that keeps every transition of every exchange; likewise the next ones."""


@pytest.fixture(autouse=True)
def backend_phases() -> None:
    """See `stages`."""


@pytest.fixture(autouse=True)
def client_phases() -> None:
    """See `stages`."""


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    near, far = socket.socketpair()
    with near, far:
        pair = Pair(near)
        for number in range(100):  # every table and cache is filled
            pair.send(number)
            pair.respond(number)
        assert pair.lane.client_side.written.startswith(b"HTTP/1.1 200")
        gc.collect()
        gc.disable()
        yield pair
        gc.enable()


async def test_a_request_leaves_nothing_behind(pair: Pair) -> None:
    before = sys.getallocatedblocks()
    for number in range(REQUESTS):
        pair.send(number)
        pair.respond(number)
        await asyncio.sleep(0)  # a turn of the loop

    assert sys.getallocatedblocks() - before < LEFT_BEHIND


async def test_a_request_under_way_holds_few_objects(pair: Pair) -> None:
    held = []
    for number in range(REQUESTS):
        await asyncio.sleep(0)
        before = sys.getallocatedblocks()
        pair.send(number)
        held.append(sys.getallocatedblocks() - before)
        pair.respond(number)

    assert sorted(held)[REQUESTS // 2] <= IN_FLIGHT
