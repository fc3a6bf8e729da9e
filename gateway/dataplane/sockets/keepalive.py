"""TCP keepalive: the kernel asks a peer that is silent for long whether it is still there.

It ends a connection whose other end has vanished without a word (a power cut, a NAT that forgot it). And one
whose client has closed it while its response is awaited: to the gateway that looks as if only the sending
side were closed. With the deadline of a request switched off (`backend_head: off`) nothing else would ever
end it, and it would count as in flight for ever. Knows sockets only.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

IDLE: Final = 60
"""Seconds without a byte until the kernel asks."""
INTERVAL: Final = 15
TIMES: Final = 4
"""Without an answer, then the connection is lost."""

_VALUES: Final = (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", INTERVAL), ("TCP_KEEPCNT", TIMES))


class _Socket(Protocol):
    """What event loops call a socket."""

    @property
    def family(self) -> int: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def keep_asking(sock: _Socket) -> None:
    """Of a socket that listens, all connections inherit it."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _VALUES:
        option = getattr(socket, name, None)  # not every system has them
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
