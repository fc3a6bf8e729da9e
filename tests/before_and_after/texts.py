"""Trees of a configuration that may be wrong in every way, and their YAML text.

A dictionary of Python holds no key twice and none that is a list, and a value of it has one spelling. So a
mapping is a list of pairs here, and `Raw` is written as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Final, TypeAlias, final

import yaml

_PLAIN: Final = re.compile(r"[A-Za-z0-9_/.$][A-Za-z0-9_/.$:@+%*-]*")
_UNSAFE_IN_FLOW: Final = re.compile(r"[\[\]{},]")


@final
class Raw(str):
    """A scalar with its quotation marks, or anything that stands in its place."""

    __slots__ = ()


@final
class Map:
    """A mapping: its pairs in order."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[Tree, Tree]]) -> None:
        self.pairs = pairs

    def get(self, key: str) -> Tree | None:
        return next((value for name, value in self.pairs if name == key), None)

    def set(self, key: str, value: Tree) -> None:
        """Replace the first value of `key`, or add one."""
        for at, (name, _) in enumerate(self.pairs):
            if name == key:
                self.pairs[at] = (name, value)
                return
        self.pairs.append((key, value))


Tree: TypeAlias = "str | Map | list[Tree]"
Holder: TypeAlias = "Map | list[Tree]"


def read(text: str) -> Tree:
    """The tree of a YAML text. Raises `yaml.YAMLError`, and `ValueError` for an alias."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if node is None:
        raise ValueError("there is nothing")
    return _of_node(node, 0)


def _of_node(node: yaml.Node, depth: int) -> Tree:
    if depth > 20:
        raise ValueError("too deep, or an alias of itself")
    if isinstance(node, yaml.MappingNode):
        return Map([(_of_node(key, depth + 1), _of_node(value, depth + 1)) for key, value in node.value])
    if isinstance(node, yaml.SequenceNode):
        return [_of_node(item, depth + 1) for item in node.value]
    return str(node.value)


def made_of(value: object) -> Tree:
    """The tree of a value from JSON."""
    if isinstance(value, dict):
        return Map([(str(key), made_of(each)) for key, each in value.items()])
    if isinstance(value, list):
        return [made_of(item) for item in value]
    return value if isinstance(value, str) else json.dumps(value)


def copied(tree: Tree) -> Tree:
    if isinstance(tree, Map):
        return Map([(copied(key), copied(value)) for key, value in tree.pairs])
    return [copied(item) for item in tree] if isinstance(tree, list) else tree


def holders(tree: Tree) -> Iterator[Holder]:
    """`tree` and everything below it that holds something."""
    if isinstance(tree, Map):
        yield tree
        for _, value in tree.pairs:
            yield from holders(value)
    elif isinstance(tree, list):
        yield tree
        for item in tree:
            yield from holders(item)


def written(tree: Tree, random: Random) -> str:
    """The text of a file, in one of the styles that YAML has."""
    if isinstance(tree, str) or not (tree.pairs if isinstance(tree, Map) else tree):
        return _flow(tree, random) + "\n"
    return "".join(f"{line}\n" for line in _block(tree, random, "", random.choice((0, 2))))


def _block(tree: Holder, random: Random, indent: str, shift: int) -> Iterator[str]:
    """Lines. `shift`: blanks before the items of a list that is the value of a key."""
    if isinstance(tree, Map):
        for key, value in tree.pairs:
            name = _scalar(key, random) if isinstance(key, str) else _flow(key, random)
            if _fits_a_line(value, random):
                yield f"{indent}{name}: {_flow(value, random)}".rstrip(" ")
            else:
                yield f"{indent}{name}:"
                more = " " * shift if isinstance(value, list) else "  "
                yield from _block(_holder(value), random, indent + more, shift)
    else:
        for item in tree:
            if _fits_a_line(item, random):
                yield f"{indent}- {_flow(item, random)}"
            else:
                first, *rest = _block(_holder(item), random, indent + "  ", shift)
                yield f"{indent}- {first[len(indent) + 2 :]}"
                yield from rest


def _holder(tree: Tree) -> Holder:
    assert not isinstance(tree, str)
    return tree


def _fits_a_line(tree: Tree, random: Random) -> bool:
    if isinstance(tree, str):
        return True
    below = [value for _, value in tree.pairs] if isinstance(tree, Map) else tree
    if not below:
        return True
    deep = any(not isinstance(each, str) for each in below)
    return random.random() < (0.05 if deep else 0.4)


def _flow(tree: Tree, random: Random) -> str:
    if isinstance(tree, Map):
        pairs = (f"{_flow(key, random)}: {_flow(value, random)}" for key, value in tree.pairs)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(tree, list):
        return f"[{', '.join(_flow(item, random) for item in tree)}]"
    return _scalar(tree, random, in_flow=True)


def _scalar(text: str, random: Random, *, in_flow: bool = False) -> str:
    if isinstance(text, Raw):
        return text
    plain = _PLAIN.fullmatch(text) is not None and not text.endswith(":")
    if plain and not (in_flow and _UNSAFE_IN_FLOW.search(text)) and random.random() < 0.9:
        return text
    if text.isprintable() and random.random() < 0.5:
        return "'" + text.replace("'", "''") + "'"
    return json.dumps(text, ensure_ascii=False)
