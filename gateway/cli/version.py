"""`skewgate version`: prints the versions of the program and its libraries. Needs no running gateway."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Final

from gateway import __version__, process

HELP = "print the versions of the program and its libraries"

PARTS: Final = (
    "aiohttp",
    "dnspython",
    "httptools",
    "multidict",
    "prometheus_client",
    "pydantic",
    "PyYAML",
    "uvloop",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """`-o json`."""
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")


def run(options: argparse.Namespace) -> int:
    """Print the versions."""
    found = versions()
    if options.output == "json":
        print(json.dumps(found))
    else:
        width = max(map(len, found))
        print("\n".join(f"{name:<{width}}  {text or 'not installed'}" for name, text in found.items()))
    return 0


def versions() -> Mapping[str, str | None]:
    """Version by name, the gateway's first; None: not installed. Raises `SettingsError` as
    `process.chosen_loop` does."""
    own = {
        "skewgate": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "loop": process.chosen_loop(),
    }
    return {**own, **{name.lower(): _installed(name) for name in PARTS}}


def _installed(name: str) -> str | None:
    try:
        return installed(name)
    except PackageNotFoundError:
        return None
