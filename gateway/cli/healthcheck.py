"""`skewgate healthcheck`: exit code 0 when the gateway is ready, otherwise 1.

For containers and keepalived, which look at the exit code only. It sends one GET /readyz. Over plain HTTP it
speaks HTTP/1.0 on a socket of its own, because importing `http.client` (and with it TLS) costs more than the
whole check. A response that does not look like a gateway's is an error: any program may listen there.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from time import monotonic
from typing import Final, cast

from gateway.cli import admin_client
from gateway.cli.admin_client import MAX_RESPONSE, NO_GATEWAY, AdminOptions
from gateway.cli.command import file_argument, verb
from gateway.errors import AdminError
from gateway.runtime.terminal import plain, print_error

LAST_LINES: Final = {200: "ready", 503: "not ready"}
"""The last line of a gateway's response to GET /readyz, by status."""

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")


@verb("healthcheck")
@file_argument
@admin_client.options
def healthcheck(*, where: AdminOptions) -> int:
    """Print whether the gateway is ready. Raises `AdminError` when no gateway responds."""
    admin = admin_client.find(where, light=True)
    status, body = admin.request("GET", "/readyz", [("verbose", "")], get=_get)
    *reasons, last = body.decode("utf-8", "replace").splitlines() or [""]
    if last != LAST_LINES.get(status) or not reasons or not reasons[0].startswith(("[+] ", "[-] ")):
        raise AdminError(f"{NO_GATEWAY.format(url=admin.url)}: /readyz responded {status}")
    if status == 200:
        print("ready")
        return 0
    missing = "; ".join(line.removeprefix("[-] ") for line in reasons if line.startswith("[-] "))
    print_error(f"not ready ({status}): {plain(missing) or 'no reason given'}")
    return 1


def _get(
    address: tuple[str, int], target: str, headers: Mapping[str, str], timeout: float
) -> tuple[int, bytes]:
    """Send a GET and return status and body. `timeout`: seconds for all of it. Raises `OSError`."""
    end = monotonic() + timeout
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    lines = [f"GET {target} HTTP/1.0", f"Host: {host}:{address[1]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    # `getaddrinfo` takes bytes, too. It would encode a `str` with IDNA, whose tables are slow to import.
    name = address[0].encode("ascii") if address[0].isascii() else address[0]
    with socket.create_connection(cast(tuple[str, int], (name, address[1])), timeout) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        received = bytearray()
        while len(received) < MAX_RESPONSE:
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
        raise OSError("the response is not HTTP")
    return int(status[1]), body
