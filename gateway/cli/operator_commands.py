"""The verbs that command a running gateway: `pin`, `unpin`, `enable`, `forget` and `reload`.

Each sends one request with `admin_client` and prints one line of the new state in the response. The gateway
decides what a command means; no verb here reads a configuration for it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

import click

from gateway.cli import admin_client, known_names
from gateway.cli.admin_client import AdminClient, AdminOptions
from gateway.cli.command import file_argument, output_option, usage_error, verb
from gateway.errors import AdminError, TokenError
from gateway.runtime.terminal import plain, print_error, span

State: TypeAlias = Mapping[str, Any]
"""The JSON object of /status, which is also the response to a command."""

TOKEN_WAIT: Final = 5.0
"""Seconds for which a refused token is tried again, because the gateway may not have read a new one yet."""
TOKEN_PAUSE: Final = 0.2
REFUSED: Final = 400
"""Status of the response to a reload when the file has problems."""


class BackendName(NamedTuple):
    """A backend as the command line names it: SERVICE/BACKEND."""

    service: str
    backend: str

    def __str__(self) -> str:
        return f"{self.service}/{self.backend}"

    def path(self, command: str) -> str:
        service, backend = quote(self.service, safe=""), quote(self.backend, safe="")
        return f"/services/{service}/backends/{backend}/{command}"


def _backend_name(text: str) -> BackendName:
    service, slash, backend = text.partition("/")
    if not (service and slash and backend):
        raise ValueError("must be SERVICE/BACKEND, as `skewgate status` shows them")
    return BackendName(service, backend)


def options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options for the admin listener (`where`) and the output format."""
    return admin_client.options(output_option(function))


service_argument = click.argument("service", metavar="SERVICE", shell_complete=known_names.services)
backend_argument = click.argument(
    "target",
    metavar="SERVICE/BACKEND",
    type=_backend_name,
    shell_complete=known_names.backends,
)


@verb(
    "pin",
    "Give either VERSION or --release. The pin overrides the `ceiling` of the configuration until `unpin`.",
)
@options
@service_argument
@click.argument("version", metavar="[VERSION]", required=False)
@click.option(
    "--release",
    metavar="NAME",
    help="a release that the dialect knows, or one of `releases` in the configuration",
)
def pin(*, where: AdminOptions, output: str, service: str, version: str | None, release: str | None) -> int:
    """Pin the offer: no version above the pin is offered."""
    if version is not None and release is not None:
        usage_error("--release is not allowed with VERSION")
    if version is not None:
        ceiling = {"version": version}
    elif release is not None:
        ceiling = {"release": release}
    else:
        usage_error("give a VERSION or --release NAME")
    return set_limit(admin_client.find(where), output, service, "PUT", "ceiling", ceiling)


@verb("unpin", "The offer follows the fleet and the `ceiling` of the configuration again.")
@options
@service_argument
def unpin(*, where: AdminOptions, output: str, service: str) -> int:
    """Remove the pin, if there is one; a ceiling in the configuration applies again."""
    return set_limit(admin_client.find(where), output, service, "DELETE", "ceiling")


def set_limit(
    admin: AdminClient,
    output: str,
    service: str,
    method: str,
    limit: str,
    document: Mapping[str, str] | None = None,
    *,
    query: Sequence[tuple[str, str]] = (),
) -> int:
    """Change a service's `ceiling` or `floor`, and print its offer. Raises `AdminError`."""
    state = send(admin, method, f"/services/{quote(service, safe='')}/{limit}", document, query)
    print_state(output, admin, state, lambda: offer_line(state, service))
    return 0


def offer_line(state: State, name: str) -> str:
    """Return the line about the offer of the service `name`."""
    service = state["services"][name]
    offer = service["offer"]
    offered = span(offer["min"], offer["max"])
    pin, ceiling = service["pin"], offer["ceiling"]
    limit = f"pinned to {pin}" if pin is not None else f"ceiling {ceiling}" if ceiling is not None else ""
    floor = f", floor {offer['floor']}" if offer.get("floor") is not None else ""
    return f"{name}: offers {offered}{f', {limit}' if limit else ''}{floor}, phase {service['phase']}"


@verb("enable")
@options
@backend_argument
def enable(*, where: AdminOptions, output: str, target: BackendName) -> int:
    """End the drain of a backend, if it is drained."""
    admin = admin_client.find(where)
    state = send(admin, "POST", target.path("enable"))
    print_state(output, admin, state, lambda: backend_line(state, target))
    return 0


def backend_line(state: State, target: BackendName) -> str:
    """Return the line about a backend: in service, or drained."""
    backend = state["services"][target.service]["backends"][target.backend]
    if not backend["drained"]:
        return f"{target}: in service"
    number = int(backend["in_flight"])
    by = f" by {plain(backend['drained_by'])}" if backend.get("drained_by") else ""
    return f"{target}: drained{by}, {number} request{'' if number == 1 else 's'} in flight"


@verb(
    "forget",
    "Only for a replica that will not come back with its state file: it could still offer versions that the"
    " others then refuse. `skewgate status` shows the IDs.",
)
@options
@click.argument("replica", metavar="ID", shell_complete=known_names.replicas)
def forget(*, where: AdminOptions, output: str, replica: str) -> int:
    """End the registration of a replica: the others no longer wait for its consent to refuse a version."""
    admin = admin_client.find(where)
    state = send(admin, "DELETE", f"/replicas/{quote(replica, safe='')}")
    print_state(output, admin, state, lambda: f"{replica}: forgotten")
    return 0


@verb("reload")
@file_argument
@admin_client.options
def reload(*, where: AdminOptions) -> int:
    """Reload the configuration; problems are printed as `check` prints them."""
    admin = admin_client.find(where)
    status, body = _request_reload(admin)
    if status == REFUSED and (problems := _problems(body)):
        print("\n".join(_safe_text(problem) for problem in problems), file=sys.stderr)
        raise AdminError("reload refused, the old configuration stays in force")
    document = admin_client.document_of(admin.url, "/-/reload", status, body)
    state = admin_client.require_state(admin.url, document)
    _warn_of_pending(state)
    print(f"reloaded: generation {state['generation']} is in force", flush=True)
    return 0


def _request_reload(admin: AdminClient) -> tuple[int, bytes]:
    """Send the reload request; retry a token from a file, which the gateway may take seconds to read."""
    end = time.monotonic() + TOKEN_WAIT
    while True:
        try:
            return admin.request("POST", "/-/reload")
        except TokenError:
            if admin.token_from == admin_client.TOKEN_VARIABLE or time.monotonic() > end:
                raise
        time.sleep(TOKEN_PAUSE)


def _problems(body: bytes) -> Sequence[str]:
    """Return the problems of the file in a response; empty if the response is not a gateway's."""
    try:
        found = json.loads(body)["problems"]
    except (ValueError, LookupError, TypeError):
        return ()
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else ()


def _safe_text(problem: str) -> str:
    """Remove control characters from a problem, except for tabs, which keep the carets in their columns."""
    return "\n".join("\t".join(map(plain, line.split("\t"))) for line in problem.split("\n"))


def send(
    admin: AdminClient,
    method: str,
    path: str,
    document: Mapping[str, str] | None = None,
    query: Sequence[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Send an operator's command, print its warnings and return the new state."""
    body = None if document is None else json.dumps(document).encode("ascii")
    response = admin_client.document_of(admin.url, path, *admin.request(method, path, query, body=body))
    state = admin_client.require_state(admin.url, response)
    if state.get("kept") is False:
        print_error("warning: this will not survive a restart: the gateway has no writable `state` file")
    _warn_of_pending(state)
    if isinstance(warning := state.get("warning"), str):
        print_error(f"warning: {plain(warning)}")
    return state


def _warn_of_pending(state: State) -> None:
    """Print the workers and replicas that have not acknowledged the command yet."""
    if isinstance(pending := state.get("pending"), list) and pending:
        print_error(f"warning: not acknowledged yet by {plain(', '.join(map(str, pending)))}")


def print_state(output: str, admin: AdminClient, state: State, line: Callable[[], str]) -> None:
    """Print the state after a command as JSON, or one line about it."""
    text = json.dumps(state) if output == "json" else plain(admin_client.formatted(admin.url, line))
    print(text, flush=True)
