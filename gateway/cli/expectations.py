"""The file of `skewgate test`: a table of requests, each with the expected decision.

    config: skewgate.yaml            # relative to this file; -c overrides it
    backends:                        # what each serves: versions, `legacy` or `down`
      baremetal/api-1: 1.1-1.58
    requests:
      - request: GET /v1/nodes
        headers: {X-OpenStack-Ironic-API-Version: latest}
        expect: {decision: forward, version: "1.58", backends: [api-1]}

Problems of the file have positions, like those of a configuration. This module reads the table; it decides
and compares nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, final

from gateway.core.http.message import METHOD, Header, method_of_text
from gateway.errors import SettingsError
from gateway.settings import Loaded
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import shown_lines
from gateway.settings.yaml.tree import MappingEntry, MappingNode, Node, Scalar, SequenceNode, read_tree

LEGACY: Final = "legacy"
DOWN: Final = "down"
DECISIONS: Final = ("forward", "refuse", "answer", "unrouted")
EXPECTED: Final = ("decision", "status", "service", "version", "backends")
"""Keys of `expect`. A key that is left out matches any value."""

Value: TypeAlias = str | tuple[str, ...]


class RequestRow(NamedTuple):
    """A request, and the expected values of its decision."""

    line: int
    method: str
    path: str
    headers: tuple[Header, ...]
    expect: Mapping[str, Value]


class Claim(NamedTuple):
    """The statement that a backend serves some versions, is `legacy`, or is `down`."""

    service: str
    backend: str
    text: str
    node: Node


class Expectations(NamedTuple):
    """A whole file. Without `backends` they are probed."""

    filename: str
    lines: tuple[str, ...]
    config: Path | None = None
    backends: tuple[Claim, ...] | None = None
    rows: tuple[RequestRow, ...] = ()

    def problem(self, claim: Claim, message: str) -> SettingsError:
        """Return the error for a claim that contradicts the configuration."""
        findings = Findings()
        findings.add(claim.node, "bad-value", message)
        return _refused(self, findings)


def read_expectations(path: Path) -> Expectations:
    """Read a table. Raises `SettingsError` with every problem."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise SettingsError(f"{path} cannot be read: {reason}") from None
    root, problems = read_tree(text, {})
    findings = Findings(problems)
    table = Expectations(str(path), tuple(shown_lines(text)))
    if root is not None:
        table = _Reader(findings).read(root, table)
    if findings.problems:
        raise _refused(table, findings)
    return table


def _refused(table: Expectations, findings: Findings) -> SettingsError:
    problems = tuple(sorted(findings.problems, key=lambda each: (each.line, each.column, each.code)))
    return SettingsError(Loaded(table.filename, None, problems, table.lines).render(), problems)


@final
class _Reader:
    """Reads the YAML nodes of a table and collects their problems."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def read(self, root: Node, table: Expectations) -> Expectations:
        """Return `table` completed with the content of the file."""
        entries = self._entries(root, ("config", "backends", "requests"))
        config = self._text(entries.get("config"))
        claims = entries.get("backends")
        rows = entries.get("requests")
        if rows is None:
            self._findings.add(root, "missing-key", "the key 'requests' is missing")
            return table
        items = rows.value.items if isinstance(rows.value, SequenceNode) else []
        if not items:
            self._findings.add(rows.value, "wrong-type", "a list of requests is expected here")
        return table._replace(
            config=Path(table.filename).parent / config if config else None,
            backends=None if claims is None else tuple(self._claims(claims.value)),
            rows=tuple(row for item in items if (row := self._row(item)) is not None),
        )

    def _claims(self, node: Node) -> list[Claim]:
        found = []
        for name, entry in self._entries(node).items():
            service, slash, backend = name.partition("/")
            text = self._text(entry)
            if not (service and slash and backend):
                self._findings.add(entry.key, "bad-value", "must be SERVICE/BACKEND")
            elif text is not None:
                found.append(Claim(service, backend, text, entry.value))
        return found

    def _row(self, node: Node) -> RequestRow | None:
        entries = self._entries(node, ("request", "headers", "expect"))
        request = self._text(entries.get("request"))
        expect = entries.get("expect")
        for key in ("request", "expect"):
            if key not in entries:
                self._findings.add(node, "missing-key", f"the key {key!r} is missing")
        if request is None or expect is None:
            return None
        method, _, path = request.partition(" ")
        if not METHOD.fullmatch(method) or not path.startswith("/"):
            message = "must be a method and a path, such as GET /v1"
            self._findings.add(entries["request"].value, "bad-value", message)
            return None
        headers: list[Header] = []
        if "headers" in entries:
            for name, entry in self._entries(entries["headers"].value).items():
                headers += [(name, text) for text in _texts(entry)]
        expected = self._expect(expect.value)
        return RequestRow(node.position.line, method_of_text(method), path, tuple(headers), expected)

    def _expect(self, node: Node) -> dict[str, Value]:
        found: dict[str, Value] = {}
        entries = self._entries(node, EXPECTED)
        if isinstance(node, MappingNode) and not node.entries:
            message = f"`expect` is empty: give at least one of {', '.join(EXPECTED)}"
            self._findings.add(node, "bad-value", message)
        for key, entry in entries.items():
            if key == "backends":
                found[key] = _texts(entry)
            elif (text := self._text(entry)) is not None:
                found[key] = text
                if key == "decision" and text not in DECISIONS:
                    message = f"must be one of: {', '.join(DECISIONS)}"
                    self._findings.add(entry.value, "bad-value", message)
        return found

    def _entries(self, node: Node, known: tuple[str, ...] | None = None) -> dict[str, MappingEntry]:
        if not isinstance(node, MappingNode):
            self._findings.add(node, "wrong-type", "a mapping is expected here")
            return {}
        if known is None:
            return node.entries
        for name in node.entries.keys() - known:
            message = f"there is no key {name!r} here; there are: {', '.join(known)}"
            self._findings.add(node.entries[name].key, "unknown-key", message)
        return {name: entry for name, entry in node.entries.items() if name in known}

    def _text(self, entry: MappingEntry | None) -> str | None:
        if entry is None:
            return None
        if isinstance(entry.value, Scalar) and entry.value.text:
            return entry.value.text
        self._findings.add(entry.value, "wrong-type", "a text is expected here")
        return None


def _texts(entry: MappingEntry) -> tuple[str, ...]:
    """Return the texts of a scalar or a list."""
    items = entry.value.items if isinstance(entry.value, SequenceNode) else [entry.value]
    return tuple(item.text for item in items if isinstance(item, Scalar))
