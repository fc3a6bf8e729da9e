"""What stands in front of a fleet of the demonstration: the contract, and the gateway as one that keeps it.

`GatewayFront` is the gateway of `skewgate run`: `gateway.assembly.Gateway`, configured by `config.yaml`
beside this file. The other `Front` is HAProxy (`gateway.demo.haproxy`). Nothing here starts a server, sends a
request, or decides what is shown of it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.resources import files
from typing import Final, Protocol, final

from gateway import settings
from gateway.assembly import Gateway
from gateway.core.fleet.snapshot import Snapshot
from gateway.demo.fleet import BAREMETAL, CATALOG, EmbeddedFleet
from gateway.errors import StartupError
from gateway.keys.secrets import Secret
from gateway.runtime.terminal import print_error
from gateway.telemetry.status import ServiceStatus

USUAL_ADMIN_PORT: Final = settings.Admin().listen.port
"""Where the verbs look for a gateway, so that `skewgate status` beside the demonstration finds it."""

PREFIXES: Final = {BAREMETAL: "", CATALOG: "/catalog"}
"""As `match.path` in `config.yaml`."""


class Front(Protocol):
    """One thing that stands in front of an `EmbeddedFleet`.

    Made with a fleet of which all servers have started, so that their ports are known.
    """

    @property
    def name(self) -> str:
        """`skewgate`, `HAProxy 2.6.12, round robin`."""
        ...

    def url(self, service: str) -> str:
        """Where clients reach a service (`BAREMETAL`, `CATALOG`), once it has started: a URL without a slash
        at its end, to which a path such as `/v1/nodes` is added."""
        ...

    def status(self, service: str) -> ServiceStatus | None:
        """What it knows about the service at this moment; None: such a front knows nothing about versions."""
        ...

    async def start(self, stack: AsyncExitStack) -> None:
        """Return once requests are served, until `stack` ends. Raises `StartupError`."""
        ...


@final
class GatewayFront:
    """The gateway, by the same code path as `run`.

    `port` and `admin_port`: where it listens; 0: on any free port. `interval`: seconds between two probes.
    `token`: what the admin listener asks for; empty: nothing, and the operations page takes no commands.
    `changed` is called with each change of what is known or offered.
    """

    name = "skewgate"

    def __init__(
        self,
        fleet: EmbeddedFleet,
        *,
        interval: float,
        port: int = 0,
        admin_port: int = 0,
        token: str = "",
        changed: Callable[[Snapshot, Snapshot], None] = lambda before, after: None,
    ) -> None:
        self._fleet = fleet
        self._port = port
        self._admin_port = admin_port
        self._interval = interval
        self._token = token
        self._changed = changed
        self._gateway: Gateway | None = None

    async def start(self, stack: AsyncExitStack) -> None:
        """Start on the wanted ports. On any free one where a port is taken: one sentence says so of the port
        for clients, and none of that of the admin listener, which nobody asked for. Raises `StartupError`."""
        admin_port = self._admin_port if _is_free(self._admin_port) else 0
        try:
            self._gateway = await stack.enter_async_context(self._make(self._port, admin_port))
        except StartupError as problem:
            if self._port == admin_port == 0:
                raise
            if self._port:
                print_error(f"{problem}; a free port is used instead")
            self._gateway = await stack.enter_async_context(self._make(0, 0))

    @property
    def gateway(self) -> Gateway:
        """The gateway that runs."""
        assert self._gateway is not None
        return self._gateway

    @property
    def page(self) -> str:
        """URL of the operations page."""
        return f"{self.gateway.admin_url}/ui/"

    def url(self, service: str) -> str:
        """Where clients reach a service: one listener serves all of them."""
        host, port = self.gateway.addresses[0]
        return f"http://{host}:{port}{PREFIXES[service]}"

    def status(self, service: str) -> ServiceStatus | None:
        """What the gateway knows about the service at this moment."""
        return self.gateway.status().service(service)

    def _make(self, port: int, admin_port: int) -> Gateway:
        text = files(__package__).joinpath("config.yaml").read_text(encoding="utf-8")
        values = {
            "DEMO_PORT": str(port),
            "DEMO_ADMIN_PORT": str(admin_port),
            "DEMO_INTERVAL": f"{round(self._interval * 1000)}ms",
            "DEMO_STABILIZATION": f"{round(self._interval * 2000)}ms",
        }
        for server in self._fleet.servers:
            values[f"DEMO_{server.name.upper().replace('-', '_')}"] = str(server.port.number)
        configured = settings.load(text, filename="demo", environ=values).require()
        if self._token:
            configured = replace(configured, admin=replace(configured.admin, token=Secret(self._token)))
        gateway = Gateway(configured)
        gateway.snapshot_holder.subscribe(self._changed)
        return gateway


def _is_free(port: int) -> bool:
    """Whether one can listen on this port of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the event loop does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
