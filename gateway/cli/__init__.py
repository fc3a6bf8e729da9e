"""The command `skewgate`: one file, one verb. The only floor that may import all others.

A verb is a module with `HELP`, `arguments(parser)` and `run(options) -> exit code`; it prints to standard
output and raises `SkewgateError` for what went wrong. Turning that into one sentence and an exit code
happens here and nowhere else: 0 fine, 1 failed at run time, 2 bad usage or configuration. `gateway.py` puts
a running gateway together.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from gateway import __version__
from gateway.cli import (
    check,
    demo,
    drain,
    enable,
    explain,
    healthcheck,
    pin,
    reload,
    run,
    schema,
    status,
    unpin,
    version,
)
from gateway.cli.printing import complain
from gateway.errors import SettingsError, SkewgateError

FAILED: Final = 1
BAD_USAGE: Final = 2


class Verb(Protocol):
    """What a verb's module holds."""

    HELP: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Do it; the exit code."""


VERBS: Final[Mapping[str, Verb]] = {
    "run": run,
    "check": check,
    "explain": explain,
    "status": status,
    "pin": pin,
    "unpin": unpin,
    "drain": drain,
    "enable": enable,
    "reload": reload,
    "healthcheck": healthcheck,
    "schema": schema,
    "demo": demo,
    "version": version,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb with `argv` (default: the process's own); the exit code. Raises only on our own bugs."""
    try:
        options = _parser().parse_args(argv)
        code = VERBS[options.verb].run(options)
        sys.stdout.flush()
    except SystemExit as left:  # argparse has said why
        return left.code if isinstance(left.code, int) else FAILED
    except SettingsError as problem:
        if problem.problems:
            print(problem, file=sys.stderr)  # each with its own position
        else:
            complain(problem)
        return BAD_USAGE
    except SkewgateError as problem:
        complain(problem)
        return FAILED
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain again while it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="skewgate",
        description="Reverse proxy for fleets of mixed API versions: learns, negotiates, rewrites, routes.",
        epilog="Exit codes: 0 fine, 1 failed at run time, 2 bad usage or configuration.",
    )
    parser.add_argument("--version", action="version", version=f"skewgate {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        verb.arguments(verbs.add_parser(name, help=verb.HELP, description=f"{verb.HELP}."))
    return parser
