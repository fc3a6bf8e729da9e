"""What tracing, the access log and usage cost a request: CPU of whole requests with them, less that without.

Two lanes in one process take turns, one with the extra and one without, and of each counts the fastest pass,
because it was disturbed least. Beside that stands the median of the differences of neighbouring passes: on a
machine that does nothing else both agree. Run it with `python -m bench.extras`, and SKEWGATE_COMPILED=0 or 1
for another build than the one that runs by default. It judges nothing.
"""

import argparse
import asyncio
import gc
import socket
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import process_time_ns
from typing import Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from gateway.runtime.compiled import use_compiled

if __name__ == "__main__":
    use_compiled()  # before any module of the hot path is imported

from bench.heads import ID, RESPONSE
from bench.lane import Lane
from gateway.settings import AccessLogSettings
from gateway.settings.sections.usage import UsageSettings
from gateway.telemetry.tracing import Sampler, SpanSink, Tracing
from gateway.workers.request_recorder import usage_counter

NEVER: Final = Sampler(0.0, by_parent=True)
ALWAYS: Final = Sampler(1.0, by_parent=True)
"""The default: in a trace that the client does not record, nothing is."""


class Case(NamedTuple):
    """One kind of request with one extra. Of traces none is sampled."""

    name: str
    has_parent: bool
    sampler: Sampler | None = None
    log: str = "off"
    """The format of the access log."""
    usage: bool = False
    """Whether usage is counted, with a tick of the worker after each pass."""
    path: str = "/v1/nodes/{number}"
    """Path of the requests, with what differs in it: a number or a UUID."""


CASES: Final = (
    Case("tracing: the client's trace, flag 00; parentbased_always_on", sampler=ALWAYS, has_parent=True),
    Case("tracing: the client's trace, flag 00; parentbased_always_off", sampler=NEVER, has_parent=True),
    Case("tracing: no trace; parentbased_always_off", sampler=NEVER, has_parent=False),
    Case("access log in JSON: the client's trace", log="json", has_parent=True),
    Case("access log in JSON: no trace", log="json", has_parent=False),
    Case("access log in text: the client's trace", log="text", has_parent=True),
    Case("usage: one path", usage=True, path="/v1/nodes", has_parent=False),
    Case("usage: a UUID in each path", usage=True, path="/v1/nodes/{uuid}", has_parent=False),
)


def heads(number: int, case: Case) -> Iterator[tuple[bytes, bytes]]:
    """Requests with ids of their own, as clients send them, and their responses."""
    for at in range(number):
        path = case.path.format(number=at, uuid=uuid5(NAMESPACE_URL, str(at)))
        request = (
            f"GET {path} HTTP/1.1",
            "Host: 127.0.0.1:6385",
            "User-Agent: python-ironicclient",
            "Accept-Encoding: gzip, deflate",
            "Accept: */*",
            "X-OpenStack-Ironic-API-Version: 1.31",
            f"X-Openstack-Request-Id: req-0f5e7a9c-1b2d-4c3e-8f40-{at:012x}",
            f"X-Auth-Token: gAAAAABk{at:032x}",
            *((f"traceparent: 00-{at + 1:032x}-{at + 1:016x}-00",) if case.has_parent else ()),
        )
        own = b"%012x" % at
        yield (
            "".join(f"{line}\r\n" for line in (*request, "")).encode(),
            RESPONSE.replace(b"@VERSION@", b"1.31").replace(ID, own),
        )


class Result(NamedTuple):
    """Microseconds of one request."""

    without: float
    extra: float
    """The fastest pass with it less the fastest without."""
    median: float
    """The median of the differences of neighbouring passes."""


def microseconds(lane: Lane, requests: list[bytes], responses: list[bytes]) -> float:
    """Of each of these, in one pass, on a client connection of its own: one is closed after some thousands
    of requests. CPU of all threads, because one of them writes the log."""
    client = lane.new_client()
    received, answered, flush = client.data_received, lane.backend.data_received, lane.flush
    usage = lane.worker.context.usage
    begun = process_time_ns()
    for request, response in zip(requests, responses, strict=True):
        received(request)
        flush()
        answered(response)
        flush()
    if usage is not None:
        usage.tick()
    taken = process_time_ns() - begun
    client.connection_lost(None)
    return taken / len(requests) / 1000


def measure(case: Case, number: int, passes: int, folder: Path) -> Result:
    """Both lanes in turn; the one that begins changes with each pass. The log is written into `folder`."""
    requests, responses = map(list, zip(*heads(number, case), strict=True))
    tracing = None if case.sampler is None else Tracing(case.sampler, SpanSink())
    log = AccessLogSettings(format=case.log, path=str(folder / "access.log"))
    near, far = socket.socketpair()
    with near, far, closing(Lane(near)) as plain, closing(Lane(near, tracing, log)) as with_it:
        with_it.worker.context.usage = usage_counter(UsageSettings() if case.usage else None)
        for lane in (plain, with_it):
            microseconds(lane, requests, responses)  # every table and cache is filled
            assert lane.client_side.written.startswith(b"HTTP/1.1 200")
        assert (b"traceparent: " in plain.backend_side.written) is case.has_parent
        assert (b"-00\r\n" in with_it.backend_side.written) is (case.has_parent or tracing is not None)
        gc.collect()
        gc.disable()
        found: tuple[list[float], list[float]] = ([], [])
        for at in range(passes):
            for which in (at % 2, 1 - at % 2):
                found[which].append(microseconds((plain, with_it)[which], requests, responses))
        gc.enable()
    more = [extra - without for without, extra in zip(*found, strict=True)]
    return Result(min(found[0]), min(found[1]) - min(found[0]), statistics.median(more))


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.extras", description=__doc__)
    parser.add_argument("--requests", type=int, default=500, help="requests in each pass (default 500)")
    parser.add_argument("--passes", type=int, default=200, help="passes of each lane (default 200)")
    options = parser.parse_args()
    print(f"{'CPU µs of a request':<62}{'without':>9}{'extra':>9}{'median':>9}")
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            result = measure(case, max(10, options.requests), max(2, options.passes), Path(folder))
        print(f"{case.name:<62}{result.without:>9.2f}{result.extra:>+9.2f}{result.median:>+9.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
