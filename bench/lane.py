"""A worker between one client and one backend whose transports are in memory: whole requests without sockets.

For what one process must count exactly, its CPU or its objects. It takes no time that depends on other
processes, and it proves nothing about the network.
"""

import asyncio
import socket
from ipaddress import ip_network
from typing import Final

from gateway.controlplane.resolver import addresses_only
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.connections import Reuse
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.fleet.timeouts import NO_TIMEOUT, Timeouts
from gateway.core.versions.ranges import VersionSet
from gateway.dataplane.backends.connection import BackendConnection
from gateway.dataplane.context import Context
from gateway.dataplane.edge.client_connection import ClientConnection
from gateway.dataplane.worker import Worker
from gateway.dialects import discover
from gateway.settings import AccessLogSettings
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing
from gateway.workers.request_recorder import open_access_log, reads_ids, recorder

NO_LOG: Final = AccessLogSettings(format="off")
LOOPBACK: Final = ip_network("127.0.0.0/8")
"""Network of the address that `MemoryTransport` shows."""


class MemoryTransport(asyncio.Transport):
    """Keeps what was written last."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock, "peername": ("127.0.0.1", 5)})
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written = bytes(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Lane:
    """A worker with a service `baremetal` of one backend. `near`: a socket that the transports show.
    `trusted`: its clients are outer proxies. Raises `StartupError` if the log cannot be opened. Needs a
    running event loop."""

    def __init__(
        self,
        near: socket.socket,
        tracing: Tracing | None = None,
        access_log: AccessLogSettings = NO_LOG,
        *,
        trusted: bool = False,
    ) -> None:
        dialect = discover()["ironic"]()
        versions = VersionSet.read("1.1-1.90", dialect.scheme)
        service = Service(
            "baremetal",
            dialect,
            (Backend("api-1", "127.0.0.1", 6385, declared=versions),),
            reuse=Reuse(requests=1_000_000_000, time=NO_TIMEOUT),
        )
        holder = SnapshotHolder(Snapshot.configured([service], now=0.0))
        metrics = Metrics()
        self._log = open_access_log(access_log)
        context = Context(
            limits=Limits(),
            timeouts=Timeouts(),
            trusted=(LOOPBACK,) if trusted else (),
            snapshots=holder,
            observe=holder.observe,
            metrics=metrics,
            record=recorder(metrics, tracing, self._log, access_log),
            tracing=tracing,
            reads_ids=reads_ids(tracing, access_log),
        )
        self.worker = Worker(context, addresses_only)
        metrics.watch(holder)
        self.flush = self.worker.context.flush
        self.client_side, self.backend_side = MemoryTransport(near), MemoryTransport(near)
        pool = self.worker.pools.of(holder.current.views["baremetal"].members.all[0])
        self.backend = BackendConnection(pool)
        self.backend.connection_made(self.backend_side)
        pool.on_idle(self.backend)

    def new_client(self) -> ClientConnection:
        """A client has connected. What it gets is in `client_side`."""
        client = ClientConnection(self.worker)
        client.connection_made(self.client_side)
        return client

    def close(self) -> None:
        """Write the log to its end."""
        self._log.close()
