"""`skewgate schema`: prints the JSON Schema of the configuration, for editors. The settings make it."""

from __future__ import annotations

import argparse

from gateway.settings import schema_text

HELP = "print the JSON Schema of the configuration"


def arguments(parser: argparse.ArgumentParser) -> None:
    """This verb has no arguments."""


def run(options: argparse.Namespace) -> int:
    """Print the schema."""
    print(schema_text(), end="")
    return 0
