"""`skewgate drain SERVICE/BACKEND`: a backend gets no new requests, so that it can be stopped.

With `--wait` the verb returns when the backend is idle, in every live replica. The backend is still probed.
Draining never cuts a request in flight: the gateway finishes it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from gateway.cli import admin_client, known_names, operator_commands
from gateway.cli.admin_client import Where
from gateway.cli.command import seconds, usage_error, verb
from gateway.cli.operator_commands import State, Target
from gateway.errors import AdminError
from gateway.runtime.terminal import plain, print_error

INTERVAL: Final = 0.2
"""Seconds between two requests for /status while waiting. A person does not notice the delay, and the gateway
makes /status from memory."""


@verb("drain")
@operator_commands.options
@click.argument(
    "target",
    metavar="SERVICE/BACKEND",
    type=operator_commands.TARGET,
    shell_complete=known_names.backends,
)
@click.option("--wait", is_flag=True, help="return when the last request in flight is finished")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=seconds(0, 86_400),
    help="with --wait: give up after this time with exit code 1; the backend stays drained",
)
def command(*, where: Where, output: str, target: Target, wait: bool, timeout: float | None) -> int:
    """Drain the backend. After 0 it is in force, and with `--wait` no request is in flight there. Raises
    `AdminError`."""
    if timeout is not None and not wait:
        usage_error("--timeout needs --wait")
    admin = admin_client.find(where)
    path = operator_commands.backend_path(target, "drain")
    state: State = operator_commands.send(admin, "POST", path)
    if wait:
        state = _wait_until_idle(admin, target, state, timeout)
    operator_commands.print_state(output, admin, state, lambda: operator_commands.backend_line(state, target))
    return 0


def _wait_until_idle(
    admin: admin_client.AdminClient, target: Target, state: State, timeout: float | None
) -> State:
    """The first state in which no request is in flight. Raises `AdminError` at the timeout, and when the
    backend is not drained any more."""
    end = None if timeout is None else time.monotonic() + timeout
    while what := _keeps_busy(target, state):
        if end is not None and time.monotonic() >= end:
            raise AdminError(f"{target} is drained, but {what}")
        time.sleep(INTERVAL)
        state = admin.status()
    if away := _agreement(target, state).get("away"):
        print_error(
            "warning: nobody knows whether these replicas, which are not attached, still use it: "
            f"{plain(', '.join(map(str, away)))}"
        )
    return state


def _keeps_busy(target: Target, state: State) -> str:
    """Why it is not idle, as far as is known here; empty: it is."""
    if number := _in_flight(target, state):
        return f"still has {operator_commands.requests(number)} in flight"
    if state.get("agreement") is None:
        return ""
    agreement = _agreement(target, state)
    drain = agreement.get("drains", {}).get(target.backend)
    if drain is None or not agreement.get("attached"):
        return "this replica does not know whether the others still use it"
    return (
        "" if drain["idle"] else f"other replicas still use it: {plain(', '.join(map(str, drain['busy'])))}"
    )


def _agreement(target: Target, state: State) -> Mapping[str, Any]:
    """What the gateway knows of the other replicas; nothing where it stands alone."""
    found = state["services"][target.service].get("agreement", {})
    return found if isinstance(found, Mapping) else {}


def _in_flight(target: Target, state: State) -> int:
    """Requests in flight. Raises `AdminError` when the backend is not drained any more: it may never be
    idle."""
    try:
        backend = state["services"][target.service]["backends"][target.backend]
        drained, number = bool(backend["drained"]), int(backend["in_flight"])
    except (LookupError, TypeError, ValueError):
        raise AdminError(f"{target} is not configured any more") from None
    if not drained:
        raise AdminError(f"{target} was put back into service meanwhile")
    return number
