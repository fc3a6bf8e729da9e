"""`skewgate unpin SERVICE`: the end of `pin`. The configuration's ceiling holds again, if there is one."""

from __future__ import annotations

import argparse

from gateway.cli import asking, ordering

HELP = "take a service's pin away: offer again what the fleet serves"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The service, and where to ask."""
    ordering.arguments(parser)
    parser.add_argument("service", metavar="SERVICE")


def run(options: argparse.Namespace) -> int:
    """In force when it returns 0, also when there was no pin. Raises `AdminError` when it is refused."""
    admin = asking.find(options)
    state = ordering.give(admin, "DELETE", ordering.ceiling_path(options.service))
    ordering.tell(options, admin, state, lambda: ordering.offer_line(state, options.service))
    return 0
