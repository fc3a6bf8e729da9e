"""`skewgate schema`: the JSON Schema of the configuration, for editors. Made by the models that read it."""

from __future__ import annotations

import argparse

from gateway.settings import schema_text

HELP = "print the JSON Schema of the configuration"


def arguments(parser: argparse.ArgumentParser) -> None:
    """None."""


def run(options: argparse.Namespace) -> int:
    """Print it."""
    print(schema_text(), end="")
    return 0
