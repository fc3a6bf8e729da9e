"""`skewgate healthcheck`: exit code 0 when the gateway is ready, otherwise 1.

For containers and keepalived, which use the exit code only. It sends one request and decides nothing itself.
"""

from __future__ import annotations

import argparse

from gateway.cli import admin_client
from gateway.terminal import plain, print_error

HELP = "check whether a running gateway is ready: exit 0 or 1"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The admin listener."""
    admin_client.arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print the result. Raises `AdminError` when no gateway responds."""
    status, body = admin_client.find(options).request("GET", "/readyz", [("verbose", "")])
    if status == 200:
        print("ready")
        return 0
    lines = body.decode("utf-8", "replace").splitlines()
    missing = "; ".join(line.removeprefix("[-] ") for line in lines if line.startswith("[-] "))
    print_error(f"not ready ({status}): {plain(missing or ' '.join(lines)) or 'no reason given'}")
    return 1
