"""The gateway in front of a fleet of the demonstration: that of `skewgate run`, configured by `config.yaml`.

`gateway.demo.haproxy` has the front that it is compared with. Nothing here starts a server, sends a request,
or decides what is shown.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import ClassVar, Final, final

from gateway import settings
from gateway.assembly import Gateway
from gateway.core.fleet.snapshot import Snapshot
from gateway.demo.fleet import BAREMETAL, CATALOG, EmbeddedFleet
from gateway.errors import StartupError
from gateway.keys.secrets import Secret
from gateway.runtime.terminal import print_error
from gateway.settings.sections.admin import Admin
from gateway.telemetry.status import ServiceStatus

USUAL_ADMIN_PORT: Final = Admin().listen.port
"""Default port of the admin listener, where `skewgate status` finds the demonstration's gateway."""

PREFIXES: Final = {BAREMETAL: "", CATALOG: "/catalog"}
"""Path prefix of each service: `match.path` in `config.yaml`."""


@final
@dataclass(slots=True)
class GatewayFront:
    """The gateway in front of a started fleet.

    `port` and `admin_port`: 0 for any free port. `interval`: seconds between two probes. `token`: that of the
    admin listener; without one the operations page takes no commands. `changed`: called with each change of
    the snapshot.
    """

    name: ClassVar = "skewgate"

    fleet: EmbeddedFleet
    interval: float
    port: int = 0
    admin_port: int = 0
    token: str = ""
    changed: Callable[[Snapshot, Snapshot], None] = lambda before, after: None
    _gateway: Gateway | None = field(default=None, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        """Start the gateway, and stop it when `stack` ends. If a port is taken, a free one is used instead,
        with a message unless it is the admin listener's default port. Raises `StartupError`."""
        admin_port = self.admin_port if _is_free(self.admin_port) else 0
        try:
            self._gateway = await stack.enter_async_context(self._make(self.port, admin_port))
        except StartupError as problem:
            if self.port == admin_port == 0:
                raise
            if self.port:
                print_error(f"{problem}; a free port is used instead")
            self._gateway = await stack.enter_async_context(self._make(0, 0))

    @property
    def gateway(self) -> Gateway:
        assert self._gateway is not None
        return self._gateway

    @property
    def page(self) -> str:
        return f"{self.gateway.admin_url}/ui/"

    def url(self, service: str) -> str:
        """Return the base URL of a service, without a slash at the end."""
        host, port = self.gateway.addresses[0]
        return f"http://{host}:{port}{PREFIXES[service]}"

    def status(self, service: str) -> ServiceStatus | None:
        return self.gateway.status().service(service)

    def _make(self, port: int, admin_port: int) -> Gateway:
        text = files(__package__).joinpath("config.yaml").read_text(encoding="utf-8")
        values = {
            "DEMO_PORT": str(port),
            "DEMO_ADMIN_PORT": str(admin_port),
            "DEMO_INTERVAL": f"{round(self.interval * 1000)}ms",
            "DEMO_STABILIZATION": f"{round(self.interval * 2000)}ms",
        }
        for server in self.fleet.servers:
            values[f"DEMO_{server.name.upper().replace('-', '_')}"] = str(server.port)
        configured = settings.load(text, filename="demo", environ=values).require()
        if self.token:
            configured = replace(configured, admin=replace(configured.admin, token=Secret(self.token)))
        gateway = Gateway(configured)
        gateway.snapshot_holder.subscribe(self.changed)
        return gateway


def _is_free(port: int) -> bool:
    """Whether a loopback port can be bound now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the event loop does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
