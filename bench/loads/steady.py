"""A constant rate: requests come when their time has come, as h2load sends them, and each one is timed.

Each client is a process of its own, so their requests are spread over time as those of real clients are. The
clients of one h2load all send in the same moment: twenty requests at once every 20 ms, and the time in which
the last of them waits for the first is measured instead.
"""

import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from bench.figure import BUSY, P50_US, P99_US, RATE, Figure
from bench.heads import Heads
from bench.load import Run, Subject
from bench.processes import BenchError, find_program, pinned

CLIENTS = 20
#: The first requests of each connection: it is established, and the peer connects to its backends.
SETTLING_SECONDS = 0.3


@dataclass(frozen=True)
class Steady:
    """`rate`: requests a second in total. Their heads have constant ids, since h2load knows no others."""

    rate: int = 1000
    columns: tuple[Figure, ...] = (P50_US, P99_US, RATE, BUSY)

    def drive(self, subject: Subject, seconds: int) -> Run:
        before = subject.usage().cpu
        logs = _run_h2load(subject, seconds, self.rate // CLIENTS)
        cpu = subject.usage().cpu - before
        rows = [
            tuple(map(int, line.split("\t")[:3])) for log in logs for line in log.read_text().splitlines()
        ]
        if not rows:
            raise BenchError("h2load received no response")
        begin = min(start for start, _, _ in rows) + SETTLING_SECONDS * 1e6
        errors = sum(status != 200 for _, status, _ in rows)
        took = [took for start, status, took in rows if start >= begin and status == 200]
        lasted = seconds - SETTLING_SECONDS
        if len(took) < self.rate * lasted / 2:
            raise BenchError(
                f"{len(took)} right responses in {lasted:.1f} s are far from {self.rate} a second"
            )
        percentiles = quantiles(took, n=100)
        figures = {
            P50_US.name: percentiles[49],
            P99_US.name: percentiles[98],
            RATE.name: len(took) / lasted,
            BUSY.name: 100 * cpu / seconds,
        }
        return Run(figures, len(rows) - errors, errors)


def _run_h2load(subject: Subject, seconds: int, rate: int) -> list[Path]:
    """One process for each client. Returns their logs."""
    [head, *_] = Heads().heads(subject.slot)
    request_line, *fields = head.replace(b"@ID@", b"0000000000a1").decode().split("\r\n")
    url = f"http://127.0.0.1:{subject.slot.port}{request_line.split()[1]}"
    headers = [part for field in fields if field and not field.startswith("Host:") for part in ("-H", field)]
    logs = [subject.slot.directory / f"h2load-{number}.log" for number in range(CLIENTS)]
    with ExitStack() as stack:
        clients = []
        for log in logs:
            log.unlink(missing_ok=True)
            command = [
                find_program("h2load") or "h2load",
                *("--h1", "-c", "1", "--rps", str(rate), "-D", str(seconds)),
                *("--log-file", str(log), *headers, url),
            ]
            client = subprocess.Popen(
                pinned(subject.core, command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            stack.callback(client.wait)
            stack.callback(client.kill)
            clients.append(client)
        for client in clients:
            _wait_for(client, seconds + 30)
    return logs


def _wait_for(client: subprocess.Popen[str], seconds: int) -> None:
    try:
        said, _ = client.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise BenchError(f"h2load did not end within {seconds} s") from None
    if client.returncode != 0:
        raise BenchError(f"h2load failed with code {client.returncode}\n{said}")
