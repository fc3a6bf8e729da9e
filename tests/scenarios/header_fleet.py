"""API servers whose version stands in any place, and a gateway that knows them from its configuration alone.

Built on the bare sockets of `fakes`: they remember every byte that they were sent and know nothing of the
gateway. A server finds the version in one place, serves its own versions only, and says which one it served.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from gateway.cli.gateway import Gateway
from gateway.core.offer import Phase
from gateway.core.snapshot import Snapshot
from gateway.settings import load
from tests.scenarios.fakes import LOOPBACK, Head, Ironic, message, running
from tests.scenarios.stand import PATIENCE, Stand

Find = Callable[[Head], str | None]
"""Where a server looks for the version; None: there is none."""

SERVED: Final = "X-Served"
DOCUMENT: Final = "/versions"


class Versioned(Ironic):
    """One server. Without a version it serves its newest one: what the gateway must never leave to it."""

    def __init__(self, versions: Sequence[str], find: Find) -> None:
        super().__init__(None)
        self.versions = list(versions)
        self.find = find
        self.common: list[Head] = []
        """What all servers of the fleet were sent on behalf of clients, in order."""

    def _reply(self, head: Head) -> bytes:
        if head.all("Via"):
            self.common.append(head)
        path = head.target.partition("?")[0]
        if path == "/health":
            return message(200, b'"well"')
        if path == DOCUMENT:
            told = {"all": self.versions, "oldest": self.versions[0], "newest": self.versions[-1]}
            return message(200, json.dumps(told).encode())
        version = self.find(head) or self.versions[-1]
        if version not in self.versions:
            self.refused.append(head)
            return message(400, json.dumps({"message": "no such version"}).encode())
        return message(200, json.dumps({"executed": version}).encode(), lines=((SERVED, version),))


@asynccontextmanager
async def described(
    options: str, *servers: Versioned, backends: str = "", match: str = "{}"
) -> AsyncIterator[Stand]:
    """A gateway in front of `servers`, with these options (YAML in braces) of the `header` dialect."""
    for server in servers:
        server.common = servers[0].common
    async with running(*servers):
        listed = "\n".join(
            f"      - {{name: api-{number}, url: 'http://{LOOPBACK}:{server.port}'{backends}}}"
            for number, server in enumerate(servers, 1)
        )
        text = (
            "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\naccess_log: {format: off}\n"
            f"services:\n  api:\n    dialect: header\n    probe: {{interval: 100ms}}\n    match: {match}\n"
            f"    header: {options}\n"
            f"    backends:\n{listed}\n"
        )
        loaded = load(text, filename="scenario.yaml", environ={})
        async with Gateway(loaded.require(), source=None) as gateway:
            came = asyncio.Event()

            def look(_: Snapshot, after: Snapshot) -> None:
                if after.views["api"].offer.phase is not Phase.UNKNOWN:
                    came.set()

            leave = gateway.cell.subscribe(look)
            look(gateway.cell.current, gateway.cell.current)
            async with asyncio.timeout(PATIENCE):
                await came.wait()
            leave()
            yield Stand(gateway, servers, "")


def last(stand: Stand) -> Head:
    """What a server was sent last on behalf of a client."""
    server = stand.servers[0]
    assert isinstance(server, Versioned)
    return server.common[-1]
