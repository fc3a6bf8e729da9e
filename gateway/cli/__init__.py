"""The command `skewgate`: one module for each verb. The only layer that may import all others.

A verb is a module with `HELP`, `arguments(parser)` and `run(options) -> exit code`. It prints to standard
output and raises `SkewgateError` for what went wrong. Only this module turns an error into one sentence and
an exit code: 0 fine, 1 failed at run time, 2 bad usage or configuration. A verb must not put a gateway
together: `gateway.assembly` does that.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from gateway import __version__, process
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
from gateway.errors import SettingsError, SkewgateError
from gateway.terminal import print_error

FAILED: Final = 1
BAD_USAGE: Final = 2


class Verb(Protocol):
    """The members of a verb's module."""

    HELP: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Run the verb and return the exit code."""


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
    """Run one verb with `argv` (default: the process's own). Returns the exit code; raises only for bugs."""
    process.open_standard_streams()
    try:
        options = _parser().parse_args(argv)
        code = VERBS[options.verb].run(options)
        sys.stdout.flush()
    except SystemExit as end:  # argparse has printed the reason
        return end.code if isinstance(end.code, int) else FAILED
    except SettingsError as problem:
        if problem.problems:
            print(problem, file=sys.stderr)  # each problem with its position
        else:
            print_error(problem)
        return BAD_USAGE
    except SkewgateError as problem:
        print_error(problem)
        return FAILED
    except BrokenPipeError:
        # The reader of the output has closed it. Python would raise again while it closes the stream.
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
