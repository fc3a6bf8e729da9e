"""`skewgate demo`: runs the demonstration (`gateway.demo`); exit code 0 means that no request was lost.

This module only reads the arguments and chooses between a terminal view and plain lines.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import webbrowser
from random import SystemRandom
from typing import Final

import click

from gateway.cli.command import seconds, verb
from gateway.demo.director import DemoOptions, Director
from gateway.demo.haproxy import find_program
from gateway.demo.report import report
from gateway.demo.terminal import is_terminal, show
from gateway.runtime import process

LENGTH: Final = 20.0
"""Seconds for which the demonstration runs without a terminal: short enough to watch it to the end."""

DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Environment variables that show that a browser can open in a window of its own."""


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
    help=f"length, such as 20 or 20s; default: until q is pressed, or {LENGTH:g} s without a terminal",
)
@click.option("--seed", type=int, metavar="N", help="seed of the clients' random choices")
@click.option(
    "--port",
    type=_port,
    metavar="N",
    default="0",
    help="port of the gateway; default: any free port",
)
@click.option("--compare", is_flag=True, help="run the same clients through HAProxy, too")
@click.option("--web", is_flag=True, help="open the operations page with its commands enabled")
def demo(*, length: float | None, seed: int | None, port: int, compare: bool, web: bool) -> int:
    """Run the demonstration to its end, or until Ctrl-C. Returns 0 if the gateway lost no request, else 1."""
    # The demonstration and the page show what the gateway logs. Only errors are printed.
    printed = logging.StreamHandler()
    printed.setLevel(logging.ERROR)
    logging.basicConfig(handlers=[printed])
    logging.getLogger("skewgate").setLevel(logging.INFO)
    on_terminal = is_terminal(sys.stdin, sys.stdout)
    chosen = SystemRandom().randrange(10_000) if seed is None else seed
    length = length if length is not None or on_terminal else LENGTH
    options = DemoOptions(length, chosen, port, find_program() if compare else "", operator=web)
    return 1 if process.run_in_loop(_run(options, on_terminal=on_terminal)) else 0


async def _run(options: DemoOptions, *, on_terminal: bool) -> int:
    """Run and show the demonstration; return the number of requests that the gateway lost."""
    director = Director(options)
    with process.handle_signals(director.quit):
        async with director:
            if options.operator and _has_browser():
                await asyncio.to_thread(webbrowser.open, director.page)
            await (show(director) if on_terminal else report(director))
    return director.lost


def _has_browser() -> bool:
    """Whether a browser can open in a window of its own. A text browser would take over the terminal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in DISPLAYS)
