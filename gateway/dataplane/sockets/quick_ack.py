"""Acknowledges at once what a connection has received (TCP_QUICKACK), instead of with the next data.

A peer with Nagle's algorithm may hold further bytes back until then. They had better come while the
connection is idle, where they are noticed, than behind the next request, where they would be taken for its
response (threats R3-T1). Knows sockets only. Linux alone has the option; elsewhere nothing happens.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    import asyncio

_OPTION: Final[int] = getattr(socket, "TCP_QUICKACK", 0)
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


@final
class QuickAck:
    """The socket of one transport. The descriptor stays the transport's: call `end` when it is lost."""

    __slots__ = ("_socket",)

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        self._socket: socket.socket | None = None
        if _OPTION and sock is not None and sock.family in _FAMILIES:
            # What the loops call a socket costs up to four times as much: uvloop's duplicates the descriptor.
            self._socket = socket.socket(sock.family, sock.type, sock.proto, sock.fileno())

    def send(self) -> None:
        """Acknowledge everything now."""
        if self._socket is not None:
            with suppress(OSError):  # reset by the peer
                self._socket.setsockopt(socket.IPPROTO_TCP, _OPTION, 1)

    def end(self) -> None:
        """Leave the descriptor to the transport."""
        if self._socket is not None:
            self._socket.detach()
            self._socket = None
