"""`skewgate unpin SERVICE`: ends a pin. If the configuration has a ceiling, it is in force again."""

from __future__ import annotations

import click

from gateway.cli import admin_client, known_names, operator_commands
from gateway.cli.admin_client import Where
from gateway.cli.command import verb


@verb("unpin")
@operator_commands.options
@click.argument("service", metavar="SERVICE", shell_complete=known_names.services)
def command(*, where: Where, output: str, service: str) -> int:
    """Remove the pin; 0 also when there was none. Raises `AdminError` when the gateway refuses."""
    admin = admin_client.find(where)
    state = operator_commands.send(admin, "DELETE", operator_commands.ceiling_path(service))
    operator_commands.print_state(output, admin, state, lambda: operator_commands.offer_line(state, service))
    return 0
