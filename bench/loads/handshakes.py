"""TLS handshakes without requests, one after the other, none of which resumes a session."""

import re
import subprocess
from dataclasses import dataclass

from bench.figure import BUSY, HANDSHAKE, HANDSHAKE_RATE, Figure
from bench.load import Run, Subject
from bench.processes import BenchError, find_program, pinned

_COUNT = re.compile(r"^(\d+) connections in (\d+) real seconds", re.MULTILINE)


@dataclass(frozen=True)
class Handshakes:
    columns: tuple[Figure, ...] = (HANDSHAKE, HANDSHAKE_RATE, BUSY)

    def drive(self, subject: Subject, seconds: int) -> Run:
        address = f"127.0.0.1:{subject.slot.port}"
        command = [find_program("openssl") or "openssl", "s_time", "-connect", address, "-new"]
        before = subject.usage().cpu
        try:
            done = subprocess.run(
                pinned(subject.core, [*command, "-time", str(seconds)]),
                capture_output=True,
                text=True,
                timeout=seconds + 30,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BenchError(f"openssl did not end within {seconds + 30} s") from None
        cpu = subject.usage().cpu - before
        found = _COUNT.search(done.stdout)
        if done.returncode != 0 or found is None or not int(found[1]):
            raise BenchError(f"openssl made no connections\n{done.stdout}{done.stderr}")
        count = int(found[1])
        figures = {
            HANDSHAKE.name: cpu * 1e6 / count,
            HANDSHAKE_RATE.name: count / cpu if cpu else 0.0,
            BUSY.name: 100 * cpu / seconds,
        }
        return Run(figures, 0, 0)
