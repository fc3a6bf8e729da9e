"""The file of `skewgate test`: a table of requests, each with the decision that is expected.

    config: skewgate.yaml            # from this file's folder; -c goes before it
    backends:                        # what each serves: versions, `legacy` or `down`
      baremetal/api-1: 1.1-1.58
    requests:
      - request: GET /v1/nodes
        headers: {X-OpenStack-Ironic-API-Version: latest}
        expect: {decision: forward, version: "1.58", backends: [api-1]}

Every problem of the file has its position, as those of a configuration have. This module reads; it decides
nothing and compares nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, final

from gateway.core.http.message import METHOD, Header, method_of_text
from gateway.errors import SettingsError
from gateway.settings.yaml.problem import Problem, shown_lines
from gateway.settings.yaml.tree import (
    MappingEntry,
    MappingNode,
    Node,
    Position,
    Scalar,
    SequenceNode,
    read_tree,
)

LEGACY: Final = "legacy"
DOWN: Final = "down"
DECISIONS: Final = ("forward", "refuse", "answer", "unrouted")
EXPECTED: Final = ("decision", "status", "service", "version", "backends")
"""What may be expected. A key that is left out may be anything."""

Value: TypeAlias = str | tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One request, and what is expected of it."""

    line: int
    method: str
    path: str
    headers: tuple[Header, ...]
    expect: Mapping[str, Value]


@final
@dataclass(frozen=True, slots=True)
class Claim:
    """What a backend serves: versions, `legacy` or `down`."""

    service: str
    backend: str
    text: str
    position: Position


@final
@dataclass(frozen=True, slots=True)
class Expectations:
    """A whole file. `backends` None: they are probed."""

    filename: str
    lines: tuple[str, ...]
    config: Path | None
    backends: tuple[Claim, ...] | None
    rows: tuple[Row, ...]

    def problem(self, position: Position, message: str) -> SettingsError:
        """One problem that shows only together with the configuration."""
        found = Problem(position.line, position.column, "bad-value", message, width=position.width)
        return SettingsError(found.render(self.filename, self.lines), (found,))


def read_expectations(path: Path) -> Expectations:
    """Read a file. Raises `SettingsError` with every problem."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise SettingsError(f"{path} cannot be read: {reason}") from None
    root, problems = read_tree(text, {})
    reader = _Reader(problems)
    found = reader.read(root, path)
    lines = tuple(shown_lines(text))
    if problems:
        rendered = "\n".join(problem.render(str(path), lines) for problem in sorted(problems))
        raise SettingsError(rendered, tuple(problems))
    return Expectations(str(path), lines, *found)


@final
class _Reader:
    """Reads the nodes of a file; collects what is wrong with them."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def read(
        self, root: Node | None, path: Path
    ) -> tuple[Path | None, tuple[Claim, ...] | None, tuple[Row, ...]]:
        """The parts of a file."""
        if root is None:
            return None, None, ()
        entries = self._entries(root, ("config", "backends", "requests"))
        config = self._text(entries.get("config"))
        claims = entries.get("backends")
        rows = entries.get("requests")
        if rows is None:
            self._add(root.position, "missing-key", "the key 'requests' is missing")
            return None, None, ()
        items = rows.value.items if isinstance(rows.value, SequenceNode) else []
        if not items:
            self._add(rows.value.position, "wrong-type", "a list of requests is expected here")
        return (
            path.parent / config if config else None,
            None if claims is None else tuple(self._claims(claims.value)),
            tuple(row for item in items if (row := self._row(item)) is not None),
        )

    def _claims(self, node: Node) -> list[Claim]:
        found = []
        for name, entry in self._entries(node).items():
            service, slash, backend = name.partition("/")
            text = self._text(entry)
            if not (service and slash and backend):
                self._add(entry.key.position, "bad-value", "must be SERVICE/BACKEND")
            elif text is not None:
                found.append(Claim(service, backend, text, entry.value.position))
        return found

    def _row(self, node: Node) -> Row | None:
        entries = self._entries(node, ("request", "headers", "expect"))
        request = self._text(entries.get("request"))
        expect = entries.get("expect")
        for key in ("request", "expect"):
            if key not in entries:
                self._add(node.position, "missing-key", f"the key {key!r} is missing")
        if request is None or expect is None:
            return None
        method, _, path = request.partition(" ")
        if not METHOD.fullmatch(method) or not path.startswith("/"):
            self._add(
                entries["request"].value.position, "bad-value", "must be a method and a path, such as GET /v1"
            )
            return None
        headers = []
        if "headers" in entries:
            for name, entry in self._entries(entries["headers"].value).items():
                texts = entry.value.items if isinstance(entry.value, SequenceNode) else [entry.value]
                headers += [(name, item.text) for item in texts if isinstance(item, Scalar)]
        return Row(
            node.position.line, method_of_text(method), path, tuple(headers), self._expect(expect.value)
        )

    def _expect(self, node: Node) -> dict[str, Value]:
        found: dict[str, Value] = {}
        entries = self._entries(node, EXPECTED)
        if isinstance(node, MappingNode) and not node.entries:
            self._add(node.position, "bad-value", "nothing is expected here")
        for key, entry in entries.items():
            if key == "backends":
                items = entry.value.items if isinstance(entry.value, SequenceNode) else [entry.value]
                found[key] = tuple(item.text for item in items if isinstance(item, Scalar))
            elif (text := self._text(entry)) is not None:
                found[key] = text
                if key == "decision" and text not in DECISIONS:
                    self._add(entry.value.position, "bad-value", f"must be one of: {', '.join(DECISIONS)}")
        return found

    def _entries(self, node: Node, known: tuple[str, ...] | None = None) -> dict[str, MappingEntry]:
        if not isinstance(node, MappingNode):
            self._add(node.position, "wrong-type", "a mapping is expected here")
            return {}
        for name, entry in node.entries.items():
            if known is not None and name not in known:
                message = f"there is no key {name!r} here; there are: {', '.join(known)}"
                self._add(entry.key.position, "unknown-key", message)
        return {name: entry for name, entry in node.entries.items() if known is None or name in known}

    def _text(self, entry: MappingEntry | None) -> str | None:
        if entry is None:
            return None
        if isinstance(entry.value, Scalar) and entry.value.text:
            return entry.value.text
        self._add(entry.value.position, "wrong-type", "a text is expected here")
        return None

    def _add(self, position: Position, code: str, message: str) -> None:
        self._problems.append(Problem(position.line, position.column, code, message, width=position.width))
