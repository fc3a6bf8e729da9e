"""`skewgate healthcheck`: exit 0 when the gateway says that it is ready, else 1.

For containers and keepalived, which look at nothing but the exit code. Asks once and decides nothing itself.
"""

from __future__ import annotations

import argparse

from gateway.cli import asking
from gateway.cli.printing import complain, plain

HELP = "ask a running gateway whether it is ready: exit 0 or 1"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Where to ask."""
    asking.arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Ask once. Raises `AdminError` when nobody answers."""
    status, body = asking.find(options).ask("GET", "/readyz", [("verbose", "")])
    if status == 200:
        print("ready")
        return 0
    lines = body.decode("utf-8", "replace").splitlines()
    missing = "; ".join(line.removeprefix("[-] ") for line in lines if line.startswith("[-] "))
    complain(f"not ready ({status}): {plain(missing or ' '.join(lines)) or 'no reason given'}")
    return 1
