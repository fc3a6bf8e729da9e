"""The project's files as the architecture tests read them. It parses and never imports the gateway."""

from __future__ import annotations

import ast
import gc
import shutil
import subprocess
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent

LEFT_BEHIND: Final = {".git", ".hypothesis", ".import_linter_cache", ".venv", "__pycache__", "build", "dist"}
"""Folders that are no part of the project, for trees without git (a release's archive)."""


@dataclass(frozen=True, slots=True)
class Module:
    """One module of the package: its path below the project, its dotted name and its syntax tree, whose nodes
    most rules look at."""

    path: str
    name: str
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    def inside(self, *packages: str) -> bool:
        """Whether it is one of `packages` (names below gateway) or lies in one."""
        return any(f"{self.name}.".startswith(f"gateway.{package}.") for package in packages)

    def at(self, node: ast.AST) -> str:
        """The place of `node`, as an editor can jump to it."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}"


def read_module(path: str, text: str) -> Module:
    """Parse the text of the module that stands at `path` below the project."""
    parts = Path(path).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    tree = ast.parse(text)
    return Module(path=path, name=name, text=text, tree=tree, nodes=tuple(ast.walk(tree)))


@cache
def gateway_modules() -> tuple[Module, ...]:
    """Every module of the package."""
    # The collector of reference cycles looks at no tree: with it, to parse takes five times as long.
    gc.disable()
    try:
        return tuple(
            read_module(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
            for path in sorted((ROOT / "gateway").rglob("*.py"))
        )
    finally:
        gc.freeze()
        gc.enable()


def imported(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """Every dotted name that `module` imports, wherever in the file, with the statement."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield base, node
            yield from ((f"{base}.{alias.name}", node) for alias in node.names)


def imported_modules(module: Module, known: Container[str]) -> set[str]:
    """The names among `known` that `module` imports, or from which it imports something."""
    found: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in known else node.module for name in inside)
    return {name for name in found if name in known}


@cache
def project_files() -> tuple[Path, ...]:
    """Every text file of the project: what git knows or would add, or without git whatever is there."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        if listing.returncode == 0:
            names = listing.stdout.decode().split("\0")
            return tuple(ROOT / name for name in names if name and (ROOT / name).is_file())
    return tuple(
        path
        for path in sorted(ROOT.rglob("*"))
        if path.is_file() and LEFT_BEHIND.isdisjoint(path.relative_to(ROOT).parts)
    )


@cache
def project_texts() -> tuple[tuple[str, str], ...]:
    """The path below the project and the text of each of its files; files that are no text are left out."""
    texts = []
    for path in project_files():
        try:
            texts.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return tuple(texts)
