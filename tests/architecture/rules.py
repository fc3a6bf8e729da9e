"""The rules of the house that a syntax tree shows, each a function from a module to its complaints.

They are apart from the tests so that each is also tried on code that breaks it: a rule must be able to fail.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Final

from tests.architecture.source import Module, imported

Rule = Callable[[Module], Iterator[str]]

DIALECT_NAMES: Final = frozenset({"ironic", "nova", "senlin", "chef", "openstack", "custom"})

IMPURE: Final = frozenset(
    [
        *("aiohttp", "httptools", "prometheus_client", "uvloop", "yaml"),
        *("asyncio", "multiprocessing", "select", "selectors", "signal", "socket", "ssl", "subprocess"),
        *("logging", "os", "random", "secrets", "threading", "time"),
    ]
)
"""What neither core nor dialects may import: the world, its clock and its chance."""

IMPURE_CALLS: Final = frozenset({"open", "print", "input"})

CLOCK_ROOMS: Final = ("admin", "assembly", "controlplane", "telemetry", "tls", "cli", "demo")
"""Where wall-clock time may be read, because people read it there, and because certificates expire by it.
Durations use the loop's clock."""

SNAPSHOT_HOLDER: Final = "gateway.controlplane.snapshot_holder"
SNAPSHOT_NAMES: Final = frozenset({"current", "_current"})

FILE_LIMIT: Final = 600
FUNCTION_LIMIT: Final = 60


def stays_pure(module: Module) -> Iterator[str]:
    """Core and dialects: values in, values out."""
    if not module.inside("core", "dialects"):
        return
    for name, node in imported(module):
        if name.split(".")[0] in IMPURE:
            yield f"{module.at(node)}: {module.name} must not import {name}"
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield f"{module.at(node)}: {module.name} must not call {node.func.id}"
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"{module.at(node)}: {module.name} must not wait for anything"


def knows_no_dialect(module: Module) -> Iterator[str]:
    """No code outside the dialects asks which one it has: what differs is a member of the dialect."""
    if module.inside("dialects"):
        return
    for node in module.nodes:
        for name in asked_names(node):
            yield f"{module.at(node)}: branches on the dialect name {name!r}"


def asked_names(node: ast.AST) -> Iterator[str]:
    """The dialect names that `node` decides by: a comparison, a case, a prefix test."""
    operands: list[ast.AST] = []
    match node:
        case ast.Compare():
            operands = [node.left, *node.comparators]
        case ast.MatchValue(value=value):
            operands = [value]
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith" | "__eq__"), args=arguments):
            operands = list(arguments)
        case _:
            pass
    for operand in operands:
        elements = operand.elts if isinstance(operand, ast.Tuple | ast.List | ast.Set) else [operand]
        for element in elements:
            if isinstance(element, ast.Constant) and element.value in DIALECT_NAMES:
                yield str(element.value)


def says_what_it_is(module: Module) -> Iterator[str]:
    """Every module opens with what it is and what it must not do."""
    if not ast.get_docstring(module.tree):
        yield f"{module.path}: has no docstring"


def stays_small(module: Module) -> Iterator[str]:
    """A file and a function that can be held in the head: so many lines of code. Docstrings, comments and
    imports do not count, so nobody leaves one out for the limit; nor does a constructor that only assigns."""
    numbers = code_lines(module)
    if len(numbers) > FILE_LIMIT:
        yield f"{module.path}: {len(numbers)} lines of code, the limit is {FILE_LIMIT}"
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not only_assigns(node):
            length = len(numbers & _lines_of(node))
            if length > FUNCTION_LIMIT:
                what = f"{module.at(node)}: {node.name}"
                yield f"{what} has {length} lines of code, the limit is {FUNCTION_LIMIT}"


def code_lines(module: Module) -> frozenset[int]:
    """The numbers of the lines that hold code: no blank line, no comment, no docstring, no import."""
    lines = enumerate(module.text.splitlines(), 1)
    numbers = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) or is_docstring(node):
            numbers -= _lines_of(node)
    return frozenset(numbers)


def only_assigns(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a constructor whose body is a list of attributes."""
    return function.name == "__init__" and all(
        isinstance(each, ast.Assign | ast.AnnAssign) or is_docstring(each) for each in function.body
    )


def is_docstring(node: ast.AST) -> bool:
    """Whether `node` is a text by itself: the docstring of a module, a class, a function or an attribute."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _lines_of(node: ast.stmt | ast.AST) -> frozenset[int]:
    first = getattr(node, "lineno", 0)
    return frozenset(range(first, (getattr(node, "end_lineno", None) or first) + 1))


def leaves_the_snapshot_alone(module: Module) -> Iterator[str]:
    """One place swaps the snapshot, in one assignment; everybody else reads it once."""
    if module.name == SNAPSHOT_HOLDER:
        return
    for node in module.nodes:
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store | ast.Del)
            and node.attr in SNAPSHOT_NAMES
        ):
            yield f"{module.at(node)}: rebinds {ast.unparse(node)}, which only {SNAPSHOT_HOLDER} does"


def reads_no_wall_clock(module: Module) -> Iterator[str]:
    """Wall-clock time jumps; what decides on durations uses a clock that does not."""
    if module.inside(*CLOCK_ROOMS):
        return
    for name, node in imported(module):
        if name == "time.time":
            yield f"{module.at(node)}: imports time.time"
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "time.time":
            yield f"{module.at(node)}: reads time.time"


COMPILED_ROOMS: Final = ("core", "dataplane", "telemetry")


def cuts_by_plain_bounds(module: Module) -> Iterator[str]:
    """mypyc 2.4 evaluates the bound of a slice twice: in `rest[write(rest) :]` the compiled build writes
    twice. So bounds are names, sums and lengths there."""
    if not module.inside(*COMPILED_ROOMS):
        return
    for node in module.nodes:
        if not isinstance(node, ast.Slice):
            continue
        bounds = [bound for bound in (node.lower, node.upper, node.step) if bound is not None]
        for part in (part for bound in bounds for part in ast.walk(bound)):
            called = isinstance(part, ast.Call) and ast.unparse(part.func) != "len"
            if called or isinstance(part, ast.NamedExpr):
                yield f"{module.at(part)}: {ast.unparse(part)} in the bound of a slice"


def uses_public_names_of_aiohttp(module: Module) -> Iterator[str]:
    """Nothing imports a private name of aiohttp, and no class of the admin listener inherits private names of
    it; ruff refuses those of other objects (SLF)."""
    for name, node in imported(module):
        if name.startswith("aiohttp.") and "._" in name:
            yield f"{module.at(node)}: {name} is a private name"
    if not module.inside("admin"):
        return
    froms = [each for each in module.nodes if isinstance(each, ast.ImportFrom)]
    foreign = {"aiohttp"}.union(
        alias.asname or alias.name
        for each in froms
        if (each.module or "").split(".")[0] == "aiohttp"
        for alias in each.names
    )
    for node in module.nodes:
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            if any(isinstance(part, ast.Name) and part.id in foreign for part in ast.walk(base)):
                yield f"{module.at(node)}: {ast.unparse(base)} has private names that a class inherits"


RULES: Final[tuple[Rule, ...]] = (
    stays_pure,
    knows_no_dialect,
    says_what_it_is,
    stays_small,
    leaves_the_snapshot_alone,
    reads_no_wall_clock,
    cuts_by_plain_bounds,
    uses_public_names_of_aiohttp,
)
