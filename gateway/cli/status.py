"""`skewgate status`: what a running gateway offers, the phase of the upgrade, and its backends.

It shows the document of /status and computes nothing but the age of a probe.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from gateway.cli import admin_client
from gateway.terminal import Paint, Style, TableCell, plain, span, table

HELP = "show services, offers, the phase of the upgrade, and backends"

INTERVAL: Final = 2.0
"""Seconds between two pages with --watch: about half the interval of probes."""

CLEAR: Final = "\x1b[H\x1b[2J"

SERVICE_COLUMNS: Final = ("SERVICE", "DIALECT", "OFFER", "PHASE", "HELD BY")
BACKEND_COLUMNS: Final = (
    *("SERVICE", "BACKEND", "FRESHNESS", "SERVES", "IN FLIGHT", "LAST PROBE", "URL", "ERROR"),
)

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
    "lost": Style.RED,
    "unknown": Style.RED,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The admin listener, the format of the output, and whether to repeat it."""
    admin_client.arguments(parser)
    parser.add_argument(
        "--watch", action="store_true", help=f"repeat every {INTERVAL:g} seconds until Ctrl-C"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")


def run(options: argparse.Namespace) -> int:
    """Print the page once, or again and again until Ctrl-C."""
    admin = admin_client.find(options)
    paint = Paint(sys.stdout)
    if not options.watch:
        print(_page(admin, options.output, paint))
        return 0
    try:
        while True:
            page = _page(admin, options.output, paint)
            clear = CLEAR if options.output == "text" and sys.stdout.isatty() else ""
            print(f"{clear}{page}", flush=True)
            time.sleep(INTERVAL)
    except KeyboardInterrupt:  # the normal end of --watch
        return 0


def _page(admin: admin_client.AdminClient, output: str, paint: Paint) -> str:
    document = admin.document("GET", "/status")
    if output == "json":
        return json.dumps(document)
    return admin_client.formatted(admin.url, lambda: page(document, time.time(), paint))


def page(document: Mapping[str, Any], now: float, paint: Paint) -> str:
    """The two tables of a /status document. `now`: seconds since the epoch."""
    services: Mapping[str, Mapping[str, Any]] = document.get("services", {})
    service_rows = [_service_row(name, service) for name, service in services.items()]
    backend_rows = [
        _backend_row(name, backend, member, now)
        for name, service in services.items()
        for backend, member in service.get("backends", {}).items()
    ]
    return f"{table(SERVICE_COLUMNS, service_rows, paint)}\n\n{table(BACKEND_COLUMNS, backend_rows, paint)}"


def _service_row(name: str, service: Mapping[str, Any]) -> list[TableCell]:
    offer = service.get("offer", {})
    phase = str(service.get("phase", "unknown"))
    held_by = ", ".join(map(str, offer.get("held_by") or ()))
    rule = offer.get("held_rule")
    kind = "pin" if service.get("pin") else "ceiling"
    ceiling = f" ({kind} {offer['ceiling']})" if offer.get("ceiling") else ""
    return [
        name,
        str(service.get("dialect", "")),
        f"{_range(offer)}{ceiling}",
        (phase, _PHASE_STYLE.get(phase, Style.PLAIN)),
        f"{held_by or '-'}{f' ({rule})' if rule else ''}",
    ]


def _backend_row(service: str, name: str, member: Mapping[str, Any], now: float) -> list[TableCell]:
    freshness = str(member.get("freshness", "unknown"))
    drained = " drained" if member.get("drained") else ""
    probed = member.get("last_probe_at")
    return [
        service,
        name,
        (freshness + drained, _FRESHNESS_STYLE.get(freshness, Style.PLAIN)),
        _range(member) + (" (legacy)" if member.get("legacy") else ""),
        str(member.get("in_flight", 0)),
        "-" if probed is None else f"{max(0.0, now - float(probed)):.1f} s ago",
        str(member.get("url", "")),
        plain(member.get("error") or "-"),
    ]


def _range(versions: Mapping[str, Any]) -> str:
    """`1.1-1.58`; `-` before any version is known."""
    return span(versions.get("min"), versions.get("max"), nothing="-")
