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
from typing import Any, Final, NamedTuple, TypeAlias

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
from gateway.keys.kinds import TEXT, Either, Key, Kind, ListOf, Section, Table, Text, reject
from gateway.keys.texts import FILE_PATH, LINE, one_of, read_text
from gateway.runtime import process
from gateway.runtime.terminal import plain
from gateway.settings import Loaded, Settings
from gateway.settings.schema import keys_of
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import shown_lines
from gateway.settings.yaml.reader import read_whole
from gateway.settings.yaml.tree import MappingNode, Node, SequenceNode, child, read_tree, shape_of

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


def _read_request(text: str) -> tuple[str, str]:
    method, _, path = text.partition(" ")
    if not METHOD.fullmatch(method) or not path.startswith("/"):
        reject("must be a method and a path, such as GET /v1")
    return method_of_text(method), path


def _section(required: Mapping[str, Kind[Any]], optional: Mapping[str, Kind[Any]]) -> Section[dict[str, Any]]:
    """A mapping with these keys, as which its value is given. No page or schema describes them."""
    keys = {name: Key(kind, "", "", None) for name, kind in required.items()}
    keys |= {name: Key(kind, "", "", None, default=None) for name, kind in optional.items()}
    return Section(make=dict, keys=keys, about="", title="")


_TEXT: Final = Text(read_text, TEXT, may_be_empty=True)
_TEXTS: Final = Either(Text(lambda text: (text,), TEXT, may_be_empty=True), ListOf(_TEXT))
_EXPECTED: Final = {**dict.fromkeys(EXPECTED, LINE), "decision": one_of(*DECISIONS), "backends": _TEXTS}
_REQUEST: Final = _section(
    {"request": Text(_read_request, TEXT), "expect": _section({}, _EXPECTED)},
    {"headers": Table(LINE, _TEXTS)},
)
TABLE: Final = _section(
    {"requests": ListOf(_REQUEST, least=1)},
    {"config": FILE_PATH, "backends": Table(LINE, LINE)},
)
"""The keys of a table of requests."""


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
    if isinstance(root, MappingNode):
        known = [path for path, _ in keys_of(TABLE)]
        written = read_whole(root, TABLE, lambda: known, str(path.parent), findings)
        table = table if written is None else _table(table, written, root, findings)
    elif root is not None:
        findings.add(root, "wrong-type", f"the file must be a mapping, not {shape_of(root)}")
    if findings.problems:
        raise _refused(table, findings)
    return table


def _table(
    table: Expectations, written: Mapping[str, Any], root: MappingNode, findings: Findings
) -> Expectations:
    """Return `table` with what its file says: `written`, at the nodes of `root`."""
    items, claimed = child(root, "requests"), child(root, "backends")
    rows, claims = [], []
    nodes = items.items if isinstance(items, SequenceNode) else ()
    for node, row in zip(nodes, written["requests"], strict=True):
        if not row["expect"] and not findings.problems:
            message = f"`expect` is empty: give at least one of {', '.join(EXPECTED)}"
            findings.bad_value(child(node, "expect"), message)
        (method, path), headers = row["request"], row.get("headers", {})
        lines = tuple((name, text) for name, texts in headers.items() for text in texts)
        rows.append(RequestRow(node.position.line, method, path, lines, row["expect"]))
    for name, entry in claimed.entries.items() if isinstance(claimed, MappingNode) else ():
        service, slash, backend = name.partition("/")
        if not (service and slash and backend):
            findings.bad_value(entry.key, "must be SERVICE/BACKEND")
        claims.append(Claim(service, backend, written["backends"][name], entry.value))
    return table._replace(
        config=Path(written["config"]) if "config" in written else None,
        backends=tuple(claims) if "backends" in written else None,
        rows=tuple(rows),
    )


def _refused(table: Expectations, findings: Findings) -> SettingsError:
    problems = tuple(sorted(findings.problems, key=lambda each: (each.line, each.column, each.code)))
    return SettingsError(Loaded(table.filename, None, problems, table.lines).render(), problems)
