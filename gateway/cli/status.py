"""`skewgate status`: what a running gateway offers, the phase of the upgrade, and its backends.

It formats the JSON object of /status and computes nothing but ages. Problems come first. Long lists are
shortened in tables, never in JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from gateway.cli import admin_client, known_names
from gateway.cli.admin_client import AdminOptions
from gateway.cli.command import output_option, verb
from gateway.errors import AdminError
from gateway.runtime.terminal import Paint, Style, TableCell, plain, span, table

INTERVAL: Final = 2.0
"""Seconds between two pages of `status --watch`: about half the probe interval."""

NAMED: Final = 3
"""Maximum number of names in one cell of a table; the rest is counted."""
SHOWN: Final = 20
"""Maximum number of rows for healthy backends of a service when all services are shown."""
LONGEST_ERROR: Final = 160
"""Maximum length of an error in a table, in characters."""

CLEAR: Final = "\x1b[H\x1b[2J"

SERVICE_COLUMNS: Final = ("SERVICE", "DIALECT", "OFFER", "PHASE", "HELD BY")
BACKEND_COLUMNS: Final = (
    "SERVICE",
    "BACKEND",
    "FRESHNESS",
    "SERVES",
    "IN FLIGHT",
    "LAST PROBE",
    "URL",
    "ERROR",
)
SOURCE_COLUMNS: Final = ("SERVICE", "SOURCE", "LISTED", "UNLISTED", "LEAVING", "LAST RESPONSE", "ERROR")
WORKER_COLUMNS: Final = ("WORKER", "PROCESS", "STATE", "CONNECTIONS", "REPLACED")
REPLICA_COLUMNS: Final = ("REPLICA", "ID", "HOST", "RELEASE", "STATE", "LAST BEAT", "HOLDS", "DIFFERS IN")
ENGINE_COLUMNS: Final = ("ENGINE", "RELEASE", "PID", "ROWS", "DRAINING", "STATE")

_PHASE_STYLE: Final = {
    "uniform": Style.GREEN,
    "mixed": Style.YELLOW,
    "stabilizing": Style.YELLOW,
    "capped": Style.YELLOW,
    "unknown": Style.RED,
}
_FRESHNESS_STYLE: Final = {
    "fresh": Style.GREEN,
    "stale": Style.YELLOW,
    "down": Style.RED,
    "unknown": Style.RED,
}


@verb("status")
@admin_client.options
@click.option("--watch", is_flag=True, help=f"repeat every {INTERVAL:g} seconds until Ctrl-C")
@output_option
@click.argument("service", metavar="[SERVICE]", required=False, shell_complete=known_names.services)
def status(*, where: AdminOptions, watch: bool, output: str, service: str | None) -> int:
    """Print the status page once, or repeatedly until Ctrl-C. Raises `AdminError` for an unknown service."""
    admin = admin_client.find(where)
    paint = Paint(sys.stdout)
    if not watch:
        print(_page(admin, output, paint, service))
        return 0
    try:
        while True:
            page = _page(admin, output, paint, service)
            clear = CLEAR if output == "text" and sys.stdout.isatty() else ""
            print(f"{clear}{page}", flush=True)
            time.sleep(INTERVAL)
    except KeyboardInterrupt:  # the normal end of --watch
        return 0


def _page(admin: admin_client.AdminClient, output: str, paint: Paint, service: str | None) -> str:
    document = admin.status()
    if service is not None:
        document = _of_service(document, service)
    if output == "json":
        return json.dumps(document)
    whole = service is not None
    return admin_client.formatted(admin.url, lambda: page(document, time.time(), paint, whole=whole))


def _of_service(document: Mapping[str, Any], service: str) -> dict[str, Any]:
    """Return /status reduced to one service. Raises `AdminError` with similar names."""
    services = document["services"]
    if service in services:
        return {**document, "services": {service: services[service]}}
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    if service.endswith((".yaml", ".yml")):
        hint = f"did you mean -c {service}?"
    elif close := get_close_matches(service, services, n=1):
        hint = f"did you mean {close[0]}?"
    else:
        hint = f"there are: {_some(sorted(services), named=10)}"
    raise AdminError(plain(f"there is no service {service!r}; {hint}"))


def page(document: Mapping[str, Any], now: float, paint: Paint, *, whole: bool = True) -> str:
    """Format /status as tables. `now`: seconds since the epoch. `whole`: show all healthy backends, too."""
    services: Mapping[str, Mapping[str, Any]] = document.get("services", {})
    worst_first = sorted(services.items(), key=lambda item: not _is_service_wrong(item[1]))
    backend_rows, left_out = _backend_rows(services, now, whole=whole)
    source_rows = [
        _source_row(name, source, report, now)
        for name, service in services.items()
        for source, report in service.get("sources", {}).items()
    ]
    notes = [plain(f"{name}: {note}") for name, it in worst_first for note in _notes(it)]
    rows = [_service_row(name, service) for name, service in worst_first]
    tables = [
        "\n".join([table(SERVICE_COLUMNS, rows, paint), *notes]),
        "\n".join([table(BACKEND_COLUMNS, backend_rows, paint), *left_out]),
    ]
    if source_rows:
        tables.append(table(SOURCE_COLUMNS, source_rows, paint))
    workers = document.get("workers", ())
    if len(workers) > 1:
        tables.append(table(WORKER_COLUMNS, [_worker_row(worker) for worker in workers], paint))
    if agreement := document.get("agreement"):
        rows = [_replica_row(each, agreement, now) for each in agreement.get("replicas", ())]
        tables.append(table(REPLICA_COLUMNS, rows, paint))
        tables += [paint(line, Style.RED) for line in _detached(agreement, services, now)]
    if engine := document.get("engine"):
        tables.append(table(ENGINE_COLUMNS, [_engine_row(engine)], paint))
    if error := document.get("config", {}).get("error"):
        text = f"the last reload was refused, the old configuration is in force: {plain(error)}"
        tables.append(paint(text, Style.RED))
    return "\n\n".join(tables)


def _notes(service: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about a service that no column has."""
    if "lifecycle" in service:
        yield service["lifecycle"]["announced"]
    yield from (each["sentence"] for each in (*service["offer"].get("for", ()), *service.get("bridge", ())))
    if problem := service.get("skew", {}).get("problem"):
        yield problem


def _backend_rows(
    services: Mapping[str, Mapping[str, Any]], now: float, *, whole: bool
) -> tuple[list[list[TableCell]], list[str]]:
    """Return a row for each backend, those with problems first, and a line for each service of which healthy
    backends are left out."""
    wrong: list[list[TableCell]] = []
    right: list[list[TableCell]] = []
    left_out = []
    for name, service in services.items():
        well = 0
        for backend, member in service.get("backends", {}).items():
            if _is_wrong(member):
                wrong.append(_backend_row(name, backend, member, now))
                continue
            well += 1
            if whole or well <= SHOWN:
                right.append(_backend_row(name, backend, member, now))
        if not whole and well > SHOWN:
            count = f"{well - SHOWN} more without a problem"
            left_out.append(plain(f"{name}: {count}; `skewgate status {name}` shows all"))
    return wrong + right, left_out


def _is_wrong(member: Mapping[str, Any]) -> bool:
    """Whether a backend gets no requests, or soon may get none."""
    words = ("drained", "leaving", "ejected", "unhealthy", "error")
    return member.get("freshness") != "fresh" or any(member.get(word) for word in words)


def _is_service_wrong(service: Mapping[str, Any]) -> bool:
    return service.get("phase") == "unknown" or any(map(_is_wrong, service.get("backends", {}).values()))


def _some(names: Sequence[object], named: int = NAMED) -> str:
    """Join names, such as `api-1, api-2, api-3 and 197 more`. It never says `and 1 more`."""
    if len(names) <= named + 1:
        return ", ".join(map(str, names))
    return f"{', '.join(map(str, names[:named]))} and {len(names) - named} more"


def _ago(at: float | None, now: float) -> str:
    """Format a time as `2.4 s ago`; `-` for None."""
    return "-" if at is None else f"{max(0.0, now - float(at)):.1f} s ago"


def _service_row(name: str, service: Mapping[str, Any]) -> list[TableCell]:
    offer = service.get("offer", {})
    phase = str(service.get("phase", "unknown"))
    held_by = _some([*(offer.get("held_by") or ()), *(offer.get("held_by_replicas") or ())])
    rule = offer.get("held_rule")
    kind = "pin" if service.get("pin") else "ceiling"
    ceiling = f" ({kind} {offer['ceiling']})" if offer.get("ceiling") else ""
    state = "suspended floor" if offer.get("floor_suspended") else "floor"
    by = f" by its sunset of {offer['floor_sunset']}" if offer.get("floor_sunset") else ""
    floor = f" ({state} {offer['floor']}{by})" if offer.get("floor") else ""
    return [
        name,
        str(service.get("dialect", "")),
        f"{_range(offer)}{ceiling}{floor}",
        (phase, _PHASE_STYLE.get(phase, Style.PLAIN)),
        f"{held_by or '-'}{f' ({rule})' if rule else ''}",
    ]


def _backend_row(service: str, name: str, member: Mapping[str, Any], now: float) -> list[TableCell]:
    freshness = str(member.get("freshness", "unknown"))
    states = [word for word in ("drained", "leaving", "ejected", "unhealthy", "backup") if member.get(word)]
    return [
        service,
        name,
        (" ".join([freshness, *states]), _freshness_style(freshness, states)),
        _range(member) + (" (legacy)" if member.get("legacy") else ""),
        str(member.get("in_flight", 0)),
        _ago(member.get("last_probe_at"), now),
        str(member.get("url", "")),
        _error(member, now),
    ]


def _source_row(service: str, source: str, report: Mapping[str, Any], now: float) -> list[TableCell]:
    return [
        service,
        source,
        *(str(report.get(state, 0)) for state in ("listed", "unlisted", "leaving")),
        _ago(report.get("answered_at"), now),
        str(report.get("error") or "-"),
    ]


def _worker_row(worker: Mapping[str, Any]) -> list[TableCell]:
    state = str(worker.get("state", "unknown"))
    return [
        str(worker.get("slot", "")),
        str(worker.get("pid") or "-"),
        (state, Style.GREEN if state == "serving" else Style.YELLOW),
        str(worker.get("connections", 0)),
        str(worker.get("restarts", 0)),
    ]


def _replica_row(replica: Mapping[str, Any], agreement: Mapping[str, Any], now: float) -> list[TableCell]:
    own = " (this one)" if replica.get("id") == agreement.get("id") else ""
    return [
        f"{replica.get('name') or '-'}{own}",
        *(str(replica.get(key) or "-") for key in ("id", "host", "release")),
        ("attached", Style.GREEN) if replica.get("attached") else ("detached", Style.RED),
        _ago(replica.get("seen_at"), now),
        *(_some(replica.get(key) or ()) or "-" for key in ("holds", "differs")),
    ]


def _engine_row(engine: Mapping[str, Any]) -> list[TableCell]:
    rows = sum(int(service.get("rows", 0)) for service in engine.get("services", {}).values())
    problem = engine.get("problem")
    return [
        *(str(engine.get(key) or "-") for key in ("name", "release", "pid")),
        str(rows),
        str(engine.get("draining", 0)),
        (str(problem), Style.RED) if problem else ("in sync", Style.GREEN),
    ]


def _detached(
    agreement: Mapping[str, Any], services: Mapping[str, Mapping[str, Any]], now: float
) -> Iterator[str]:
    """Return a line for each reason why this replica is cut off from the others."""
    if error := agreement.get("error"):
        yield f"the store does not respond: {plain(str(error))}"
    for name, service in services.items():
        about = service.get("agreement") or {}
        if not about or about.get("attached"):
            continue
        left = about.get("answers_for")
        parts = [
            f"{name}: this replica was detached {_ago(about.get('since', now), now)}",
            *([f"it stops responding in {float(left):.0f} s"] if left is not None else []),
            *([plain(str(about["problem"]))] if about.get("problem") else []),
        ]
        yield "; ".join(parts)


def _freshness_style(freshness: str, states: list[str]) -> Style:
    style = _FRESHNESS_STYLE.get(freshness, Style.PLAIN)
    return Style.YELLOW if style is Style.GREEN and {"ejected", "leaving", "unhealthy"} & {*states} else style


def _error(member: Mapping[str, Any], now: float) -> str:
    """Return every reason that keeps requests from a backend, as one text."""
    ejected = member.get("ejected") or {}
    seconds = max(0.0, float(ejected.get("until", now)) - now)
    leaving = member.get("leaving") or {}
    errors = [
        f"drained by {member['drained_by']}" if member.get("drained_by") else None,
        f"leaves in {max(0.0, float(leaving.get('until', now)) - now):.0f} s" if leaving else None,
        f"ejected for {seconds:.0f} s more: {ejected.get('reason')}" if ejected else None,
        member.get("unhealthy"),
        member.get("error"),
    ]
    text = "; ".join(str(error) for error in errors if error) or "-"
    return text if len(text) <= LONGEST_ERROR else f"{text[: LONGEST_ERROR - 1]}…"


def _range(versions: Mapping[str, Any]) -> str:
    """Format a range as `1.1-1.58`; `-` before any version is known."""
    return span(versions.get("min"), versions.get("max"), nothing="-")
