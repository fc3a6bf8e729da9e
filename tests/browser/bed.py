"""The fleet in front of which the gateway of these tests stands: two services, whose servers a test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from gateway.demo.ironic import NEW, SERVED, IronicServer
from tests.browser.gateway import TOKEN, GatewayProcess
from tests.kit.fleets import OLD

SERVICE: Final = "baremetal"
OTHER: Final = "staging"
"""A second service, at this first path segment."""
NAMES: Final = ("api-1", "api-2", "api-3", "api-4")
OTHER_NAMES: Final = ("spare-1", "spare-2")


class Bed(NamedTuple):
    """`servers`: by backend name."""

    gateway: GatewayProcess
    servers: Mapping[str, IronicServer]

    def page(self, path: str = "/ui/") -> str:
        return f"{self.gateway.admin}{path}"

    @property
    def service_page(self) -> str:
        return self.page(f"/ui/services/{SERVICE}")

    async def ask(
        self, version: str, times: int = 1, *, path: str = "/v1/nodes", agent: str = "curl/8"
    ) -> list[int]:
        """Send requests as a client of this version, or of none; the statuses."""
        statuses = []
        for _ in range(times):
            headers = {"User-Agent": agent, **({SERVED: version} if version else {})}
            async with self.gateway.session.get(f"{self.gateway.url}{path}", headers=headers) as response:
                statuses.append(response.status)
        return statuses

    async def upgrade(self, *names: str) -> None:
        """One server after the other is stopped and started with the new release."""
        for name in names:
            await self.servers[name].stop()
            await self.servers[name].start(NEW)

    async def offers(self, text: str) -> None:
        """Wait until this range is on offer, by the gateway's own word."""
        await self.gateway.offers(SERVICE, text)


QUICK: Final = "    offer: {stabilization: 300ms}\n"


def _service(name: str, path: str, servers: Mapping[str, IronicServer], keys: str = QUICK) -> str:
    backends = "".join(
        f"      - {{name: {each}, url: 'http://127.0.0.1:{server.port}'}}\n"
        for each, server in servers.items()
    )
    return (
        f"  {name}:\n    dialect: ironic\n    match: {{path: {path}}}\n    probe: {{interval: 200ms}}\n"
        f"{keys}    backends:\n{backends}"
    )


@asynccontextmanager
async def running(
    folder: Path,
    *,
    token: str | None = TOKEN,
    upgraded: Sequence[str] = ("api-4",),
    workers: int = 1,
    other: str = QUICK,
    clients: str = "",
) -> AsyncIterator[Bed]:
    """A gateway that is ready. `upgraded`: servers of the first service that begin with the new release;
    `other`: lines of the second one; `clients`: lines of that section."""
    servers = {name: IronicServer(name) for name in (*NAMES, *OTHER_NAMES)}
    for name, server in servers.items():
        await server.start(NEW if name in upgraded or name in OTHER_NAMES else OLD)
    gateway = GatewayProcess(folder, token=token, workers=workers)
    gateway.configure_services(
        _service(SERVICE, "/", {name: servers[name] for name in NAMES})
        + _service(OTHER, f"/{OTHER}", {name: servers[name] for name in OTHER_NAMES}, other)
        + clients
    )
    try:
        await gateway.start_ready()
        yield Bed(gateway, servers)
    finally:
        await gateway.close()
        for server in servers.values():
            await server.close()
