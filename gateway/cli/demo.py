"""`skewgate demo`: starts the demonstration (`gateway.demo`) and turns its result into an exit code.

Exit code 0: no request was lost. This module only reads the arguments; what happens is in `gateway.demo`.
"""

from __future__ import annotations

import argparse
import logging
import sys
from random import SystemRandom
from typing import Final

from gateway import process
from gateway.demo.story import Story
from gateway.terminal import Paint

HELP = (
    "demonstrate the gateway with two servers, five kinds of clients and an upgrade; needs no configuration"
)

LENGTH: Final = 20.0
"""Seconds: long enough to read the output, short enough to watch it to the end."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`--for`, `--seed`, `--port`."""
    parser.add_argument(
        "--for", dest="length", metavar="SECONDS", type=_seconds, default=LENGTH, help=f"default: {LENGTH:g}"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="make the choices of the clients repeatable")
    parser.add_argument(
        "--port", type=_port, metavar="N", default=0, help="where the gateway listens; default: any free port"
    )


def run(options: argparse.Namespace) -> int:
    """Run the demonstration to its end, or until Ctrl-C. 0 when no request was lost."""
    # The demonstration prints what the gateway would log. Only bugs are logged.
    logging.getLogger("skewgate").setLevel(logging.ERROR)
    seed = SystemRandom().randrange(10_000) if options.seed is None else options.seed
    story = Story(options.length, seed, options.port, Paint(sys.stdout))
    return 0 if process.run_in_loop(story.play()) else 1


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
