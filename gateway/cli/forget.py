"""`skewgate forget ID`: the others go on without a replica that does not come back.

A version is refused only when every registered replica agrees to it. This verb ends the registration of one:
say it only of a machine that will not come back with its state file.
"""

from __future__ import annotations

from urllib.parse import quote

import click

from gateway.cli import admin_client, known_names, operator_commands
from gateway.cli.admin_client import Where
from gateway.cli.command import verb


@verb(
    "forget",
    "Only for a replica that will not come back with its state file: it may still offer what the others "
    "refuse from now on. `skewgate status` shows the ids.",
)
@operator_commands.options
@click.argument("replica", metavar="ID", shell_complete=known_names.replicas)
def command(*, where: Where, output: str, replica: str) -> int:
    """Forget the replica. Raises `AdminError` when the gateway refuses, as it does of one that is live."""
    admin = admin_client.find(where)
    state = operator_commands.send(admin, "DELETE", f"/replicas/{quote(replica, safe='')}")
    operator_commands.print_state(output, admin, state, lambda: f"{replica}: forgotten")
    return 0
