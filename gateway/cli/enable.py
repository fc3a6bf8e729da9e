"""`skewgate enable SERVICE/BACKEND`: the end of `drain`. Which requests it gets is the gateway's to say."""

from __future__ import annotations

import argparse

from gateway.cli import asking, ordering

HELP = "put a drained backend back into service"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The backend, and where to ask."""
    ordering.arguments(parser)
    parser.add_argument("target", metavar="SERVICE/BACKEND", type=ordering.target)


def run(options: argparse.Namespace) -> int:
    """In force when it returns 0, also when it was in service. Raises `AdminError` when it is refused."""
    admin = asking.find(options)
    state = ordering.give(admin, "POST", ordering.backend_path(options.target, "enable"))
    ordering.tell(options, admin, state, lambda: ordering.backend_line(state, options.target))
    return 0
