"""Addresses, ports and sockets of loopback."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
from contextlib import suppress
from typing import Final

LOOPBACK: Final = "127.0.0.1"
RESET: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which closing a socket sends a reset."""


OWN_PORTS: Final = range(10_000, 30_000)
"""Below the ephemeral ones of Linux, which begin at 32768."""

_given: set[int] = set()
"""Ports that this process has been given: whoever got one may not have bound it yet."""


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, at once."""
    with suppress(OSError, ValueError, AttributeError):  # closed already
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    try:
        writer.transport.abort()
    except AttributeError:
        if not writer.is_closing():
            raise
        # asyncio's TLS of Python 3.11 lets go of its connection when it is closed a second time.


def closed_port() -> int:
    """A port of loopback on which no process listens."""
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


def free_port() -> int:
    """One that nobody has. Not of those that the kernel gives to whoever asks for any port: other tests do so
    all the time, and a process takes a second to bind the one that it was told. For the same reason none is
    given twice, and tests that run beside these (pytest-xdist) have others."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = OWN_PORTS[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    if len(_given) > len(own) // 2:
        _given.clear()  # those of long ago are free again, or taken
    while True:
        port = secrets.choice(own)
        if port in _given:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            _given.add(port)
            return port
