"""Pods: fake servers with addresses of their own and one port, behind a name, and a gateway in front."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from gateway.controlplane.discovery.discovery import Discovery
from gateway.controlplane.discovery.listers import lister_of
from gateway.controlplane.name_lookup import NameLookup
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.fleet.source import MAX_BACKENDS
from tests.kit.gateways import gateway_of
from tests.scenarios.fakes import Ironic
from tests.scenarios.testbed import Testbed

NAME: Final = "api.fleet.test"
OLD: Final = 58
NEW: Final = 90


class Pods:
    """All pods that a test has started, by the last number of their addresses, 127.0.0.N."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.servers: dict[int, Ironic] = {}
        self.port = 0

    async def start(self, number: int, highest: int = OLD) -> str:
        """Start one; gives its address."""
        server = Ironic(highest)
        server.host, server.port = f"127.0.0.{number}", self.port
        await server.start()
        self._stack.push_async_callback(server.close)
        self.servers[number], self.port = server, server.port
        return server.host


@asynccontextmanager
async def pods() -> AsyncIterator[Pods]:
    """None yet."""
    async with AsyncExitStack() as stack:
        yield Pods(stack)


def discovery(dns_port: int, folder: Path) -> Discovery:
    """One that asks the name server at this port of loopback."""
    (folder / "hosts").write_text("")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1\n")
    lookup = NameLookup(
        hosts=folder / "hosts",
        resolv_conf=folder / "resolv.conf",
        port=dns_port,
        max_addresses=MAX_BACKENDS + 1,
    )
    return Discovery(partial(lister_of, lookup=lookup))


def configuration(place: str, more: str = "", grace: str = "5m") -> str:
    """`place`: the source, in YAML."""
    return f"""\
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
access_log: {{format: "off"}}
timeouts: {{drain: 1s}}
{more}
services:
  baremetal:
    dialect: ironic
    backends: [{{{place}, leave_grace: {grace}}}]
    probe: {{interval: 250ms}}
    offer: {{stabilization: 0s}}
"""


@asynccontextmanager
async def gateway(text: str, found_by: Discovery, source: Path | None = None) -> AsyncIterator[Testbed]:
    """A whole gateway with this configuration. `source`: the file that it is from, for a reload."""
    async with gateway_of(text, source=source, discovery=found_by) as running:
        yield Testbed(running, (), "")


def there(view: ServiceView) -> dict[str, bool]:
    """Who is there, by address, and who of them is leaving."""
    return {member.backend.host: member.backend.leaving for member in view.members.all}


def is_leaving(number: int) -> Callable[[ServiceView], bool]:
    """Whether the pod at 127.0.0.N is leaving."""
    return lambda view: there(view).get(f"127.0.0.{number}", False)


def known(view: ServiceView) -> int:
    """Members that may get requests."""
    return len(view.by_version.everyone.members)
