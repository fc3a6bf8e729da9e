"""`skewgate demo`: the gateway in front of an old and a new API server, several kinds of clients, an upgrade.

The gateway is the one of `skewgate run`, from the same kind of file (`config.yaml` beside this one); fleet
and clients are real servers and clients on loopback. Ends with 0 when no client lost anything.
"""

from __future__ import annotations

import argparse
import logging
import sys
from random import SystemRandom
from typing import Final

from gateway.cli import loop
from gateway.cli.demo.story import Story
from gateway.cli.printing import Paint

HELP = "show it: an old and a new server, clients of several kinds, and an upgrade; needs nothing"

LENGTH: Final = 20.0
"""Seconds: long enough to read along, short enough to watch to the end."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--for`, `--seed`, `--port`."""
    parser.add_argument(
        "--for", dest="length", metavar="SECONDS", type=_seconds, default=LENGTH, help=f"default: {LENGTH:g}"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="makes the clients' choices repeatable")
    parser.add_argument(
        "--port", type=_port, metavar="N", default=0, help="where the gateway listens; default: any free port"
    )


def run(options: argparse.Namespace) -> int:
    """Play it to its end, or to Ctrl-C; 0 when nothing was lost."""
    # What the gateway would log, the narrator tells; only our own bugs are left.
    logging.getLogger("skewgate").setLevel(logging.ERROR)
    seed = SystemRandom().randrange(10_000) if options.seed is None else options.seed
    story = Story(options.length, seed, options.port, Paint(sys.stdout))
    return 0 if loop.run(story.play()) else 1


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError("must be a number of seconds from 1 to 86400")
    return seconds


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise argparse.ArgumentTypeError("must be a port from 0 to 65535")
    return int(text)
