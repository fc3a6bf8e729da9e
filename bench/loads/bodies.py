"""Large bodies, one after the other on a few connections. The length and checksum of each are compared."""

import http.client
import json
import threading
import time
import zlib
from dataclasses import dataclass, field
from typing import Literal

from bench.check import connect
from bench.figure import BUSY, CPU_PER_GIB, GIB_RATE, MEMORY, Figure
from bench.heads import NODE, VERSION
from bench.load import Run, Subject, on_core
from bench.processes import BenchError

BODY_SIZE = 64 * 2**20
PART_SIZE = 2**20
PART = bytes(range(256)) * (PART_SIZE // 256)
CONNECTIONS = 4
FIELDS = {VERSION: "1.90", "User-Agent": "python-ironicclient", "X-Openstack-Request-Id": f"req-{NODE}"}


def checksum(size: int) -> int:
    """Of a body of so many bytes."""
    found = 0
    for _ in range(size // PART_SIZE):
        found = zlib.crc32(PART, found)
    return found


@dataclass(frozen=True)
class _Outcome:
    """What all connections together did: the lengths of right bodies, and problems."""

    checksum: int
    lengths: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Bodies:
    direction: Literal["download", "upload"]
    columns: tuple[Figure, ...] = (CPU_PER_GIB, GIB_RATE, MEMORY, BUSY)

    def drive(self, subject: Subject, seconds: int) -> Run:
        """At least one body on each connection, then more until the time is over. Each is completed."""
        outcome = _Outcome(checksum(BODY_SIZE))
        before, began = subject.usage().cpu, time.monotonic()
        clients = [
            threading.Thread(target=self._client, args=(subject, began + seconds, outcome))
            for _ in range(CONNECTIONS)
        ]
        with on_core(subject.core):  # threads begin where the one that starts them is
            for client in clients:
                client.start()
        for client in clients:
            client.join()
        taken, after = time.monotonic() - began, subject.usage()
        if not outcome.lengths:
            raise BenchError(f"no {self.direction} succeeded: {outcome.problems}")
        gib = sum(outcome.lengths) / 2**30
        cpu = after.cpu - before
        figures = {
            CPU_PER_GIB.name: cpu * 1e3 / gib,
            GIB_RATE.name: gib / taken,
            MEMORY.name: after.memory / 2**20,
            BUSY.name: 100 * cpu / taken,
        }
        return Run(figures, len(outcome.lengths), len(outcome.problems))

    def _client(self, subject: Subject, end: float, outcome: _Outcome) -> None:
        connection = connect(subject.slot, 30)
        try:
            while True:
                found = self._upload(connection) if self.direction == "upload" else self._download(connection)
                if found != (200, BODY_SIZE, outcome.checksum):
                    raise BenchError(f"{self.direction}: {found}")
                outcome.lengths.append(BODY_SIZE)
                if time.monotonic() > end:
                    return
        except (BenchError, OSError, ValueError, http.client.HTTPException) as error:
            outcome.problems.append(f"{type(error).__name__}: {error}")
        finally:
            connection.close()

    def _download(self, connection: http.client.HTTPConnection) -> tuple[int, int, int]:
        connection.request("GET", "/v1/download", headers=FIELDS)
        response = connection.getresponse()
        length, found, buffer = 0, 0, memoryview(bytearray(PART_SIZE))
        while received := response.readinto(buffer):
            found = zlib.crc32(buffer[:received], found)
            length += received
        return response.status, length, found

    def _upload(self, connection: http.client.HTTPConnection) -> tuple[int, int, int]:
        body = (PART for _ in range(BODY_SIZE // PART_SIZE))
        connection.request("PUT", "/v1/upload", body, {**FIELDS, "Content-Length": str(BODY_SIZE)})
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            return response.status, 0, 0
        stored = json.loads(text)
        return response.status, stored["length"], stored["checksum"]
