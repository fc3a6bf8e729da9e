"""Two servers as in the demonstration, which many tests have behind a gateway, and an HTTP client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import aiohttp

from gateway.demo.ironic import NEW, IronicServer
from gateway.demo.servers import Release
from tests.kit.networks import LOOPBACK

OLD: Final = Release("Train (13.0)", 58)


class Fleet(NamedTuple):
    """`api-1` and `api-2`."""

    old: IronicServer
    new: IronicServer

    @property
    def entries(self) -> list[str]:
        """Both as entries of `backends` in a configuration."""
        return [f"{{name: {each.name}, url: 'http://{LOOPBACK}:{each.port}'}}" for each in self]


@asynccontextmanager
async def running_fleet(old: Release = OLD, new: Release = NEW) -> AsyncIterator[Fleet]:
    """Servers of 1.1-1.58 and 1.1-1.90, or of these releases."""
    fleet = Fleet(IronicServer("api-1"), IronicServer("api-2"))
    try:
        await fleet.old.start(old)
        await fleet.new.start(new)
        yield fleet
    finally:
        for server in fleet:
            await server.close()


def brief_session(**options: Any) -> aiohttp.ClientSession:
    """Keeps no connection: a gateway that ends would wait for the next request (`worker.IDLE_GRACE`)."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), **options)
