"""`skewgate test FILE`: compares a table of requests with the decisions of the gateway.

    config: skewgate.yaml            # relative to this file; -c overrides it
    backends:                        # what each serves: versions, `legacy` or `down`
      baremetal/api-1: 1.1-1.58
    requests:
      - request: GET /v1/nodes
        headers: {X-OpenStack-Ironic-API-Version: latest}
        expect: {decision: forward, version: "1.58", backends: [api-1]}

It shows what clients would notice of a new configuration or an upgrade. Without `backends` each is probed
once; with `--admin` a running gateway decides. None of the requests is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, final

import click

from gateway.cli import admin_client, offline
from gateway.cli.admin_client import AdminOptions
from gateway.cli.command import FILE_NAME, find_config, output_option, read_settings, verb
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import Fact, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import METHOD, Header, method_of_text
from gateway.core.versions.ranges import VersionSet
from gateway.errors import AdminError, SettingsError, VersionTextError
from gateway.runtime import process
from gateway.runtime.terminal import plain
from gateway.settings import Loaded, Settings
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import shown_lines
from gateway.settings.yaml.tree import MappingEntry, MappingNode, Node, Scalar, SequenceNode, read_tree

DETAILS: Final = (
    "FILE lists requests with expected decisions. It may name the configuration (`config`) and the versions"
    " of each backend (`backends`); without these, the backends are probed once. With --admin a running"
    " gateway decides. No request is sent. Exit code 1: a decision differs.\n\n"
    "Each item of `requests` has `request` (such as GET /path), optional `headers`, and `expect` with at"
    " least one of `decision`, `status`, `service`, `version`, `client_name` and `backends`."
    " docs/cli.md shows an example."
)
LEGACY: Final = "legacy"
DOWN: Final = "down"
DECISIONS: Final = ("forward", "refuse", "answer", "unrouted")
EXPECTED: Final = ("decision", "status", "service", "version", "client_name", "backends")
"""Keys of `expect` in a table of requests; a key that is left out matches any value."""

Value: TypeAlias = str | tuple[str, ...]


class RequestRow(NamedTuple):
    """A request in a table of requests, and the expected values of its decision."""

    line: int
    method: str
    path: str
    headers: tuple[Header, ...]
    expect: Mapping[str, Value]


class Claim(NamedTuple):
    """The statement of a table of requests that a backend serves some versions, is `legacy`, or is `down`."""

    service: str
    backend: str
    text: str
    node: Node


class Expectations(NamedTuple):
    """A table of requests, as its file has it. Without `backends` the configured ones are probed."""

    filename: str
    lines: tuple[str, ...]
    config: Path | None = None
    backends: tuple[Claim, ...] | None = None
    rows: tuple[RequestRow, ...] = ()

    def problem(self, claim: Claim, message: str) -> SettingsError:
        """Return the error for an entry of `backends` that contradicts the configuration."""
        findings = Findings()
        findings.add(claim.node, "bad-value", message)
        return _refused(self, findings)


class RowResult(NamedTuple):
    """A row of the table of requests, and what the gateway decided."""

    row: RequestRow
    found: Mapping[str, Value | None]
    because: str

    @property
    def differences(self) -> list[str]:
        """Differences from the expected decision, each a phrase such as `status is 406, not 200`."""
        return [
            f"{key} is {_shown(self.found[key])}, not {_shown(expected)}"
            for key, expected in self.row.expect.items()
            if self.found[key] != (tuple(sorted(expected)) if isinstance(expected, tuple) else expected)
        ]


@verb("test", DETAILS)
@admin_client.options
@output_option
@click.argument("file", metavar="FILE", type=FILE_NAME)
def test(*, where: AdminOptions, output: str, file: Path) -> int:
    """Compare all rows of a table. 0: all are right; else 1. Raises `SettingsError` and `AdminError`."""
    table = read_expectations(file)
    if where.admin is None:
        results = _decide(where.config, table)
    else:
        admin = admin_client.find(where)
        results = [_result(row, admin.explain(row.method, row.path, row.headers)) for row in table.rows]
    different = [result for result in results if result.differences]
    if output == "json":
        print(json.dumps({"file": table.filename, "requests": [_as_json(result) for result in results]}))
    else:
        for result in different:
            row = result.row
            reason = f" (because {plain(result.because)})" if result.because else ""
            print(
                f"{table.filename}:{row.line}: {row.method} {plain(row.path)}:"
                f" {plain('; '.join(result.differences))}{reason}"
            )
        number = f"{len(results)} request{'' if len(results) == 1 else 's'}"
        print(f"{table.filename}: {number}, {f'{len(different)} not' if different else 'all'} as expected")
    return 1 if different else 0


def _decide(config: Path | None, table: Expectations) -> list[RowResult]:
    settings = read_settings(config or table.config or find_config(None))
    if table.backends is None:
        snapshot = process.run_in_loop(offline.probed(settings))
    else:
        snapshot = _claimed(settings, table, table.backends)
    results = []
    for row in table.rows:
        try:
            explanation = offline.explain_request(snapshot, settings, row.method, row.path, row.headers)
        except AdminError as refused:  # a malformed request, which reaches no service
            explanation = {"decision": "refuse", "because": str(refused)}
        results.append(_result(row, explanation))
    return results


def _claimed(settings: Settings, table: Expectations, claims: Sequence[Claim]) -> Snapshot:
    """Return the snapshot of a fleet that serves what the table says. Backends that are in neither the table
    nor declared by the configuration are down."""
    named = {(claim.service, claim.backend) for claim in claims}
    services = [_undeclared(service, named) for service in settings.services]
    by_name = {service.name: service for service in services}
    snapshot = Snapshot.configured(services, now=0.0)
    facts: list[tuple[str, str, Fact]] = []
    for claim in claims:
        service = by_name.get(claim.service)
        if service is None or claim.backend not in {backend.name for backend in service.backends}:
            raise table.problem(claim, "the configuration has no such backend")
        facts.append((claim.service, claim.backend, _fact(table, claim, service)))
    unheard = [
        (service.name, backend.name, ProbeFailed("not in the table of backends", 1.0))
        for service in services
        for backend in service.backends
        if backend.declared is None and (service.name, backend.name) not in named
    ]
    fleet = snapshot.fleet.observe_all([*facts, *unheard]).fleet
    return offline.with_first_offer(snapshot, fleet)


def _undeclared(service: Service, named: set[tuple[str, str]]) -> Service:
    """Remove the declared `versions` of backends that are in the table, which takes precedence."""
    backends = tuple(
        replace(backend, declared=None) if (service.name, backend.name) in named else backend
        for backend in service.backends
    )
    return replace(service, backends=backends)


def _fact(table: Expectations, claim: Claim, service: Service) -> Fact:
    if claim.text == DOWN:
        return ProbeFailed("down in the table of backends", 1.0)
    if claim.text == LEGACY:
        return ProbeSucceeded(Advertisement(service.dialect.legacy_versions, legacy=True), 1.0)
    try:
        versions = VersionSet.read(claim.text, service.dialect.scheme)
    except VersionTextError as problem:
        raise table.problem(claim, str(problem)) from None
    return ProbeSucceeded(Advertisement(versions), 1.0)


def _result(row: RequestRow, explanation: Mapping[str, Any]) -> RowResult:
    status = explanation.get("status")
    found: dict[str, Value | None] = {
        "decision": explanation.get("decision"),
        "status": None if status is None else str(status),
        "service": explanation.get("service"),
        "version": explanation.get("version"),
        "client_name": explanation.get("client_name"),
        "backends": tuple(sorted(candidate["backend"] for candidate in explanation.get("candidates") or ())),
    }
    return RowResult(row, found, str(explanation.get("because") or ""))


def _shown(value: Value | None) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else f"[{', '.join(value)}]"


def _as_json(result: RowResult) -> dict[str, Any]:
    row = result.row
    return {
        "line": row.line,
        "request": f"{row.method} {row.path}",
        "as_expected": not result.differences,
        "expected": dict(row.expect),
        "found": dict(result.found),
        "because": result.because,
    }


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
        """Read the YAML nodes of the file into the table of requests `table`, and return it."""
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
    """Return the texts of a YAML scalar or list."""
    items = entry.value.items if isinstance(entry.value, SequenceNode) else [entry.value]
    return tuple(item.text for item in items if isinstance(item, Scalar))
