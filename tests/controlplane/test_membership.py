"""How a replica stands to a service is written by its `Membership` alone: all others report to it and ask."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import gateway.controlplane.replication as room

FOLDER = Path(room.__path__[0])
OWNER = "membership.py"


def _stores(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that this code assigns, deletes, or fills in place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def _fields() -> set[str]:
    own = _stores(ast.parse((FOLDER / OWNER).read_text()))
    return {node.attr for node in own if ast.unparse(node.value) == "self"}


def written_by_others(text: str) -> list[str]:
    """Fields of a membership that this code assigns on another object than itself."""
    return [
        ast.unparse(node)
        for node in _stores(ast.parse(text))
        if node.attr in _fields() and ast.unparse(node.value) != "self"
    ]


def test_nobody_else_in_the_room_writes_a_membership() -> None:
    others = [path for path in FOLDER.glob("*.py") if path.name != OWNER]
    assert len(others) > 5
    assert {"held", "joined", "live_revision", "refuses_until", "transparent"} <= _fields()

    assert {path.name: found for path in others if (found := written_by_others(path.read_text()))} == {}


def test_a_foreign_write_is_noticed() -> None:
    assert written_by_others("me.held = None") == ["me.held"]
    assert written_by_others("self._members[name].joined: bool = True") == ["self._members[name].joined"]
