"""Idle connections: what each costs in memory after it has carried several different requests."""

import contextlib
import socket
from dataclasses import dataclass

from bench.figure import MEMORY, PER_IDLE, Figure
from bench.heads import ID, Heads
from bench.load import Run, Subject, on_core
from bench.processes import BenchError

#: Before the first measurement, so that what is made once is not counted.
WARM_CONNECTIONS = 64
HEADS = Heads(kinds=12)
REQUESTS_EACH = 4
RECEIVE_SECONDS = 10.0


@dataclass(frozen=True)
class Idle:
    """`connections`: all at once; a tenth of them in a run of one second, which only looks for errors."""

    connections: int = 9000
    columns: tuple[Figure, ...] = (PER_IDLE, MEMORY)

    def drive(self, subject: Subject, seconds: int) -> Run:
        """`seconds` means nothing here: a run ends when each connection has had its requests."""
        count = WARM_CONNECTIONS + (self.connections if seconds > 1 else self.connections // 10)
        heads = HEADS.heads(subject.slot)
        before = 0
        with on_core(subject.core), contextlib.ExitStack() as stack:
            for number in range(count):
                if number == WARM_CONNECTIONS:
                    before = subject.usage().memory
                connection = stack.enter_context(_connected(subject.slot.port))
                for turn in range(REQUESTS_EACH):
                    place = number * REQUESTS_EACH + turn
                    # A step of 13: the requests of a connection are of different kinds of clients.
                    _exchange(connection, heads[place * 13 % len(heads)].replace(ID, b"%012x" % place))
            memory = subject.usage().memory
        idle = count - WARM_CONNECTIONS
        figures = {PER_IDLE.name: (memory - before) / 2**10 / idle, MEMORY.name: memory / 2**20}
        return Run(figures, count * REQUESTS_EACH, 0)


def _connected(port: int) -> socket.socket:
    try:
        return socket.create_connection(("127.0.0.1", port), RECEIVE_SECONDS)
    except OSError as error:
        raise BenchError(f"an idle connection could not be established: {error}") from error


def _exchange(connection: socket.socket, head: bytes) -> None:
    """Send one request and receive its whole response."""
    received = b""
    try:
        connection.sendall(head)
        while True:
            part = connection.recv(65536)
            received += part
            start, end, body = received.partition(b"\r\n\r\n")
            if end and len(body) >= _length(start):
                break
            if not part:
                raise BenchError(f"a connection was closed after {received[:200]!r}")
    except OSError as error:
        raise BenchError(f"a connection that should become idle: {error}") from error
    if not received.startswith(b"HTTP/1.1 200 "):
        raise BenchError(f"a connection that should become idle received {received[:200]!r}")


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise BenchError(f"a response without a length: {head!r}")
