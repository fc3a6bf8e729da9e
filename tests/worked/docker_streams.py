"""What a Docker daemon does on a connection that it has taken over: attach and exec.

The client asks with `Upgrade: tcp`, the daemon answers `101 UPGRADED`, and what follows is no HTTP: the bytes
of standard input one way, frames of standard output and error the other way. The end of standard input is a
half-close. It knows nothing of the gateway.
"""

from __future__ import annotations

import asyncio
import re
import struct
from typing import Final

from tests.scenarios.fakes import Head

SWITCHES: Final = (
    b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
    b"Connection: Upgrade\r\nUpgrade: tcp\r\nApi-Version: %b\r\n\r\n"
)
WITH_INPUT: Final = "with-input"
"""The id of an exec that has standard input."""
STDOUT: Final = 1
STDERR: Final = 2
STREAM: Final = re.compile(r"(?:/v[0-9.]+)?/(containers|exec)/[^/]+/(?:attach|start)(?:\?.*)?")


def frame(stream: int, data: bytes) -> bytes:
    """Output as it stands in the stream of a container without a terminal."""
    return struct.pack(">BxxxL", stream, len(data)) + data


def is_stream(head: Head) -> bool:
    """Whether a request asks to attach, or to start an exec."""
    asks = (head.get("Upgrade") or "").lower() == "tcp" and "upgrade" in (
        head.get("Connection") or ""
    ).lower()
    return asks and head.start.startswith("POST ") and STREAM.fullmatch(head.target) is not None


async def run_program(
    newest: str, go_on: asyncio.Event, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Take the connection over, and run a program: with standard input it sends that back, up to its end;
    without it writes something when `go_on` is set, and ends."""
    go_on.clear()
    writer.write(SWITCHES % newest.encode())
    if "stdin=1" not in head.target and WITH_INPUT not in head.target:
        await go_on.wait()
        writer.write(frame(STDOUT, b"output ") + frame(STDERR, b"errors"))
        return
    while data := await reader.read(64 * 1024):
        writer.write(frame(STDOUT, data))
        await writer.drain()
    writer.write(frame(STDERR, b"end of input"))
