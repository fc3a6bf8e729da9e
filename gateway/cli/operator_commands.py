"""Shared by the verbs that change a running gateway: the target, sending the command, printing the new state.

The response to a command is the new state. The gateway decides what a command means.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from gateway.cli import admin_client
from gateway.cli.command import Text, output_option
from gateway.runtime.terminal import plain, print_error, span

State: TypeAlias = Mapping[str, Any]
"""A document like that of /status."""


class Target(NamedTuple):
    """A backend as the command line names it."""

    service: str
    backend: str

    def __str__(self) -> str:
        return f"{self.service}/{self.backend}"


def options(function: Callable[..., int]) -> Callable[..., int]:
    """The admin listener (`where`) and the format of the output."""
    return admin_client.options(output_option(function))


def _target(text: str) -> Target:
    service, slash, backend = text.partition("/")
    if not (service and slash and backend):
        raise ValueError("must be SERVICE/BACKEND, as `skewgate status` shows them")
    return Target(service, backend)


TARGET: Final = Text("SERVICE/BACKEND", _target)


def ceiling_path(service: str) -> str:
    """The endpoint of a service's pin."""
    return f"/services/{quote(service, safe='')}/ceiling"


def backend_path(target: Target, command: str) -> str:
    """The endpoint of a command for a backend."""
    return f"/services/{quote(target.service, safe='')}/backends/{quote(target.backend, safe='')}/{command}"


def send(
    admin: admin_client.AdminClient, method: str, path: str, document: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Send a command; the new state. Raises `AdminError` when the gateway refuses."""
    body = None if document is None else json.dumps(document).encode("ascii")
    document = admin_client.document_of(admin.url, path, *admin.request(method, path, body=body))
    state = admin_client.require_state(admin.url, document)
    if state.get("kept") is False:
        print_error("warning: a restart of the gateway ends this: it has no `state` file, or cannot write it")
    warn_of_pending(state)
    if isinstance(warning := state.get("warning"), str):
        print_error(f"warning: {plain(warning)}")
    return state


def warn_of_pending(state: State) -> None:
    """Say for whom what was commanded still waits."""
    if isinstance(pending := state.get("pending"), list) and pending:
        print_error(f"warning: not everywhere yet, it waits for {plain(', '.join(map(str, pending)))}")


def print_state(output: str, admin: admin_client.AdminClient, state: State, line: Callable[[], str]) -> None:
    """Print the state as JSON, or the line made from it."""
    text = json.dumps(state) if output == "json" else plain(admin_client.formatted(admin.url, line))
    print(text, flush=True)


def offer_line(state: State, name: str) -> str:
    """The present offer of a service. Raises the errors that `admin_client.formatted` catches."""
    service = state["services"][name]
    offer = service["offer"]
    offered = span(offer["min"], offer["max"])
    pin, ceiling = service["pin"], offer["ceiling"]
    limit = f"pinned to {pin}" if pin is not None else f"ceiling {ceiling}" if ceiling is not None else ""
    return f"{name}: offers {offered}{f', {limit}' if limit else ''}, phase {service['phase']}"


def backend_line(state: State, target: Target) -> str:
    """Whether a backend is in service. Raises as `offer_line` does."""
    backend = state["services"][target.service]["backends"][target.backend]
    if not backend["drained"]:
        return f"{target}: in service"
    return f"{target}: drained, {requests(int(backend['in_flight']))} in flight"


def requests(number: int) -> str:
    """`1 request`, `2 requests`."""
    return f"{number} request{'' if number == 1 else 's'}"
