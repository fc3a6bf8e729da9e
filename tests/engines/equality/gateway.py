"""A gateway in front of all fleets: one worker in this process, whose offers a test can move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import final

from gateway.controlplane.resolver import addresses_only
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.snapshot import Snapshot
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.dataplane.worker import Worker
from gateway.settings import load
from gateway.settings.sections.listen import Listen
from gateway.settings.values import Settings
from gateway.telemetry.metrics import Metrics
from tests.differential.testbed import LOOPBACK


@final
class RunningGateway:
    """`port`: where it listens. `requests`: how many it got."""

    def __init__(self, settings: Settings, snapshots: SnapshotHolder, port: int) -> None:
        self.settings = settings
        self.requests = 0
        self.snapshots = snapshots
        self.port = port

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
    settings = load(text, filename="equality.yaml", environ={}).require()
    snapshots = SnapshotHolder(Snapshot.configured(settings.services, now=monotonic()))
    running: RunningGateway | None = None

    def count(_: object) -> None:
        if running is not None:
            running.requests += 1

    worker = Worker(
        limits=settings.limits,
        timeouts=settings.timeouts,
        trusted=settings.trusted_proxies,
        snapshots=snapshots,
        resolve=addresses_only,
        observe=lambda *_: None,
        metrics=Metrics(),
        record=count,
    )
    listen = Listen(LOOPBACK, 0)
    sockets = await ListeningSockets.bind([listen])
    try:
        await worker.listen([(listen, sock) for _, sock in sockets.of_slot(0)])
        running = RunningGateway(settings, snapshots, sockets.addresses[0][1])
        yield running
    finally:
        await worker.abort()
        sockets.close()
