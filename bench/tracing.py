"""What tracing costs a request that is not sampled: CPU of whole requests with it, less that without.

Two workers in one process, one of them with `Tracing`, each between a client and a backend whose transports
are in memory. They take turns, and of each counts the fastest pass, because it was disturbed least. Beside
that stands the median of the differences of neighbouring passes: on a machine that does nothing else both
agree. Run it with `python -m bench.tracing`. It judges nothing.
"""

import argparse
import asyncio
import gc
import socket
import statistics
import sys
from collections.abc import Iterator
from time import thread_time_ns
from typing import Final, NamedTuple

from gateway.controlplane.resolver import addresses_only
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.dataplane.backend_connection import BackendConnection
from gateway.dataplane.client_connection import ClientConnection
from gateway.dataplane.worker import Worker
from gateway.dialects import discover
from gateway.settings import AccessLog, Limits, Timeouts
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Sampler, SpanSink, Tracing
from gateway.workers.recording import open_access_log, recorder

NEVER: Final = Sampler(0.0, by_parent=True)
ALWAYS: Final = Sampler(1.0, by_parent=True)
"""The default: in a trace that the client does not record, nothing is."""


class Case(NamedTuple):
    """One kind of request that is not sampled."""

    name: str
    sampler: Sampler
    has_parent: bool


CASES: Final = (
    Case("the client's trace, flag 00; parentbased_always_on", ALWAYS, has_parent=True),
    Case("the client's trace, flag 00; parentbased_always_off", NEVER, has_parent=True),
    Case("no trace; parentbased_always_off", NEVER, has_parent=False),
)


class MemoryTransport(asyncio.Transport):
    """Keeps what was written last."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock, "peername": ("127.0.0.1", 5)})
        self.written: bytes | bytearray | memoryview = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written = data

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Lane:
    """A worker between one client and one backend."""

    def __init__(self, near: socket.socket, tracing: Tracing | None) -> None:
        dialect = discover()["ironic"]()
        versions = VersionSet.read("1.1-1.90", dialect.scheme)
        service = Service("baremetal", dialect, (Backend("api-1", "127.0.0.1", 6385, declared=versions),))
        holder = SnapshotHolder(Snapshot.configured([service], now=0.0))
        metrics, no_log = Metrics(), AccessLog(format="off")
        self.worker = Worker(
            limits=Limits(),
            timeouts=Timeouts(),
            trusted=(),
            snapshots=holder,
            observe=holder.observe,
            metrics=metrics,
            record=recorder(metrics, tracing, open_access_log(no_log), no_log),
            resolve=addresses_only,
            tracing=tracing,
        )
        metrics.watch(holder, dict, dict)
        self.to_client, self.to_backend = MemoryTransport(near), MemoryTransport(near)
        pool = self.worker.pool(holder.current.views["baremetal"].pool.members[0])
        self.backend = BackendConnection(pool)
        self.backend.connection_made(self.to_backend)
        pool.on_idle(self.backend)

    def microseconds(self, requests: list[bytes], responses: list[bytes]) -> float:
        """Of each of these, in one pass, on a client connection of its own: one is closed after some
        thousands of requests."""
        client = ClientConnection(self.worker)
        client.connection_made(self.to_client)
        received, answered = client.data_received, self.backend.data_received
        flush = self.worker.context.flush
        begun = thread_time_ns()
        for request, response in zip(requests, responses, strict=True):
            received(request)
            flush()
            answered(response)
            flush()
        taken = thread_time_ns() - begun
        client.connection_lost(None)
        return taken / len(requests) / 1000


def heads(number: int, *, has_parent: bool) -> Iterator[tuple[bytes, bytes]]:
    """Requests with ids of their own, as clients send them, and their responses."""
    for at in range(number):
        request = (
            f"GET /v1/nodes/{at} HTTP/1.1",
            "Host: 127.0.0.1:6385",
            "User-Agent: python-ironicclient",
            "Accept-Encoding: gzip, deflate",
            "Accept: */*",
            "X-OpenStack-Ironic-API-Version: 1.31",
            f"X-Openstack-Request-Id: req-0f5e7a9c-1b2d-4c3e-8f40-{at:012x}",
            f"X-Auth-Token: gAAAAABk{at:032x}",
            *((f"traceparent: 00-{at + 1:032x}-{at + 1:016x}-00",) if has_parent else ()),
        )
        response = (
            "HTTP/1.1 200 OK",
            f"X-Openstack-Request-Id: req-{at:012x}",
            "X-OpenStack-Ironic-API-Version: 1.31",
            "Date: Sun, 06 Nov 1994 08:49:37 GMT",
            "Content-Length: 2",
        )
        yield (
            "".join(f"{line}\r\n" for line in (*request, "")).encode(),
            "".join(f"{line}\r\n" for line in (*response, "")).encode() + b"{}",
        )


class Result(NamedTuple):
    """Microseconds of one request."""

    without: float
    tracing: float
    """The fastest pass with it less the fastest without."""
    median: float
    """The median of the differences of neighbouring passes."""


def measure(case: Case, number: int, passes: int) -> Result:
    """Both lanes in turn; the one that begins changes with each pass."""
    requests, responses = map(list, zip(*heads(number, has_parent=case.has_parent), strict=True))
    near, far = socket.socketpair()
    with near, far:
        lanes = (Lane(near, None), Lane(near, Tracing(case.sampler, SpanSink())))
        for lane in lanes:
            lane.microseconds(requests, responses)  # every table and cache is filled
            assert bytes(lane.to_client.written).startswith(b"HTTP/1.1 200")
        assert (b"traceparent: " in bytes(lanes[0].to_backend.written)) is case.has_parent
        assert b"-00\r\n" in bytes(lanes[1].to_backend.written)
        gc.collect()
        gc.disable()
        found: tuple[list[float], list[float]] = ([], [])
        for at in range(passes):
            for which in (at % 2, 1 - at % 2):
                found[which].append(lanes[which].microseconds(requests, responses))
        gc.enable()
    more = [with_it - without for without, with_it in zip(*found, strict=True)]
    return Result(min(found[0]), min(found[1]) - min(found[0]), statistics.median(more))


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tracing", description=__doc__)
    parser.add_argument("--requests", type=int, default=100, help="requests in each pass (default 100)")
    parser.add_argument("--passes", type=int, default=1000, help="passes of each worker (default 1000)")
    options = parser.parse_args()
    print(f"{'a request that is not sampled, µs':<54}{'without':>9}{'tracing':>9}{'median':>9}")
    for case in CASES:
        result = measure(case, max(10, options.requests), max(2, options.passes))
        print(f"{case.name:<54}{result.without:>9.2f}{result.tracing:>+9.2f}{result.median:>+9.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
