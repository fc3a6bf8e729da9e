"""`skewgate status`: what a running gateway offers, where the upgrade stands, what it knows.

Shows what /status says and adds nothing but the age of a probe.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from gateway.cli import asking
from gateway.cli.printing import Cell, Paint, Style, plain, span, table

HELP = "show services, offers, the phase of the upgrade, and backends"

EVERY: Final = 2.0
"""Seconds between two looks with --watch: about half a probe's interval."""

CLEAR: Final = "\x1b[H\x1b[2J"

SERVICE_COLUMNS: Final = ("SERVICE", "DIALECT", "OFFER", "PHASE", "DIFFERING")
BACKEND_COLUMNS: Final = (
    *("SERVICE", "BACKEND", "STANDING", "SERVES", "IN FLIGHT", "LAST PROBE", "URL", "ERROR"),
)

_PHASE_STYLE: Final = {
    "uniform": Style.GREEN,
    "mixed": Style.YELLOW,
    "settling": Style.YELLOW,
    "capped": Style.YELLOW,
    "unknown": Style.RED,
}
_STANDING_STYLE: Final = {
    "fresh": Style.GREEN,
    "stale": Style.YELLOW,
    "lost": Style.RED,
    "unknown": Style.RED,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Where to ask, how to print, and whether to go on."""
    asking.arguments(parser)
    parser.add_argument(
        "--watch", action="store_true", help=f"look again every {EVERY:g} seconds, until Ctrl-C"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")


def run(options: argparse.Namespace) -> int:
    """Print it once, or until interrupted."""
    admin = asking.find(options)
    paint = Paint(sys.stdout)
    if not options.watch:
        print(_page(admin, options.output, paint))
        return 0
    try:
        while True:
            page = _page(admin, options.output, paint)
            clear = CLEAR if options.output == "text" and sys.stdout.isatty() else ""
            print(f"{clear}{page}", flush=True)
            time.sleep(EVERY)
    except KeyboardInterrupt:  # the ordinary way out
        return 0


def _page(admin: asking.Admin, output: str, paint: Paint) -> str:
    document = admin.document("GET", "/status")
    if output == "json":
        return json.dumps(document)
    return asking.readable(admin.url, lambda: page(document, time.time(), paint))


def page(document: Mapping[str, Any], now: float, paint: Paint) -> str:
    """The two tables of a /status document; `now` in seconds of the epoch."""
    services: Mapping[str, Mapping[str, Any]] = document.get("services", {})
    upper = [_service_row(name, service) for name, service in services.items()]
    lower = [
        _backend_row(name, backend, member, now)
        for name, service in services.items()
        for backend, member in service.get("backends", {}).items()
    ]
    return f"{table(SERVICE_COLUMNS, upper, paint)}\n\n{table(BACKEND_COLUMNS, lower, paint)}"


def _service_row(name: str, service: Mapping[str, Any]) -> list[Cell]:
    offer = service.get("offer", {})
    phase = str(service.get("phase", "unknown"))
    differing = ", ".join(map(str, offer.get("held_by") or ()))
    rule = offer.get("held_rule")
    word = "pin" if service.get("pin") else "ceiling"
    ceiling = f" ({word} {offer['ceiling']})" if offer.get("ceiling") else ""
    return [
        name,
        str(service.get("dialect", "")),
        f"{_range(offer)}{ceiling}",
        (phase, _PHASE_STYLE.get(phase, Style.PLAIN)),
        f"{differing or '-'}{f' ({rule})' if rule else ''}",
    ]


def _backend_row(service: str, name: str, member: Mapping[str, Any], now: float) -> list[Cell]:
    standing = str(member.get("standing", "unknown"))
    drained = " drained" if member.get("drained") else ""
    probed = member.get("last_probe_at")
    return [
        service,
        name,
        (standing + drained, _STANDING_STYLE.get(standing, Style.PLAIN)),
        _range(member) + (" (silent)" if member.get("silent") else ""),
        str(member.get("in_flight", 0)),
        "-" if probed is None else f"{max(0.0, now - float(probed)):.1f} s ago",
        str(member.get("url", "")),
        plain(member.get("error") or "-"),
    ]


def _range(bounds: Mapping[str, Any]) -> str:
    """`1.1-1.58`; `-` before anything is known."""
    return span(bounds.get("min"), bounds.get("max"), nothing="-")
