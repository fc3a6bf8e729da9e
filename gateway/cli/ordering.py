"""What the verbs that give a running gateway an order share: whom they mean, sending it, telling what came.

One order, one answer, which is the new state; what it means is the gateway's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from gateway.cli import asking
from gateway.cli.printing import complain, plain, span

State: TypeAlias = Mapping[str, Any]
"""A document as of /status."""


class Target(NamedTuple):
    """A backend as the command line names it."""

    service: str
    backend: str

    def __str__(self) -> str:
        return f"{self.service}/{self.backend}"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Where to ask, and how to print."""
    asking.arguments(parser)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")


def target(text: str) -> Target:
    """`SERVICE/BACKEND`, for argparse."""
    service, slash, backend = text.partition("/")
    if not (service and slash and backend):
        raise argparse.ArgumentTypeError("must be SERVICE/BACKEND, as `skewgate status` shows them")
    return Target(service, backend)


def ceiling_path(service: str) -> str:
    """The endpoint of a service's pin."""
    return f"/services/{quote(service, safe='')}/ceiling"


def backend_path(target: Target, order: str) -> str:
    """The endpoint of an order about a backend."""
    return f"/services/{quote(target.service, safe='')}/backends/{quote(target.backend, safe='')}/{order}"


def give(
    admin: asking.Admin, method: str, path: str, document: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Send an order; the state that came of it. Raises `AdminError` when it was refused."""
    body = None if document is None else json.dumps(document).encode("ascii")
    state = asking.document_of(admin.url, path, *admin.ask(method, path, body=body))
    if state.get("kept") is False:
        complain("warning: this ends with the gateway, which has no `state` file or cannot write it")
    return state


def tell(options: argparse.Namespace, admin: asking.Admin, state: State, line: Callable[[], str]) -> None:
    """Print the state as JSON, or the line made of it."""
    text = json.dumps(state) if options.output == "json" else plain(asking.readable(admin.url, line))
    print(text, flush=True)


def offer_line(state: State, service: str) -> str:
    """What a service offers now. Raises what `asking.readable` takes for somebody else's answer."""
    told = state["services"][service]
    offer = told["offer"]
    offered = span(offer["min"], offer["max"])
    pin, ceiling = told["pin"], offer["ceiling"]
    held = f"pinned to {pin}" if pin is not None else f"ceiling {ceiling}" if ceiling is not None else ""
    return f"{service}: offers {offered}{f', {held}' if held else ''}, phase {told['phase']}"


def backend_line(state: State, target: Target) -> str:
    """Where a backend stands now. Raises as `offer_line` does."""
    told = state["services"][target.service]["backends"][target.backend]
    if not told["drained"]:
        return f"{target}: in service"
    return f"{target}: drained, {requests(int(told['in_flight']))} in flight"


def requests(number: int) -> str:
    """`1 request`, `2 requests`."""
    return f"{number} request{'' if number == 1 else 's'}"
