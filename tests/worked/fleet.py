"""A gateway with a file of config/examples as it stands in the repository, in front of an embedded fleet.

Of the file only what a test cannot wait for is changed: probes come more often, and an offer need not stand
for seconds. Where it listens and where its backends are, it takes from the environment, as for everybody.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from gateway.cli.gateway import Gateway
from gateway.core.offer import Phase
from gateway.settings import load
from tests.architecture.source import ROOT
from tests.scenarios.fakes import END, LOOPBACK, ApiServer, Head
from tests.scenarios.fakes import running as started
from tests.scenarios.stand import Stand

EXAMPLES: Final = ROOT / "config" / "examples"

TRIES: Final = 12
"""Requests: enough that both servers have answered, nearly always; no assertion rests on that."""


class Executed(NamedTuple):
    """One request that a server did not refuse."""

    version: str
    head: Head


class WorkedServer(ApiServer):
    """One API server that serves `versions`, oldest first. They may change while it runs."""

    def __init__(self, *versions: str) -> None:
        super().__init__()
        self.versions = versions
        self.executed: list[Executed] = []

    def _reply(self, head: Head) -> bytes:
        reply = self.answer(head)
        return reply[: reply.index(END) + len(END)] if head.start.startswith("HEAD ") else reply

    def answer(self, head: Head) -> bytes:
        """The reply as it would be to a GET."""
        raise NotImplementedError

    def execute(self, version: str, head: Head) -> None:
        """Remember a request of a client, carried out at this version."""
        if head.all("Via"):
            self.executed.append(Executed(version, head))

    def refuse(self, head: Head) -> None:
        """Remember one that was refused for its version: after a gateway that knows it, there is none."""
        self.refused.append(head)


class WorkedStand(Stand):
    """A gateway that runs one of the examples, in front of servers of one kind."""

    def executed(self) -> list[str]:
        """The versions at which clients' requests were executed since this was last asked."""
        versions = [each.version for server in self.servers for each in server.executed]
        for server in self.servers:
            server.executed.clear()
        return versions

    async def same(self, target: str, *lines: tuple[str, str], method: str = "GET") -> Head:
        """The reply, whose status and body are the same every time, whichever server made it."""
        replies = [await self.ask(target, *lines, method=method) for _ in range(TRIES)]
        assert len({(each.status, each.body) for each in replies}) == 1
        return replies[0]

    async def until_offered(self, offer: str) -> None:
        """Wait until this is on offer, as `/status` would write it."""
        scheme = self.view.service.dialect.scheme
        await self.until(lambda view: view.offer.versions.format(scheme) == offer)


def example(name: str, extra: str = "") -> str:
    """The text of an example, with times that a test can wait for; `extra` stands in each of its services."""
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    speaks = "    dialect: header\n"
    assert speaks in text
    quick = f"{speaks}{extra}    probe: {{interval: 100ms}}\n    offer: {{settle: 20ms}}\n"
    return "access_log: {format: off}\n" + text.replace(speaks, quick)


def environment(*servers: ApiServer) -> Mapping[str, str]:
    """What the variables of every example are set to."""
    backends = {f"API_{at}": f"http://{LOOPBACK}:{server.port}" for at, server in enumerate(servers, 1)}
    return {"SKEWGATE_LISTEN": f"{LOOPBACK}:0", "SKEWGATE_ADMIN": f"{LOOPBACK}:0", **backends}


@asynccontextmanager
async def running(
    name: str,
    *servers: WorkedServer,
    service: str | None = None,
    source: Path | None = None,
    extra: str = "",
) -> AsyncIterator[WorkedStand]:
    """A gateway on the code path of `run` that has heard every server out. At its end no server has refused
    a version. `service`: the one that is looked at, if not the first; `source`: what a reload reads; `extra`:
    more lines of each service."""
    async with started(*servers):
        loaded = load(example(name, extra), filename=f"{name}.yaml", environ=environment(*servers))
        configured = loaded.require()
        async with Gateway(configured, source=source) as gateway:
            stand = WorkedStand(gateway, servers, "", service or configured.services[0].name)
            await stand.until(lambda view: view.offer.phase is not Phase.UNKNOWN)
            yield stand
    assert [head for server in servers for head in server.refused] == []
