"""Closing a connection with a reset: the only honest end of bytes that are not complete.

Where the end of the connection ends a message or a stream, an orderly close would look like the whole of it.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which closing a socket sends a reset."""


def reset(transport: asyncio.Transport) -> None:
    """Close at once, with a reset. What was not sent is dropped."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()
