"""A whole gateway in front of fakes, and a client that speaks bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from gateway.cli.gateway import Gateway
from gateway.core.offer import Phase
from gateway.core.snapshot import ServiceView, Snapshot
from gateway.settings import load
from tests.scenarios.fakes import END, HIGHEST, LOOPBACK, LOWEST, OWN, Head, Ironic, read_head, running

PATIENCE: Final = 20.0
"""Seconds after which something that should happen has not happened."""
VARY: Final = f"OpenStack-API-Version, {OWN}"


class Stand:
    """A gateway that runs, with one service, whose name is `service`."""

    service = "baremetal"

    def __init__(
        self, gateway: Gateway, servers: Sequence[Any], prefix: str, service: str | None = None
    ) -> None:
        self.service = service or self.service
        self.gateway = gateway
        self.servers = servers
        """Fakes of one kind."""
        self.prefix = prefix
        host, port = gateway.addresses[0]
        self.authority = f"{host}:{port}"
        self.base = f"http://{self.authority}{prefix}"
        """Where clients find the API."""

    @property
    def asked(self) -> list[Head]:
        """All that any backend was sent on behalf of clients."""
        return [head for server in self.servers for head in server.asked]

    @property
    def view(self) -> ServiceView:
        return self.gateway.cell.current.views[self.service]

    @property
    def offer(self) -> str:
        view = self.view
        return view.offer.versions.format(view.service.dialect.scheme)

    async def until(self, holds: Callable[[ServiceView], bool]) -> None:
        """Wait for the snapshot of which it holds."""
        came = asyncio.Event()

        def look(_: Snapshot, after: Snapshot) -> None:
            if holds(after.views[self.service]):
                came.set()

        leave = self.gateway.cell.subscribe(look)
        look(self.gateway.cell.current, self.gateway.cell.current)
        try:
            async with asyncio.timeout(PATIENCE):
                await came.wait()
        finally:
            leave()

    async def ask(
        self,
        target: str,
        *lines: tuple[str, str],
        method: str = "GET",
        body: bytes = b"",
        bodiless: bool = False,
    ) -> Head:
        """One request on a connection of its own; the reply as it was on the wire. `bodiless`: to a HEAD."""
        head = [f"{method} {self.prefix}{target} HTTP/1.1", f"Host: {self.authority}", "Connection: close"]
        head += [f"{name}: {value}" for name, value in lines]
        if body:
            head.append(f"Content-Length: {len(body)}")
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(*self.gateway.addresses[0])
            try:
                writer.write("\r\n".join(head).encode("latin-1") + END + body)
                reply = await read_head(reader, bodiless=bodiless)
                assert reply is not None, "closed without a reply"
                assert await reader.read() == b"", "something stands behind the reply"
            finally:
                writer.close()
        return reply

    async def at(self, version: str | None, target: str = "/v1/nodes") -> Head:
        """A request that names `version` in Ironic's own header, or none."""
        return await self.ask(target, *(() if version is None else ((OWN, version),)))


def told(reply: Head) -> tuple[str | None, str | None, str | None]:
    """Minimum, maximum and served version of a reply."""
    return reply.get(LOWEST), reply.get(HIGHEST), reply.get(OWN)


def configuration(
    ports: Sequence[int],
    *,
    offer: str = "{}",
    match: str = "{}",
    interval: str = "100ms",
    trusted: str = "[]",
) -> str:
    """A file with one Ironic service whose backends are at these ports of loopback."""
    lines = [
        "listen: 127.0.0.1:0",
        "admin: {listen: 127.0.0.1:0}",
        "access_log: {format: off}",
        f"trusted_proxies: {trusted}",
        "services:",
        "  baremetal:",
        "    dialect: ironic",
        f"    probe: {{interval: {interval}}}",
        f"    offer: {offer}",
        f"    match: {match}",
        "    backends:",
        *(
            f"      - {{name: api-{number}, url: 'http://{LOOPBACK}:{port}'}}"
            for number, port in enumerate(ports, 1)
        ),
    ]
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def in_front_of(
    *servers: Ironic, at: Sequence[int] = (), source: Path | None = None, **options: str
) -> AsyncIterator[Stand]:
    """A gateway on the code path of `run`, ready; with ports `at`, where nobody listens, it cannot be yet.

    `options` as of `configuration`; `source`: the file from which a reload reads.
    """
    async with running(*servers):
        text = configuration((*(server.port for server in servers), *at), **options)
        configured = load(text, filename="scenario.yaml", environ={}).require()
        async with Gateway(configured, source=source) as gateway:
            stand = Stand(gateway, servers, configured.services[0].match.prefix)
            if not at:
                await stand.until(lambda view: view.offer.phase is not Phase.UNKNOWN)
            yield stand


def description(reply: Head) -> str:
    """The text of an Ironic error, as the real client finds it."""
    inner = json.loads(json.loads(reply.body)["error_message"])
    text = inner.get("faultstring") or inner["description"]
    assert isinstance(text, str)
    return text
