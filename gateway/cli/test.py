"""`skewgate test FILE`: compares a table of requests with the decisions of the gateway.

It shows what clients would notice of a new configuration or an upgrade. The table says what each backend
serves; otherwise each is probed once. With `--admin` a running gateway decides. None of the requests is sent.
`expectations` reads the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from gateway.cli import admin_client, offline
from gateway.cli.admin_client import AdminOptions
from gateway.cli.command import FileName, find_config, output_option, read_settings, verb
from gateway.cli.expectations import DOWN, LEGACY, Claim, Expectations, RequestRow, Value, read_expectations
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import Fact, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.errors import AdminError, VersionTextError
from gateway.runtime import process
from gateway.runtime.terminal import plain
from gateway.settings import Settings

DETAILS: Final = (
    "FILE lists requests with expected decisions. It may name the configuration (`config`) and the versions"
    " of each backend (`backends`); without these, the backends are probed once. With --admin a running"
    " gateway decides. No request is sent. Exit code 1: a decision differs.\n\n"
    "Each item of `requests` has `request` (such as GET /path), optional `headers`, and `expect` with at"
    " least one of `decision`, `status`, `service`, `version` and `backends`. docs/cli.md shows an example."
)


class RowResult(NamedTuple):
    """A row of the table, and what the gateway decided."""

    row: RequestRow
    found: Mapping[str, Value | None]
    because: str

    @property
    def differences(self) -> list[str]:
        """Phrases such as `status is 406, not 200`, one for each value that differs."""
        return [
            f"{key} is {_shown(self.found[key])}, not {_shown(expected)}"
            for key, expected in self.row.expect.items()
            if self.found[key] != (tuple(sorted(expected)) if isinstance(expected, tuple) else expected)
        ]


@verb("test", DETAILS)
@admin_client.options
@output_option
@click.argument("file", metavar="FILE", type=FileName())
def test(*, where: AdminOptions, output: str, file: Path) -> int:
    """Compare all rows. Returns 0 if all are as expected, else 1. Raises `SettingsError` and `AdminError`."""
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
