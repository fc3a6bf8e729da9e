"""The house as pages show it: picture and order of imports in docs/ARCHITECTURE.md, and docs/code-map.md.

All three are made from the source: the layers that the import linter checks (pyproject.toml) and the first
sentence of each module. `python -m tests.architecture.house` writes them into the pages; a test compares.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from typing import Final

from tests.architecture.source import ROOT, Module, gateway_modules
from tests.docs.pages import table, with_parts

PAGE: Final = ROOT / "docs" / "ARCHITECTURE.md"
CODE_MAP: Final = ROOT / "docs" / "code-map.md"
COMMAND: Final = "python -m tests.architecture.house"

_CODE_MAP_HEAD: Final = f"""\
# Code map

<!-- Written by `{COMMAND}` from the first sentence of each module; a test compares. -->

Every module of the package, below its room; a room imports only what stands above it.
[Architecture](ARCHITECTURE.md) has the whole.

"""
_SENTENCE: Final = re.compile(r".+?[.?!](?=\s|$)", re.DOTALL)


def page_as_it_should_be(page: str) -> str:
    """docs/ARCHITECTURE.md with its two generated parts written anew; everything else stays."""
    modules = {module.name: module for module in gateway_modules()}
    return with_parts(page, COMMAND, {"picture": picture(modules), "imports": order_of_imports()})


def layers() -> list[list[str]]:
    """The rooms of `gateway`, the topmost first; those of one layer do not import each other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [found] = [each["layers"] for each in contracts if each.get("containers") == ["gateway"]]
    return [layer.split(" | ") for layer in found]


def first_sentence(module: Module) -> str:
    """The first sentence of the module's docstring, in one line."""
    text = ast.get_docstring(module.tree) or ""
    found = _SENTENCE.match(text)
    return " ".join((found[0] if found else text).split())


def picture(modules: dict[str, Module]) -> str:
    """Each room with what it is for, the topmost first: a room imports only what stands below it."""
    names = [name for layer in layers() for name in layer]
    width = max(map(len, names))
    lines = [f"{name:<{width}}  {first_sentence(modules[f'gateway.{name}'])}" for name in names]
    return "\n".join(["```text", *lines, "```", ""])


def order_of_imports() -> str:
    """One line, from what everybody may import to what nobody may."""
    order = " ← ".join(", ".join(f"`{name}`" for name in layer) for layer in reversed(layers()))
    return f"Imports point one way: {order}.\n"


def code_map() -> str:
    """The page docs/code-map.md: a row for each module, below the row of its room, the lowest room first."""
    modules = {module.name: module for module in gateway_modules()}
    rooms = [name for layer in reversed(layers()) for name in layer]
    rows = (row for room in rooms for row in _rows_of(f"gateway.{room}", modules))
    return _CODE_MAP_HEAD + table(("module", "what it is"), rows)


def _rows_of(name: str, modules: dict[str, Module]) -> Iterator[tuple[str, str]]:
    shown = name.removeprefix("gateway.")
    children = sorted(each for each in modules if each.rpartition(".")[0] == name)
    sentence = first_sentence(modules[name])
    yield (f"**{shown}**", f"**{sentence}**") if children else (f"`{shown}`", sentence)
    for child in sorted(children, key=lambda each: any(other.startswith(f"{each}.") for other in modules)):
        yield from _rows_of(child, modules)


if __name__ == "__main__":
    CODE_MAP.write_text(code_map(), encoding="utf-8")
    PAGE.write_text(page_as_it_should_be(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
