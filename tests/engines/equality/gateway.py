"""A gateway in front of all fleets: one worker in this process, whose offers a test can move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import final

from gateway.core.fleet.snapshot import Snapshot
from gateway.settings import load
from tests.kit.workers import Gateway, worker_of


@final
class RunningGateway:
    """`port`: where it listens. `requests`: how many it got."""

    def __init__(self, worker: Gateway) -> None:
        self._worker = worker
        self.snapshots = worker.snapshot_holder
        self.port = worker.address[1]

    @property
    def requests(self) -> int:
        return len(self._worker.records)

    def reconfigure(self, text: str) -> Snapshot:
        """Put another configuration in force, at once."""
        services = load(text, filename="equality.yaml", environ={}).require().services
        self.snapshots.update(Snapshot.configured(services, now=monotonic()))
        return self.snapshots.current


def configuration(services: str, more: str = "") -> str:
    start = ("listen: 127.0.0.1:0", "admin: {listen: 127.0.0.1:0}", "access_log: {format: off}")
    # HAProxy tells the gateway beside it who the client is.
    return "\n".join((*start, "trusted_proxies: [127.0.0.1/32]", more, "services:", services, ""))


@asynccontextmanager
async def running_gateway(text: str) -> AsyncIterator[RunningGateway]:
    """Facts from responses are not fed back, so that no request depends on an earlier one."""
    services = load(text, filename="equality.yaml", environ={}).require().services
    async with worker_of(*services, trusted=["127.0.0.1/32"], learns=False) as worker:
        yield RunningGateway(worker)
