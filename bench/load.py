"""Runs wrk and reads its result. The requests are in load.lua."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.processes import BenchError, find_program, pinned

SCRIPT = Path(__file__).with_name("load.lua")


@dataclass(frozen=True)
class Load:
    """The result of wrk: responses, seconds, latencies in milliseconds, responses of 400 and above."""

    requests: int
    seconds: float
    p50: float
    p99: float
    status_errors: int
    socket_errors: int


def drive(port: int, connections: int, seconds: int, core: int, heads: str) -> Load:
    """Load a port with a fixed number of connections. Each sends its next request after a response.

    `heads`: `repeated`, or `unique` for requests with a request id, a trace id and a token of their own.

    Raises:
        BenchError: wrk failed or hung, or there was no response.
    """
    wrk = find_program("wrk") or "wrk"
    options = ["-t", "1", "-c", str(connections), "-d", f"{seconds}s", "--timeout", "5s", "--latency"]
    command = pinned(core, [wrk, *options, "-s", str(SCRIPT), f"http://127.0.0.1:{port}", "--", heads])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30, check=False)
    except subprocess.TimeoutExpired:
        raise BenchError(f"wrk did not end within {seconds + 30} s") from None
    results = [
        line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")
    ]
    if done.returncode != 0 or not results:
        raise BenchError(f"wrk failed with code {done.returncode}\n{done.stdout}{done.stderr}")
    result = json.loads(results[0])
    if result["requests"] == 0:
        raise BenchError("no request got a response")
    return Load(
        requests=result["requests"],
        seconds=result["microseconds"] / 1e6,
        p50=result["p50_us"] / 1e3,
        p99=result["p99_us"] / 1e3,
        status_errors=result["status_errors"],
        socket_errors=result["socket_errors"],
    )
