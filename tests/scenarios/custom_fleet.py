"""API servers with a version in any location, and a gateway that knows them from its configuration alone.

The servers are built on the bare sockets of `fakes`: they keep every request that they received, and know
nothing of the gateway. A server looks for the version in one location, serves its own versions only, and
sends the version that it served.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from gateway.assembly import Gateway
from tests.scenarios.fakes import ApiServer, Head, message
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


class CustomTestbed(Testbed):
    """A running gateway with one service `api`. Tests write whole paths, with the prefix of the service."""

    service = "api"

    def __init__(self, gateway: Gateway, servers: Sequence[Any], prefix: str) -> None:
        super().__init__(gateway, servers, "")


def in_front_of(*servers: Versioned, **more: Any) -> AbstractAsyncContextManager[CustomTestbed]:
    """A gateway in front of `servers` that knows what they serve. `custom`: the options of the dialect."""
    for server in servers:
        server.common = servers[0].common
    return CustomTestbed.in_front_of(*servers, dialect="custom", **more)


def last(testbed: Testbed) -> Head:
    """The request that was forwarded last, to any server."""
    server = testbed.servers[0]
    assert isinstance(server, Versioned)
    return server.common[-1]
