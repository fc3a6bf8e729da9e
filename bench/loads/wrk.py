"""wrk: many connections, each of which sends its next request after a response."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.figure import BUSY, CPU, KERNEL, MEMORY, P50, P99, RATE, Figure
from bench.heads import UNIQUE, Heads
from bench.load import Run, Subject
from bench.processes import BenchError, find_program, pinned

SCRIPT = Path(__file__).with_name("wrk.lua")


@dataclass(frozen=True)
class Wrk:
    """`heads`: what the clients send."""

    heads: Heads = UNIQUE
    columns: tuple[Figure, ...] = (CPU, KERNEL, RATE, P50, P99, MEMORY, BUSY)

    def drive(self, subject: Subject, seconds: int) -> Run:
        requests = subject.slot.directory / "requests"
        requests.write_bytes(b"\0".join(self.heads.heads(subject.slot)))
        before = subject.usage()
        result = _result(subject, requests, seconds)
        after = subject.usage()
        cpu, taken = after.cpu - before.cpu, result["microseconds"] / 1e6
        figures = {
            CPU.name: cpu * 1e6 / result["requests"],
            KERNEL.name: (after.kernel - before.kernel) * 1e6 / result["requests"],
            RATE.name: result["requests"] / taken,
            P50.name: result["p50_us"] / 1e3,
            P99.name: result["p99_us"] / 1e3,
            MEMORY.name: after.memory / 2**20,
            BUSY.name: 100 * cpu / taken,
        }
        return Run(figures, result["requests"], result["status_errors"] + result["socket_errors"])


def _result(subject: Subject, requests: Path, seconds: int) -> dict[str, int]:
    wrk = find_program("wrk") or "wrk"
    options = ["-t", "1", "-c", str(subject.connections), "-d", f"{seconds}s", "--timeout", "5s", "--latency"]
    command = pinned(subject.core, [wrk, *options, "-s", str(SCRIPT), subject.slot.url, "--", str(requests)])
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30, check=False)
    except subprocess.TimeoutExpired:
        raise BenchError(f"wrk did not end within {seconds + 30} s") from None
    lines = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode != 0 or not lines:
        raise BenchError(f"wrk failed with code {done.returncode}\n{done.stdout}{done.stderr}")
    result: dict[str, int] = json.loads(lines[0])
    if result["requests"] == 0:
        raise BenchError("no request got a response")
    return result
