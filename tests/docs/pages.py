"""The project's pages: their texts, blocks, tables and links as tests read them, parts that are made by a
command, and names in the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from tests.architecture.source import ROOT, gateway_modules, project_files

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(.+)$", re.MULTILINE)


class Block(NamedTuple):
    """One fenced block: its language and its text."""

    language: str
    text: str


def page(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def all_pages() -> tuple[str, ...]:
    """Every Markdown file of the project."""
    return tuple(path.relative_to(ROOT).as_posix() for path in project_files() if path.suffix == ".md")


def blocks(text: str) -> list[Block]:
    return [Block(*found) for found in _FENCE.findall(text)]


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", text)


def mentioned(text: str) -> list[str]:
    """What stands in backticks in the prose, in order."""
    return _CODE.findall(prose(text))


def section(text: str, heading: str) -> str:
    """The text below `## heading`, up to the next heading of the same or a higher level."""
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {heading!r}"
    return found[2]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, headings and rules left out."""
    table = [line for line in prose(text).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    rules = {at for at, row in enumerate(cells) if set("".join(row)) <= set("-:")}
    return [row for at, row in enumerate(cells) if at not in rules and at + 1 not in rules]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = f"|{'---|' * len(heads)}\n"
    return "".join((_row(heads), rule, *map(_row, rows)))


def _row(cells: Sequence[str]) -> str:
    shown = " | ".join(cell.replace("|", "\\|") for cell in cells)
    return f"| {shown} |\n"


def with_parts(text: str, command: str, parts: Mapping[str, str]) -> str:
    """The page with the parts that `command` makes written anew, between their marks; all else stays."""
    for name, part in parts.items():
        begin, end = f"<!-- {name}, made by `{command}` -->\n", f"<!-- /{name} -->\n"
        assert text.count(begin) == text.count(end) == 1, f"the page needs one place for its {name}"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{part}{end}{rest.partition(end)[2]}"
    return text


def links(text: str) -> Iterator[str]:
    """Targets inside the project."""
    return (target for target in _LINK.findall(prose(text)) if not re.match(r"[a-z]+:", target))


def anchors(text: str) -> set[str]:
    """The fragments by which the page's headings are reached."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(text)))
    return {heading.strip().replace(" ", "-") for heading in plain}


# --- names in the source -----------------------------------------------------------------------------------


class Names(NamedTuple):
    """What the gateway defines: modules by their dotted name below `gateway`, and what is in each."""

    modules: dict[str, frozenset[str]]
    classes: dict[str, frozenset[str]]


@cache
def names() -> Names:
    """Read from the syntax trees, so that a name counts wherever it is bound."""
    modules: dict[str, frozenset[str]] = {}
    bodies: dict[str, frozenset[str]] = {}
    bases: dict[str, list[str]] = {}
    for module in gateway_modules():
        dotted = module.name.removeprefix("gateway").lstrip(".")
        modules[dotted] = frozenset(_bound(module.tree.body))
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                bodies[node.name] = bodies.get(node.name, frozenset()) | frozenset(_members(node))
                bases[node.name] = [ast.unparse(base) for base in node.bases]
    return Names(modules, {name: _inherited(name, bodies, bases) for name in bodies})


def exists(name: str) -> bool:
    """Whether a name of the source, such as `decision.decide`, `Fleet.observe` or `RequestRecord`, exists."""
    return name in _spelled()


@cache
def _spelled() -> frozenset[str]:
    """Every way in which a page may name something of the source."""
    modules, classes = names()
    found = {*classes, *_deep(frozenset(classes), classes)}
    for dotted, bound in modules.items():
        paths = _paths(dotted)
        found.update(
            paths, (f"{path}.{inside}" for path in paths for inside in bound | _deep(bound, classes))
        )
        found.update(dotted[:at] for at, sign in enumerate(dotted) if sign == ".")
    return frozenset(found)


def _paths(dotted: str) -> tuple[str, ...]:
    """`core.fleet.offer`, `fleet.offer`, `offer`: the ways in which a page may name a module."""
    parts = dotted.split(".")
    return tuple(".".join(parts[at:]) for at in range(len(parts)))


def _deep(bound: frozenset[str], classes: dict[str, frozenset[str]]) -> frozenset[str]:
    return frozenset(f"{name}.{inside}" for name in bound & classes.keys() for inside in classes[name])


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case _:
                pass


def _members(node: ast.ClassDef) -> Iterator[str]:
    """What its body binds, and what its methods bind on `self`."""
    yield from _bound(node.body)
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and isinstance(inner.value, ast.Name)
            and inner.value.id == "self"
        ):
            yield inner.attr


def _inherited(name: str, bodies: dict[str, frozenset[str]], bases: dict[str, list[str]]) -> frozenset[str]:
    found = bodies.get(name, frozenset())
    for base in bases.get(name, ()):
        found |= _inherited(base, bodies, bases)
    return found
