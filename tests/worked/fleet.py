"""A gateway with a file of config/examples in front of a fleet of fake servers.

The file is used as it is, except for the times that a test cannot wait for: the interval of probes and the
stabilization of the offer. Its addresses come from environment variables, as everywhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from gateway.core.fleet.offer import Phase
from tests.architecture.source import ROOT
from tests.kit.gateways import gateway_of
from tests.kit.networks import LOOPBACK
from tests.scenarios.fakes import END, ApiServer, Head
from tests.scenarios.fakes import running as started
from tests.scenarios.testbed import REPEATS, Testbed

EXAMPLES: Final = ROOT / "config" / "examples"


class Executed(NamedTuple):
    """A request that a server executed, and the version."""

    version: str
    head: Head


class WorkedServer(ApiServer):
    """One API server that serves `versions`, oldest first. A test may change them while the server runs."""

    def __init__(self, *versions: str) -> None:
        super().__init__()
        self.versions = versions
        self.executed: list[Executed] = []

    def _response(self, head: Head) -> bytes:
        response = self.answer(head)
        return response[: response.index(END) + len(END)] if head.start.startswith("HEAD ") else response

    def answer(self, head: Head) -> bytes:
        """The response, with the body that a GET gets."""
        raise NotImplementedError

    def execute(self, version: str, head: Head) -> None:
        """Record a forwarded request that is executed at this version."""
        if head.all("Via"):
            self.executed.append(Executed(version, head))

    def refuse(self, head: Head) -> None:
        """Record a request that is refused because of its version. Behind the gateway there must be none."""
        self.refused.append(head)


class WorkedTestbed(Testbed):
    """A gateway that runs one of the examples, in front of servers of one kind."""

    def executed(self) -> list[str]:
        """The versions at which clients' requests were executed since the last call."""
        versions = [request.version for server in self.servers for request in server.executed]
        for server in self.servers:
            server.executed.clear()
        return versions

    async def repeated(self, target: str, *lines: tuple[str, str], method: str = "GET") -> Head:
        """Send one request `REPEATS` times. Every response must have the same status and body, whichever
        server sent it."""
        responses = [await self.send(target, *lines, method=method) for _ in range(REPEATS)]
        assert len({(response.status, response.body) for response in responses}) == 1
        return responses[0]

    async def until_offered(self, offer: str) -> None:
        """Wait until this is on offer, written as in `/status`."""
        scheme = self.view.service.dialect.scheme
        await self.until(lambda view: view.offer.versions.format(scheme) == offer)


def example(name: str, extra: str = "") -> str:
    """The text of an example, with times that a test can wait for. `extra`: more lines of each service."""
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    dialect = "    dialect: custom\n"
    assert dialect in text
    quick = f"{dialect}{extra}    probe: {{interval: 100ms}}\n    offer: {{stabilization: 20ms}}\n"
    return "access_log: {format: off}\n" + text.replace(dialect, quick)


def environment(*servers: ApiServer) -> Mapping[str, str]:
    """The environment variables of every example."""
    backends = {f"API_{at}": f"http://{LOOPBACK}:{server.port}" for at, server in enumerate(servers, 1)}
    return {"SKEWGATE_LISTEN": f"{LOOPBACK}:0", "SKEWGATE_ADMIN": f"{LOOPBACK}:0", **backends}


@asynccontextmanager
async def running(
    name: str,
    *servers: WorkedServer,
    service: str | None = None,
    source: Path | None = None,
    extra: str = "",
) -> AsyncIterator[WorkedTestbed]:
    """A gateway, assembled as by `run`, that knows what every server serves. At the end no server may have
    refused a version.

    `service`: the one that the testbed shows, if not the first; `source`: the file that a reload reads;
    `extra`: more lines of each service.
    """
    async with started(*servers):
        text, environ = example(name, extra), environment(*servers)
        async with gateway_of(text, source=source, environ=environ) as gateway:
            testbed = WorkedTestbed(gateway, servers, "", service or gateway.settings.services[0].name)
            await testbed.until(lambda view: view.offer.phase is not Phase.UNKNOWN)
            yield testbed
    assert [head for server in servers for head in server.refused] == []
