"""`skewgate check FILE`: every problem of a configuration, with position, source line, caret and hint.

It prints the problems that `settings` found, on standard output, and looks for none itself.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gateway.settings import read_file

HELP = "validate a configuration: every problem with its position; exit 0 or 2"


def arguments(parser: argparse.ArgumentParser) -> None:
    """`FILE`."""
    parser.add_argument("file", metavar="FILE", type=Path)


def run(options: argparse.Namespace) -> int:
    """Print the problems. 0 for a file that can be used, with or without warnings; otherwise 2."""
    loaded = read_file(options.file, environ=os.environ)
    if loaded.problems:
        print(loaded.render())
    if loaded.errors:
        return 2
    warnings = len(loaded.problems)
    count = f", {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    print(f"{options.file}: fine{count}")
    return 0
