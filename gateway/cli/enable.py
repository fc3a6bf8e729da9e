"""`skewgate enable SERVICE/BACKEND`: ends a drain. The gateway decides which requests the backend gets."""

from __future__ import annotations

import argparse

from gateway.cli import admin_client, operator_commands

HELP = "put a drained backend back into service"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The backend and the admin listener."""
    operator_commands.arguments(parser)
    parser.add_argument("target", metavar="SERVICE/BACKEND", type=operator_commands.target)


def run(options: argparse.Namespace) -> int:
    """Enable the backend; 0 also when it was in service. Raises `AdminError` when the gateway refuses."""
    admin = admin_client.find(options)
    state = operator_commands.send(admin, "POST", operator_commands.backend_path(options.target, "enable"))
    operator_commands.print_state(
        options, admin, state, lambda: operator_commands.backend_line(state, options.target)
    )
    return 0
