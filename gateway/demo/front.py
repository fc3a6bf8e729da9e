"""What stands in front of a fleet of the demonstration: the contract, and the gateway as one that keeps it.

`GatewayFront` is the gateway of `skewgate run`: `gateway.assembly.Gateway`, configured by `config.yaml`
beside this file. A balancer to compare it with is another `Front` (`gateway.demo.comparison`). Nothing here
starts a server, sends a request, or decides what is shown of it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.resources import files
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, final

from gateway import settings
from gateway.assembly import Gateway
from gateway.core.fleet.offer import HeldRule
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.demo.embedded_fleet import BAREMETAL, CATALOG, EmbeddedFleet
from gateway.errors import StartupError
from gateway.keys.secrets import Secret
from gateway.runtime.terminal import print_error
from gateway.telemetry.status import ServiceStatus

USUAL_ADMIN_PORT: Final = settings.Admin().listen.port
"""Where the verbs look for a gateway, so that `skewgate status` beside the demonstration finds it."""


class Front(Protocol):
    """One thing that stands in front of an `EmbeddedFleet`. It serves inside `async with`.

    Made with a fleet of which all servers have started, so that their ports are known.
    """

    @property
    def name(self) -> str:
        """`skewgate`, `HAProxy 2.6.12, round robin`."""
        ...

    def url(self, service: str) -> str:
        """Where clients reach a service (`BAREMETAL`, `CATALOG`): a URL without a slash at its end, to which
        a path such as `/v1/nodes` is added. Has a meaning only inside `async with`."""
        ...

    def status(self, service: str) -> ServiceStatus | None:
        """What it knows about the service at this moment; None: such a front knows nothing about versions."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Ports(NamedTuple):
    """Where the gateway listens; 0: on any free port."""

    clients: int = 0
    admin: int = 0


@final
class GatewayFront:
    """The gateway, by the same code path as `run`.

    `interval` is the time between two probes, in seconds. `token`: for the admin listener; empty: none is
    asked for there, and commands on the operations page are off. `changed` is called with each change of what
    is known or offered.
    """

    name = "skewgate"

    def __init__(
        self,
        fleet: EmbeddedFleet,
        ports: Ports,
        *,
        interval: float,
        token: str = "",
        changed: Callable[[Snapshot, Snapshot], None] = lambda before, after: None,
    ) -> None:
        self._fleet = fleet
        self._ports = ports
        self._interval = interval
        self._token = token
        self._changed = changed
        self._gateway: Gateway | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start on the wanted ports. On any free one where a port is taken: one sentence says so of the port
        for clients, and none of that of the admin listener, which nobody asked for. Raises `StartupError`."""
        admin = self._ports.admin if _is_free(self._ports.admin) else 0
        try:
            await self._enter(Ports(self._ports.clients, admin))
        except StartupError as problem:
            if self._ports.clients == admin == 0:
                raise
            if self._ports.clients:
                print_error(f"{problem}; a free port is used instead")
            await self._enter(Ports())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

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
        return f"http://{host}:{port}{_PREFIXES[service]}"

    def status(self, service: str) -> ServiceStatus | None:
        """What the gateway knows about the service at this moment."""
        return self.gateway.status().service(service)

    async def _enter(self, ports: Ports) -> None:
        text = files(__package__).joinpath("config.yaml").read_text(encoding="utf-8")
        values = {
            "DEMO_PORT": str(ports.clients),
            "DEMO_ADMIN_PORT": str(ports.admin),
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
        await self._stack.enter_async_context(gateway)
        self._gateway = gateway


_PREFIXES: Final = {BAREMETAL: "", CATALOG: "/catalog"}
"""As `match.path` in `config.yaml`."""


def held_sentence(view: ServiceView) -> str:
    """What holds the offer of a service, and who must move: one short sentence. Empty: nothing holds it."""
    offer = view.offer
    versions = offer.held.versions.format(view.service.dialect.scheme) if offer.held.versions else ""
    who = " and ".join(offer.held_by) if len(offer.held_by) <= 2 else ", ".join(offer.held_by)
    match offer.held_rule:
        case HeldRule.GUARANTEED | HeldRule.AT_LEAST:
            return f"{versions} waits for {who}: upgrade {'it' if len(offer.held_by) == 1 else 'them'}"
        case HeldRule.STATE:
            return f"{versions} stays on offer until {who} move{'s' if len(offer.held_by) == 1 else ''}"
        case HeldRule.STABILIZATION:
            return f"{versions} is offered once it has stood for a moment"
        case HeldRule.CEILING:
            return f"{versions} is hidden by a ceiling"
        case HeldRule.AGREEMENT:
            return f"{versions} waits for all replicas"
        case None:
            return ""


def _is_free(port: int) -> bool:
    """Whether one can listen on this port of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the event loop does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
