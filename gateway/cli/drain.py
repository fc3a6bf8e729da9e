"""`skewgate drain SERVICE/BACKEND`: a backend gets no new requests, so that it can be stopped.

With `--wait` the verb returns when the backend is idle. The backend is still probed. Draining never cuts a
request in flight: the gateway finishes it.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

from gateway.cli import admin_client, operator_commands
from gateway.cli.operator_commands import State, Target
from gateway.errors import AdminError

HELP = "take a backend out of service; its requests in flight are finished"

INTERVAL: Final = 0.2
"""Seconds between two requests for /status while waiting. A person does not notice the delay, and the gateway
makes /status from memory."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The backend, the admin listener, and whether to wait."""
    operator_commands.arguments(parser)
    parser.add_argument("target", metavar="SERVICE/BACKEND", type=operator_commands.target)
    parser.add_argument(
        "--wait", action="store_true", help="return when the last request in flight is finished"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        help="with --wait: give up after this time with exit code 1; the backend stays drained",
    )
    parser.set_defaults(usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """Drain the backend. After 0 it is in force, and with `--wait` no request is in flight there. Raises
    `AdminError`."""
    if options.timeout is not None and not options.wait:
        options.usage_error("--timeout needs --wait")
    admin = admin_client.find(options)
    path = operator_commands.backend_path(options.target, "drain")
    state: State = operator_commands.send(admin, "POST", path)
    if options.wait:
        state = _wait_until_idle(admin, options.target, state, options.timeout)
    operator_commands.print_state(
        options, admin, state, lambda: operator_commands.backend_line(state, options.target)
    )
    return 0


def _wait_until_idle(
    admin: admin_client.AdminClient, target: Target, state: State, timeout: float | None
) -> State:
    """The first state in which no request is in flight. Raises `AdminError` at the timeout, and when the
    backend is not drained any more."""
    end = None if timeout is None else time.monotonic() + timeout
    while number := _in_flight(target, state):
        if end is not None and time.monotonic() >= end:
            raise AdminError(
                f"{target} is drained, but still has {operator_commands.requests(number)} in flight"
            )
        time.sleep(INTERVAL)
        state = admin.document("GET", "/status")
    return state


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


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError("must be a number of seconds up to 86400")
    return seconds
