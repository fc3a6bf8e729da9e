"""`skewgate pin SERVICE VERSION`: no version above this one is offered until `unpin`.

A pin replaces the ceiling of the configuration. The gateway decides what is offered below it.
"""

from __future__ import annotations

import click

from gateway.cli import admin_client, known_names, operator_commands
from gateway.cli.admin_client import Where
from gateway.cli.command import usage_error, verb


@verb("pin", "Either VERSION or --release is needed. A pin stands above the file's ceiling until `unpin`.")
@operator_commands.options
@click.argument("service", metavar="SERVICE", shell_complete=known_names.services)
@click.argument("version", metavar="[VERSION]", required=False)
@click.option(
    "--release", metavar="NAME", help="a release of the dialect's table or of `releases` in the file"
)
def command(*, where: Where, output: str, service: str, version: str | None, release: str | None) -> int:
    """Set the pin. Raises `AdminError` when the gateway refuses."""
    if version is not None and release is not None:
        usage_error("--release is not allowed with VERSION")
    if version is not None:
        ceiling = {"version": version}
    elif release is not None:
        ceiling = {"release": release}
    else:
        usage_error("a VERSION or --release NAME is missing")
    admin = admin_client.find(where)
    state = operator_commands.send(admin, "PUT", operator_commands.ceiling_path(service), ceiling)
    operator_commands.print_state(output, admin, state, lambda: operator_commands.offer_line(state, service))
    return 0
