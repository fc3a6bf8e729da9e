"""`skewgate unpin SERVICE`: ends a pin. If the configuration has a ceiling, it is in force again."""

from __future__ import annotations

import argparse

from gateway.cli import admin_client, operator_commands

HELP = "remove a service's pin: offer again what the fleet serves"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The service and the admin listener."""
    operator_commands.arguments(parser)
    parser.add_argument("service", metavar="SERVICE")


def run(options: argparse.Namespace) -> int:
    """Remove the pin; 0 also when there was none. Raises `AdminError` when the gateway refuses."""
    admin = admin_client.find(options)
    state = operator_commands.send(admin, "DELETE", operator_commands.ceiling_path(options.service))
    operator_commands.print_state(
        options, admin, state, lambda: operator_commands.offer_line(state, options.service)
    )
    return 0
