"""What the kernel does for a socket beyond reading and writing, and what it says about its queues.

    keep_asking      TCP keepalive: the kernel checks whether a silent peer is still there
    QuickAck         received bytes are acknowledged at once, not with the next data
    reset            a connection is closed with a reset, so that nobody takes its end for that of a message
    untaken, unread  bytes that the peer has not taken, and bytes that were not read here

Options that a system lacks are left out.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    import asyncio

IDLE: Final = 60
"""Seconds without a byte until the kernel sends a keepalive probe."""
INTERVAL: Final = 15
TIMES: Final = 4
"""Unanswered keepalive probes after which the connection is lost."""

_KEEPALIVE: Final = (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", INTERVAL), ("TCP_KEEPCNT", TIMES))
_QUICK_ACK: Final[int] = getattr(socket, "TCP_QUICKACK", 0)
_TCP_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with which closing a socket sends a reset."""
_UNSIGNED: Final = struct.Struct("@I")


class _Socket(Protocol):
    """Any socket object, of the standard library or of an event loop."""

    @property
    def family(self) -> int: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def keep_asking(sock: _Socket) -> None:
    """Enable TCP keepalive, which accepted connections inherit from the listening socket. It ends a
    connection whose other end has vanished silently (a power cut, a NAT that forgot it), or whose client has
    closed it while its response is awaited: to the gateway that looks as if only the sending side were
    closed. With `backend_head: off` nothing else would ever end it."""
    if sock.family not in _TCP_FAMILIES:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


@final
class QuickAck:
    """Acknowledges at once what a transport has received (TCP_QUICKACK, Linux only).

    A peer with Nagle's algorithm may hold further bytes back until then. They should come while the
    connection is idle, where they are noticed, and not behind the next request, where they would be taken for
    its response (threats R3-T1). The descriptor stays the transport's: call `end` when it is lost.
    """

    __slots__ = ("_socket",)

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        self._socket: socket.socket | None = None
        if _QUICK_ACK and sock is not None and sock.family in _TCP_FAMILIES:
            # What the loops call a socket costs up to four times as much: uvloop's duplicates the descriptor.
            self._socket = socket.socket(sock.family, sock.type, sock.proto, sock.fileno())

    def send(self) -> None:
        """Acknowledge all received bytes now."""
        if self._socket is not None:
            with suppress(OSError):  # reset by the peer
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def end(self) -> None:
        """Stop using the socket, and leave its descriptor to the transport."""
        if self._socket is not None:
            self._socket.detach()
            self._socket = None


def reset(transport: asyncio.Transport) -> None:
    """Close a connection at once with a reset, the honest end of incomplete bytes. Unsent ones are lost."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()


def untaken(transport: asyncio.Transport) -> int:
    """Bytes that were written and not yet acknowledged by the kernel at the other end. Over TLS some more may
    wait in between, where no transport shows them; they move only when the others do."""
    size = transport.get_write_buffer_size()
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return size
    try:
        answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, _UNSIGNED.pack(0))
    except OSError:  # not a TCP socket
        return size
    return size + int(_UNSIGNED.unpack(answer)[0])


def unread(descriptor: int) -> int:
    """Number of bytes received on a socket that were not read yet."""
    try:
        return int(_UNSIGNED.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, _UNSIGNED.pack(0)))[0])
    except OSError:  # closed meanwhile
        return 0
