"""`skewgate drain SERVICE/BACKEND`: no new requests for it, so that it can be stopped; `--wait` until it is
idle.

It is still probed. Requests in flight there are finished by the gateway, never cut by this.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

from gateway.cli import asking, ordering
from gateway.cli.ordering import State, Target
from gateway.errors import AdminError

HELP = "take a backend out of service; it finishes what it has"

EVERY: Final = 0.2
"""Seconds between two looks while waiting: a person does not notice, and /status is made from memory."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The backend, where to ask, and whether to wait."""
    ordering.arguments(parser)
    parser.add_argument("target", metavar="SERVICE/BACKEND", type=ordering.target)
    parser.add_argument(
        "--wait", action="store_true", help="return when the last request in flight there is done"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        help="with --wait: give up after so long, with exit code 1; the backend stays drained",
    )
    parser.set_defaults(usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """In force when it returns 0, and with `--wait` nothing is in flight there any more. Raises
    `AdminError`."""
    if options.timeout is not None and not options.wait:
        options.usage_error("--timeout needs --wait")
    admin = asking.find(options)
    state: State = ordering.give(admin, "POST", ordering.backend_path(options.target, "drain"))
    if options.wait:
        state = _idle(admin, options.target, state, options.timeout)
    ordering.tell(options, admin, state, lambda: ordering.backend_line(state, options.target))
    return 0


def _idle(admin: asking.Admin, target: Target, state: State, timeout: float | None) -> State:
    """The first state in which nothing is in flight. Raises `AdminError` when that will not come."""
    end = None if timeout is None else time.monotonic() + timeout
    while number := _in_flight(target, state):
        if end is not None and time.monotonic() >= end:
            raise AdminError(f"{target} is drained, but still has {ordering.requests(number)} in flight")
        time.sleep(EVERY)
        state = admin.document("GET", "/status")
    return state


def _in_flight(target: Target, state: State) -> int:
    """Raises `AdminError` when the backend is not drained any more: then waiting for its end is in vain."""
    try:
        told = state["services"][target.service]["backends"][target.backend]
        drained, number = bool(told["drained"]), int(told["in_flight"])
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
