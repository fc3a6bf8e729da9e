"""One GET over plain HTTP, for a health check: `http.client` imports TLS, which costs more than the check.

Speaks HTTP/1.0, so that the response ends with the connection. Believes nothing about who responds.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from time import monotonic
from typing import Final

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")


class NotHttpError(OSError):
    """The response is none of HTTP."""


def get(
    address: tuple[str, int], target: str, headers: Mapping[str, str], *, timeout: float, limit: int
) -> tuple[int, bytes]:
    """Status and body of the response. `timeout`: seconds for all of it; `limit`: bytes of it that are read.
    Raises `OSError`."""
    end = monotonic() + timeout
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    lines = [f"GET {target} HTTP/1.0", f"Host: {host}:{address[1]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with _connected(address, timeout) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        received = bytearray()
        while len(received) < limit:
            left = end - monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            connection.settimeout(left)
            data = connection.recv(65536)
            if not data:
                break
            received += data
    head, separator, body = bytes(received).partition(b"\r\n\r\n")
    status = _STATUS_LINE.match(head + b"\r\n")
    if not separator or status is None:
        raise NotHttpError("the response is not HTTP")
    return int(status[1]), body


def _connected(address: tuple[str, int], timeout: float) -> socket.socket:
    """A connection. Of an IP address nothing is looked up, which would import the tables of IDNA."""
    family = _family_of(address[0])
    if family is None:
        return socket.create_connection(address, timeout)
    connection = socket.socket(family)
    try:
        connection.settimeout(timeout)
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def _family_of(host: str) -> socket.AddressFamily | None:
    """None: it is a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return family
    return None
