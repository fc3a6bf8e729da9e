"""What the gateway is compared with: a balancer in front of the same fleet, HAProxy where it is installed.

The balancer is set up as its manual says and gets the same chances as the gateway: the same servers, checks
as often as the gateway's probes, the same time to answer. What it loses, it loses because it knows no
versions. Nothing here judges that: the clients do, by the same code for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self, final

from gateway.demo.balancer import LOOPBACK, Balancer, Pool, RoundRobin, Target, Timing
from gateway.demo.embedded_fleet import EmbeddedFleet
from gateway.demo.haproxy_balancer import HAProxy, program

TIMEOUT: Final = 1.0
"""Seconds for a response: as `timeouts.backend_head` in `config.yaml`."""

MakeBalancer = Callable[[Sequence[Pool], Timing], Balancer]


def best_balancer(pools: Sequence[Pool], timing: Timing) -> Balancer:
    """HAProxy when it is installed, else the built-in balancer."""
    path = program()
    return HAProxy(path, pools, timing) if path else RoundRobin(pools, timing)


@final
class BalancerFront:
    """A balancer as a `Front`: each service has a port of its own, as is usual with balancers.

    `interval`: seconds between two health checks of a server. `make` makes the balancer.
    """

    def __init__(self, fleet: EmbeddedFleet, *, interval: float, make: MakeBalancer = best_balancer) -> None:
        pools = [
            Pool(each.name, tuple(Target(server.name, server.port.number) for server in each.servers))
            for each in fleet.services
        ]
        self._balancer = make(pools, Timing(interval, TIMEOUT))

    @property
    def name(self) -> str:
        """Product and method."""
        return self._balancer.name

    def url(self, service: str) -> str:
        """Where clients reach a service."""
        return f"http://{LOOPBACK}:{self._balancer.port(service)}"

    def status(self, service: str) -> None:
        """Nothing: a balancer knows no versions. Each response tells the range of the server that sent it."""
        return

    async def __aenter__(self) -> Self:
        """Start. Raises `StartupError`."""
        await self._balancer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._balancer.close()
