"""`skewgate demo`: starts the demonstration (`gateway.demo`) and turns its result into an exit code.

Exit code 0: no request was lost. This module only reads the arguments; what happens is in `gateway.demo`.
"""

from __future__ import annotations

import logging
import sys
from random import SystemRandom
from typing import Final

import click

from gateway import process
from gateway.cli.command import Text, seconds, verb
from gateway.demo.story import Story
from gateway.terminal import Paint

LENGTH: Final = 20.0
"""Seconds: long enough to read the output, short enough to watch it to the end."""


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise ValueError("must be a port from 0 to 65535")
    return int(text)


@verb("demo")
@click.option(
    "--for",
    "length",
    metavar="SECONDS",
    type=seconds(1, 86_400),
    default=LENGTH,
    help=f"how long, such as 20 or 20s; default: {LENGTH:g}",
)
@click.option("--seed", type=int, metavar="N", help="make the choices of the clients repeatable")
@click.option(
    "--port",
    type=Text("port", _port),
    metavar="N",
    default=0,
    help="where the gateway listens; default: any free port",
)
def command(*, length: float, seed: int | None, port: int) -> int:
    """Run the demonstration to its end, or until Ctrl-C. 0 when no request was lost."""
    # The demonstration prints what the gateway would log. Only bugs are logged.
    logging.getLogger("skewgate").setLevel(logging.ERROR)
    chosen = SystemRandom().randrange(10_000) if seed is None else seed
    story = Story(length, chosen, port, Paint(sys.stdout))
    return 0 if process.run_in_loop(story.play()) else 1
