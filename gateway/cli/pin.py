"""`skewgate pin SERVICE VERSION`: nothing above this version is offered, until `unpin`.

Stands instead of the configuration's ceiling. What is offered beneath it stays the gateway's to say.
"""

from __future__ import annotations

import argparse

from gateway.cli import asking, ordering

HELP = "hold a service's offer at a version or a release"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The service, the ceiling, and where to ask."""
    ordering.arguments(parser)
    parser.add_argument("service", metavar="SERVICE")
    ceiling = parser.add_mutually_exclusive_group(required=True)
    ceiling.add_argument("version", metavar="VERSION", nargs="?")
    ceiling.add_argument(
        "--release", metavar="NAME", help="of the dialect's table or of `releases` in the configuration"
    )


def run(options: argparse.Namespace) -> int:
    """In force when it returns 0. Raises `AdminError` when it is refused."""
    admin = asking.find(options)
    ceiling = {"release": options.release} if options.version is None else {"version": options.version}
    state = ordering.give(admin, "PUT", ordering.ceiling_path(options.service), ceiling)
    ordering.tell(options, admin, state, lambda: ordering.offer_line(state, options.service))
    return 0
