"""`skewgate check FILE`: every problem of a configuration, with position, source line, caret and hint.

Prints what `settings` found and judges nothing itself. Findings are this verb's output and go to standard
output.
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
    """0 for a file that can be used, with or without warnings; else 2."""
    loaded = read_file(options.file, environ=os.environ)
    if loaded.problems:
        print(loaded.render())
    if loaded.errors:
        return 2
    warnings = len(loaded.problems)
    noted = f", {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    print(f"{options.file}: fine{noted}")
    return 0
