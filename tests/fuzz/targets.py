"""The fuzzing targets: for each kind of input a function of bytes that raises on a broken property.

A target is imported when it is asked for, so that a run for one of them is quick. Its module says what must
hold; its corpus is the folder of its name in `corpus/`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, TypeAlias

Target: TypeAlias = Callable[[bytes], None]

CORPUS: Final = Path(__file__).resolve().parent / "corpus"

_MODULES: Final = {
    "request_head": "heads",
    "response_head": "heads",
    "chunked": "heads",
    "proxy_header": "accept_phase",
    "listener": "accept_phase",
    "upgrade": "upgrades",
    "tunnel": "upgrades",
    "version_fields": "versions",
    "documents": "versions",
    "requests": "exchanges",
    "responses": "exchanges",
}
NAMES: Final = tuple(_MODULES)
BROKEN: Final = "broken"
"""The name of a target that finds something, by which the search itself is tested."""


def target(name: str) -> Target:
    """The target of this name, which is the name of its function."""
    if name == BROKEN:
        return broken
    function: Target = getattr(import_module(f"tests.fuzz.{_MODULES[name]}"), name)
    return function


def broken(data: bytes) -> None:
    if b"%" in data:
        raise ValueError("found")


def folder(name: str) -> Path:
    """Where the inputs of a target are kept."""
    return CORPUS / (NAMES[0] if name == BROKEN else name)


def corpus(name: str) -> list[Path]:
    """The kept inputs of a target, in one order."""
    return sorted(folder(name).iterdir())
