"""Listening sockets that this process inherits: from systemd (socket activation, sd_listen_fds(3)) or from
the gateway that it takes over.

    LISTEN_FDS, LISTEN_PID  ->  passed_sockets  ->  Inheritance  ->  Handover.bind, bind_site

Sockets of systemd are told apart by their addresses, as in `listen`, `admin.listen` and
`admin.metrics_listen`. systemd keeps them while the gateway is restarted, so that no client is refused.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from typing import Final, NamedTuple, final

from gateway.dataplane.edge.listening_sockets import Inherited, name_of
from gateway.errors import StartupError
from gateway.settings import Settings

FIRST: Final = 3
"""The descriptor of the first socket that systemd passes. The others follow."""
VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
MAX_SOCKETS: Final = 1024
FIRST_OFFER: Final = 10.0
"""Seconds for which clients wait in sockets of systemd for the first offer. Then they get an error."""


@final
class Inheritance(NamedTuple):
    """Listening sockets that this process inherits: for clients, for operators, for scrapes of metrics. The
    fields are the roles of sockets in a hand-over."""

    clients: tuple[Inherited, ...] = ()
    admin: tuple[Inherited, ...] = ()
    metrics: tuple[Inherited, ...] = ()


def passed_sockets(settings: Settings, environ: MutableMapping[str, str]) -> Inheritance:
    """The listening sockets that systemd has passed. Removes its variables from `environ`, which are for no
    child process. Raises `StartupError` for a descriptor that does not listen."""
    owner, count = environ.get("LISTEN_PID", ""), environ.get("LISTEN_FDS", "")
    for name in VARIABLES:
        environ.pop(name, None)
    if owner != str(os.getpid()):
        return Inheritance()
    if not (count.isascii() and count.isdecimal() and int(count) <= MAX_SOCKETS):
        raise StartupError(f"LISTEN_FDS is {count[:20]!a}, not a number of sockets")
    found = [_opened(FIRST + each) for each in range(int(count))]
    admin = _of_address(found, settings.admin.listen)
    metrics = _of_address(found, settings.admin.metrics_listen)
    clients = tuple(one for one in found if one not in admin and one not in metrics)
    return Inheritance(clients, admin, metrics)


def _opened(number: int) -> Inherited:
    try:
        os.set_inheritable(number, False)  # noqa: FBT003 - the name of the function says it
        sock = socket.socket(fileno=number)
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise StartupError(f"descriptor {number} of systemd is not a socket: {reason}") from None
    listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if sock.type != socket.SOCK_STREAM or not listens:
        name = name_of(sock)
        sock.close()
        raise StartupError(
            f"the socket for {name}, which systemd has passed, accepts no connections: "
            "write ListenStream= and Accept=no"
        )
    return Inherited(sock, managed=True)


def _of_address(found: list[Inherited], address: tuple[str, int] | None) -> tuple[Inherited, ...]:
    if address is None:
        return ()
    return tuple(
        one
        for one in found
        if one.sock.family in {socket.AF_INET, socket.AF_INET6} and one.sock.getsockname()[:2] == address
    )
