"""API servers with a version in any location, and a gateway that knows them from its configuration alone.

The servers are built on the bare sockets of `fakes`: they keep every request that they received, and know
nothing of the gateway. A server looks for the version in one location, serves its own versions only, and
sends the version that it served.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from gateway.assembly import Gateway
from gateway.core.fleet.offer import Phase
from gateway.settings import load
from tests.scenarios.fakes import LOOPBACK, ApiServer, Head, message, running
from tests.scenarios.testbed import Testbed

Find = Callable[[Head], str | None]
"""Where a server looks for the version. None: the request has no version."""

SERVED: Final = "X-Served"
DOCUMENT: Final = "/versions"


class Versioned(ApiServer):
    """One server. A request without a version gets its newest one, which the gateway must never allow."""

    def __init__(self, versions: Sequence[str], find: Find) -> None:
        super().__init__()
        self.versions = list(versions)
        self.find = find
        self.common: list[Head] = []
        """The forwarded requests of all servers of the fleet, in order."""

    def _response(self, head: Head) -> bytes:
        if head.all("Via"):
            self.common.append(head)
        path = head.target.partition("?")[0]
        if path == "/health":
            return message(200, b'"well"')
        if path == DOCUMENT:
            document = {"all": self.versions, "oldest": self.versions[0], "newest": self.versions[-1]}
            return message(200, json.dumps(document).encode())
        version = self.find(head) or self.versions[-1]
        if version not in self.versions:
            self.refused.append(head)
            return message(400, json.dumps({"message": "no such version"}).encode())
        return message(200, json.dumps({"executed": version}).encode(), lines=((SERVED, version),))


@asynccontextmanager
async def in_front_of(
    *servers: Versioned, custom: str, default_version: str = "minimum", backends: str = "", match: str = "{}"
) -> AsyncIterator[Testbed]:
    """A gateway in front of `servers` that knows what they serve. `custom`: the options of the dialect, as
    YAML; `backends`: more keys of each backend."""
    for server in servers:
        server.common = servers[0].common
    async with running(*servers):
        listed = "\n".join(
            f"      - {{name: api-{number}, url: 'http://{LOOPBACK}:{server.port}'{backends}}}"
            for number, server in enumerate(servers, 1)
        )
        text = (
            "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\naccess_log: {format: off}\n"
            f"services:\n  api:\n    dialect: custom\n    default_version: {default_version}\n"
            f"    probe: {{interval: 100ms}}\n    match: {match}\n"
            f"    custom: {custom}\n"
            f"    backends:\n{listed}\n"
        )
        configured = load(text, filename="scenario.yaml", environ={}).require()
        async with Gateway(configured, source=None) as gateway:
            testbed = Testbed(gateway, servers, "", "api")
            await testbed.until(lambda view: view.offer.phase is not Phase.UNKNOWN)
            yield testbed


def last(testbed: Testbed) -> Head:
    """The request that was forwarded last, to any server."""
    server = testbed.servers[0]
    assert isinstance(server, Versioned)
    return server.common[-1]
