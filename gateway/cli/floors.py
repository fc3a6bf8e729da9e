"""The verbs `raise` and `lower`: the lowest version that a service offers.

`raise` first asks the gateway, as `skewgate simulate --min V` does, who would be affected.
"""

from __future__ import annotations

import sys

import click

from gateway.cli import admin_client
from gateway.cli.admin_client import AdminOptions
from gateway.cli.command import verb
from gateway.cli.operator_commands import options, service_argument, set_limit
from gateway.cli.simulate import NOBODY, exit_code, page_lines
from gateway.errors import AdminError
from gateway.runtime.terminal import Paint, plain, print_error


@verb(
    "raise",
    "Prints who is affected, as `skewgate simulate SERVICE --min VERSION` does. Without --yes it acts only "
    "if nobody is, for certain; otherwise the exit code is that of `simulate`.",
)
@options
@service_argument
@click.argument("version", metavar="VERSION")
@click.option("--yes", is_flag=True, help="raise it whoever is affected")
def raise_(*, where: AdminOptions, output: str, service: str, version: str, yes: bool) -> int:
    """Raise a service's floor. Raises `AdminError`."""
    admin = admin_client.find(where)
    stream = sys.stderr if output == "json" else sys.stdout
    response = admin.request("GET", "/simulate", [("service", service), ("min", version)])
    try:
        found = admin_client.document_of(admin.url, "/simulate", *response)
        page = admin_client.formatted(admin.url, lambda: "\n".join(page_lines(found, (), Paint(stream))))
        print(page, file=stream, flush=True)
    except AdminError as problem:
        if not yes:
            raise
        print_error(f"who is affected is not known: {plain(str(problem))}")
    else:
        if (code := exit_code(found, ())) != NOBODY and not yes:
            print_error("nothing was done: to raise the floor in spite of this, give --yes")
            return code
    query = [("yes", "")] * yes
    return set_limit(admin, output, service, "PUT", "floor", {"version": version}, query=query)


@verb("lower", "The `floor` of the configuration, or none, holds again.")
@options
@service_argument
def lower(*, where: AdminOptions, output: str, service: str) -> int:
    """Remove a raised floor, if there is one. Raises `AdminError`."""
    return set_limit(admin_client.find(where), output, service, "DELETE", "floor")
