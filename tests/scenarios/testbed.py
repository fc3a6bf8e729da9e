"""A whole gateway in front of fake servers, and a client that sends and reads bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from gateway.assembly import Gateway
from gateway.core.fleet.offer import Phase
from gateway.core.fleet.snapshot import ServiceView
from tests.kit.gateways import gateway_of
from tests.kit.ironic import until_snapshot
from tests.kit.networks import LOOPBACK
from tests.kit.waiting import PATIENCE
from tests.scenarios.fakes import END, HIGHEST, LOWEST, OWN, ApiServer, Head, read_head, running

REPEATS: Final = 12
"""Requests after which both servers have nearly always had one. No assertion depends on that."""
MAX_ATTEMPTS: Final = 300
"""Requests after which each of two equal backends has had one, except with a probability of 2 ** -299."""
VARY: Final = f"OpenStack-API-Version, {OWN}"

VersionFields: TypeAlias = tuple[str | None, str | None, str | None]
"""Minimum, maximum and served version of a response; None: the field is missing."""


class Testbed:
    """A running gateway with one service, whose name is `service`, and the servers behind it."""

    __test__ = False
    service = "baremetal"

    def __init__(
        self, gateway: Gateway, servers: Sequence[Any], prefix: str, service: str | None = None
    ) -> None:
        self.service = service or self.service
        self.gateway = gateway
        self.servers = servers
        """Fake servers of one kind."""
        self.prefix = prefix
        host, port = gateway.addresses[0]
        self.authority = f"{host}:{port}"
        self.base = f"http://{self.authority}{prefix}"
        """Where clients find the API."""

    @classmethod
    @asynccontextmanager
    async def in_front_of(
        cls,
        *servers: ApiServer,
        at: Sequence[int] = (),
        source: Path | None = None,
        trusted: str = "[]",
        **keys: str,
    ) -> AsyncIterator[Self]:
        """A gateway in front of `servers`, assembled as by `run`, that knows what they serve.

        `at`: ports of further backends, where nobody listens. The gateway is not ready then. `source`: the
        file that a reload reads. `keys`: as in `service_of`.
        """
        async with running(*servers):
            ports = (*(server.port for server in servers), *at)
            text = configuration(service_of(cls.service, ports, **keys), trusted=trusted)
            async with gateway_of(text, source=source) as gateway:
                testbed = cls(gateway, servers, gateway.settings.services[0].match.prefix)
                if not at:
                    await testbed.until(lambda view: view.offer.phase is not Phase.UNKNOWN)
                yield testbed

    @property
    def forwarded(self) -> list[Head]:
        """All requests that the gateway forwarded, to any server."""
        return [head for server in self.servers for head in server.forwarded]

    @property
    def view(self) -> ServiceView:
        return self.gateway.snapshot_holder.current.views[self.service]

    @property
    def offer(self) -> str:
        view = self.view
        return view.offer.versions.format(view.service.dialect.scheme)

    async def until(self, holds: Callable[[ServiceView], bool]) -> None:
        """Wait until `holds` is true of the service in the current snapshot."""
        await until_snapshot(
            self.gateway.snapshot_holder, lambda snapshot: holds(snapshot.views[self.service])
        )

    async def send(
        self,
        target: str,
        *lines: tuple[str, str],
        method: str = "GET",
        body: bytes = b"",
        bodiless: bool = False,
    ) -> Head:
        """Send one request on a new connection and return the response as it was on the wire.

        `bodiless`: the response has no body, because the request is a HEAD.
        """
        head = [f"{method} {self.prefix}{target} HTTP/1.1", f"Host: {self.authority}", "Connection: close"]
        head += [f"{name}: {value}" for name, value in lines]
        if body:
            head.append(f"Content-Length: {len(body)}")
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(*self.gateway.addresses[0])
            try:
                writer.write("\r\n".join(head).encode("latin-1") + END + body)
                response = await read_head(reader, bodiless=bodiless)
                assert response is not None, "the connection was closed without a response"
                assert await reader.read() == b"", "there are bytes after the response"
            finally:
                writer.close()
        return response

    async def at(self, version: str | None, target: str = "/v1/nodes") -> Head:
        """Send a request with `version` in Ironic's own header, or without a version."""
        return await self.send(target, *(() if version is None else ((OWN, version),)))

    async def same_response(self, target: str, *lines: tuple[str, str]) -> Head:
        """Send one request `REPEATS` times. Fail when a client could tell the servers apart."""
        responses = [await self.send(target, *lines) for _ in range(REPEATS)]
        assert len({comparable(response) for response in responses}) == 1, (
            "the client can tell the servers apart"
        )
        return responses[0]


in_front_of = Testbed.in_front_of


def comparable(response: Head) -> tuple[object, ...]:
    """The parts of a response that must not depend on the server.

    `Date` is left out: it differs when a second passes between two responses. So are request ids, of which
    each request has its own, `Proxy-Status`, which tells who made the response, and the order of the fields.
    """
    left_out = (
        "date",
        "x-openstack-request-id",
        "openstack-request-id",
        "x-compute-request-id",
        "x-request-id",
        "proxy-status",
    )
    fields = sorted(line for line in response.lines if line[0].lower() not in left_out)
    return (response.start, *fields, response.body)


def version_fields(response: Head) -> VersionFields:
    """Minimum, maximum and served version of a response."""
    return response.get(LOWEST), response.get(HIGHEST), response.get(OWN)


def negotiation_fields(response: Head) -> set[tuple[str, str]]:
    """All version fields and `Vary`, with the names as they were written."""
    return {line for line in response.lines if line[0] in response.versions or line[0] == "Vary"}


def service_of(
    name: str, ports: Sequence[int], *, interval: str = "100ms", backends: str = "", **keys: str
) -> str:
    """A service with these keys, in YAML, whose backends listen on these ports of loopback; one of Ironic,
    unless `keys` say otherwise. `backends`: more keys of each backend."""
    keys = {"dialect": "ironic", "probe": f"{{interval: {interval}}}", **keys}
    lines = [f"  {name}:", *(f"    {key}: {value}" for key, value in keys.items()), "    backends:"]
    for number, port in enumerate(ports, 1):
        lines.append(f"      - {{name: api-{number}, url: 'http://{LOOPBACK}:{port}'{backends}}}")
    return "\n".join(lines) + "\n"


def configuration(*services: str, trusted: str = "[]") -> str:
    """A configuration with these services."""
    head = "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\naccess_log: {format: off}\n"
    return f"{head}trusted_proxies: {trusted}\nservices:\n{''.join(services)}"


def description(response: Head) -> str:
    """The text of an Ironic error, as python-ironicclient finds it."""
    inner = json.loads(json.loads(response.body)["error_message"])
    text = inner.get("faultstring") or inner["description"]
    assert isinstance(text, str)
    return text
