"""`skewgate pin SERVICE VERSION`: no version above this one is offered until `unpin`.

A pin replaces the ceiling of the configuration. The gateway decides what is offered below it.
"""

from __future__ import annotations

import argparse

from gateway.cli import admin_client, operator_commands

HELP = "limit a service's offer to a version or a release"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The service, the ceiling, and the admin listener."""
    operator_commands.arguments(parser)
    parser.add_argument("service", metavar="SERVICE")
    ceiling = parser.add_mutually_exclusive_group(required=True)
    ceiling.add_argument("version", metavar="VERSION", nargs="?")
    ceiling.add_argument(
        "--release", metavar="NAME", help="a release of the dialect's table or of `releases` in the file"
    )


def run(options: argparse.Namespace) -> int:
    """Set the pin. Raises `AdminError` when the gateway refuses."""
    admin = admin_client.find(options)
    ceiling = {"release": options.release} if options.version is None else {"version": options.version}
    state = operator_commands.send(admin, "PUT", operator_commands.ceiling_path(options.service), ceiling)
    operator_commands.print_state(
        options, admin, state, lambda: operator_commands.offer_line(state, options.service)
    )
    return 0
