"""`skewgate enable SERVICE/BACKEND`: ends a drain. The gateway decides which requests the backend gets."""

from __future__ import annotations

import click

from gateway.cli import admin_client, known_names, operator_commands
from gateway.cli.admin_client import Where
from gateway.cli.command import verb
from gateway.cli.operator_commands import Target


@verb("enable")
@operator_commands.options
@click.argument(
    "target",
    metavar="SERVICE/BACKEND",
    type=operator_commands.TARGET,
    shell_complete=known_names.backends,
)
def command(*, where: Where, output: str, target: Target) -> int:
    """Enable the backend; 0 also when it was in service. Raises `AdminError` when the gateway refuses."""
    admin = admin_client.find(where)
    state = operator_commands.send(admin, "POST", operator_commands.backend_path(target, "enable"))
    operator_commands.print_state(output, admin, state, lambda: operator_commands.backend_line(state, target))
    return 0
