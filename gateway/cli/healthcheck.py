"""`skewgate healthcheck`: exit code 0 when the gateway is ready, otherwise 1.

For containers and keepalived, which look at the exit code only. It sends one GET /readyz. A response that
does not look like a gateway's is an error: any program may listen there.
"""

from __future__ import annotations

from typing import Final

from gateway.cli import admin_client
from gateway.cli.admin_client import NO_GATEWAY, AdminOptions
from gateway.cli.command import file_argument, verb
from gateway.errors import AdminError
from gateway.runtime.terminal import plain, print_error

LAST_LINES: Final = {200: "ready", 503: "not ready"}
"""The last line of a gateway's response to GET /readyz, by status."""


@verb("healthcheck")
@file_argument
@admin_client.options
def healthcheck(*, where: AdminOptions) -> int:
    """Print whether the gateway is ready. Raises `AdminError` when no gateway responds."""
    admin = admin_client.find(where, light=True)
    status, body = admin.request("GET", "/readyz", [("verbose", "")])
    *reasons, last = body.decode("utf-8", "replace").splitlines() or [""]
    if last != LAST_LINES.get(status) or not reasons or not reasons[0].startswith(("[+] ", "[-] ")):
        raise AdminError(f"{NO_GATEWAY.format(url=admin.url)}: /readyz responded {status}")
    if status == 200:
        print("ready")
        return 0
    missing = "; ".join(line.removeprefix("[-] ") for line in reasons if line.startswith("[-] "))
    print_error(f"not ready ({status}): {plain(missing) or 'no reason given'}")
    return 1
