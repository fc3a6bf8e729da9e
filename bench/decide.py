"""The cost of a decision, which is steps 3 to 6 of a request: `decide`, in nanoseconds per call.

It shows that a cached decision is cheap, and that the cost does not grow with the number of backends. A whole
proxied request hides both. Run it with `python -m bench.decide`. It judges nothing.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence

from gateway.core.decision.decision import DecisionCache, decide
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.service import Policy, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.dialects import discover

HEADER = normalize_name("X-OpenStack-Ironic-API-Version")
REQUESTED = {
    "1.31, all backends": "1.31",
    "1.90, half of them": "1.90",
    "latest": "latest",
    "no version": None,
    "1.999, refused": "1.999",
}


def fleet(size: int) -> Snapshot:
    """A service with this number of backends, half of them old. All are declared, so that none is probed."""
    dialect = discover()["ironic"]()
    ranges = [VersionSet.read(text, dialect.scheme) for text in ("1.1-1.58", "1.1-1.90")]
    backends = tuple(
        Backend(f"api-{number}", "127.0.0.1", 6385 + number, declared=ranges[number % 2])
        for number in range(size)
    )
    return Snapshot.configured([Service("baremetal", dialect, backends, policy=Policy.REACHABLE)], now=0.0)


def request(version: str | None) -> RequestHead:
    fields = ((HEADER, version),) if version else ()
    return RequestHead("GET", "/v1/nodes/9f3c2b7e-5d51-4b0a-8c38-6f0e6a7f1d42", "", fields)


def nanoseconds(call: Callable[[int], object], draws: Sequence[int], repeats: int) -> float:
    """The fastest of several passes over the same draws, because it was disturbed least."""
    passes = []
    for _ in range(repeats):
        begun = time.perf_counter_ns()
        for random_bits in draws:
            call(random_bits)
        passes.append((time.perf_counter_ns() - begun) / len(draws))
    return min(passes)


def measure(size: int, version: str | None, draws: Sequence[int], repeats: int) -> tuple[float, float]:
    """One request in a fleet of this size, with and without the cache."""
    snapshot, head = fleet(size), request(version)
    in_flight_by_member = {
        member.key: number % 5 for number, member in enumerate(snapshot.views["baremetal"].members.all)
    }
    decision_cache: DecisionCache = {}

    def cached(random_bits: int) -> object:
        return decide(snapshot, head, "127.0.0.1:6385", in_flight_by_member, random_bits, decision_cache)

    def first_time(random_bits: int) -> object:
        return decide(snapshot, head, "127.0.0.1:6385", in_flight_by_member, random_bits, {})

    cached(0)
    return nanoseconds(cached, draws, repeats), nanoseconds(first_time, draws[: len(draws) // 10], repeats)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.decide", description=__doc__)
    parser.add_argument(
        "--calls", type=int, default=50_000, help="calls in each of five passes (default 50000)"
    )
    calls = max(100, parser.parse_args().calls)
    draws = _draws(calls)
    print(f"{'requested':<20}{'backends':>10}{'cached ns':>16}{'first time ns':>16}")
    for name, version in REQUESTED.items():
        for size in (2, 10, 100):
            cached, first_time = measure(size, version, draws, repeats=5)
            print(f"{name:<20}{size:>10}{cached:>16,.0f}{first_time:>16,.0f}")
    return 0


def _draws(count: int) -> list[int]:
    """Random numbers that are the same in every run."""
    generator = random.Random(7)
    return [generator.getrandbits(64) for _ in range(count)]


if __name__ == "__main__":
    sys.exit(main())
