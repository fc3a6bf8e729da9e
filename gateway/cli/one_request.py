"""One HTTP request on a connection of its own, as HTTP/1.0: the response ends where the connection does.

The verbs that talk to a gateway use it, because importing `http.client`, and with it `email` and TLS, costs a
quarter of them. It follows no redirection and knows no chunks: a gateway sends neither to HTTP/1.0.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from time import monotonic
from typing import Final, cast

MAX_RESPONSE: Final = 1 << 30
"""Maximum size of a response in bytes: a copy of the largest database of usage takes some hundred MiB."""

NOT_ALLOWED: Final = "the address or the token has a character that HTTP does not allow"

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")


def connect(host: str, port: int, timeout: float) -> socket.socket:
    """Open a TCP connection within `timeout` seconds for each address. Raises `OSError`."""
    # `getaddrinfo` takes bytes, too. It would encode a `str` with IDNA, whose tables are slow to import.
    name = host.encode("ascii") if host.isascii() else host
    return socket.create_connection(cast(tuple[str, int], (name, port)), timeout)


def send_request(
    connection: socket.socket,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    timeout: float,
) -> tuple[int, bytes]:
    """Send a request, and return status and body of the response. `timeout`: seconds for all of it. Raises
    `OSError`."""
    end = monotonic() + timeout
    lines = [f"{method} {target} HTTP/1.0", *(f"{name}: {value}" for name, value in headers.items())]
    if method != "GET":
        lines.append(f"Content-Length: {len(body)}")
    if " " in target or not all(map(str.isprintable, lines)):
        raise OSError(NOT_ALLOWED)
    try:
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    except UnicodeEncodeError:
        raise OSError(NOT_ALLOWED) from None
    connection.sendall(head + body)
    received = bytearray()
    while True:
        left = end - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left)
        data = connection.recv(65536)
        if not data:
            break
        received += data
        if len(received) > MAX_RESPONSE:
            raise OSError("the response is too large")
    head, separator, content = bytes(received).partition(b"\r\n\r\n")
    status = _STATUS_LINE.match(head + b"\r\n")
    if not separator or status is None:
        raise OSError("the response is not HTTP")
    return int(status[1]), content
