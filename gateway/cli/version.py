"""`skewgate version`: prints the versions of the program and its libraries, and which build runs. Needs no
running gateway."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Final

from gateway import __version__
from gateway.cli.command import output_option, verb
from gateway.runtime import compiled

PARTS: Final = (
    "aiohttp",
    "click",
    "dnspython",
    "httptools",
    "multidict",
    "prometheus_client",
    "PyYAML",
    "uvloop",
)


@verb("version")
@output_option
def version(*, output: str) -> int:
    """Print the versions."""
    found = versions()
    if output == "json":
        print(json.dumps(found))
    else:
        width = max(map(len, found))
        print("\n".join(f"{name:<{width}}  {text or 'not installed'}" for name, text in found.items()))
    return 0


def versions() -> Mapping[str, str | None]:
    """Version by name, the gateway's first; None: not installed. Raises `SettingsError` as
    `compiled.chosen_loop` does."""
    own = {
        "skewgate": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "loop": compiled.chosen_loop(),
        "compiled": compiled.note() or str(compiled.is_compiled()).lower(),
    }
    return {**own, **{name.lower(): _installed(name) for name in PARTS}}


def _installed(name: str) -> str | None:
    try:
        return installed(name)
    except PackageNotFoundError:
        return None
