"""`skewgate explain METHOD PATH`: what would happen to this request and why.

Asks a running gateway, or with `--offline` probes the file's backends once and decides by itself. Sends the
request to nobody; all reasons are `core.explanation`'s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from gateway.cli import asking, loop
from gateway.cli.files import read_settings
from gateway.cli.printing import Cell, Paint, Style, plain, span, table
from gateway.controlplane.cell import Cell as Knowledge
from gateway.controlplane.prober import Prober
from gateway.core.explanation import explain
from gateway.core.message import Header
from gateway.core.snapshot import Snapshot
from gateway.dataplane.http1 import refused_line
from gateway.errors import AdminError
from gateway.settings import Settings
from gateway.telemetry.metrics import Metrics

HELP = "tell what would happen to a request and why"

CANDIDATE_COLUMNS: Final = ("BACKEND", "TRIED", "STANDING", "SERVES", "IN FLIGHT", "URL", "WHY THEN")
LEFT_OUT_COLUMNS: Final = ("BACKEND", "STANDING", "SERVES", "WHY NOT")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The request, and whom to ask."""
    asking.arguments(parser)
    parser.add_argument(
        "--offline", action="store_true", help="probe the backends of -c FILE once and decide here"
    )
    parser.add_argument("-H", "--header", action="append", default=[], type=_header, metavar="'Name: value'")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("method", metavar="METHOD", type=str.upper)
    parser.add_argument("path", metavar="PATH", type=_path, help="with the query, if there is one")
    parser.set_defaults(usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """Print the explanation. Raises `AdminError` or `SettingsError`."""
    if options.offline and options.config is None:
        options.usage_error("--offline needs -c FILE")
    if options.offline:
        told = loop.run(offline(read_settings(options.config), options.method, options.path, options.header))
        where = str(options.config)
    else:
        admin = asking.find(options)
        where = admin.url
        query = [("method", options.method), ("path", options.path)]
        query += [("header", f"{name}: {value}") for name, value in options.header]
        told = admin.document("GET", "/explain", query)
    if options.output == "json":
        print(json.dumps(told))
    else:
        print(asking.readable(where, lambda: page(told, Paint(sys.stdout))))
    return 0


async def offline(settings: Settings, method: str, path: str, headers: Sequence[Header]) -> dict[str, Any]:
    """Probe every backend once, then explain by what they said. Raises `AdminError` for what no gateway
    explains."""
    if refusal := refused_line(method, path):
        raise AdminError(refusal)
    cell = Knowledge(Snapshot.configured(settings.services, now=monotonic()))
    heard_out = asyncio.Event()

    def look(before: Snapshot, after: Snapshot) -> None:
        if _heard_out(after):
            heard_out.set()

    cell.subscribe(look)
    async with Prober(cell, Metrics(), settings.services, clock=monotonic):
        if not _heard_out(cell.current):
            await heard_out.wait()  # every probe has a deadline of its own
    return explain(cell.current, method, path, headers).to_json()


def _heard_out(snapshot: Snapshot) -> bool:
    return all(member.probed for pool in snapshot.fleet.pools.values() for member in pool.members)


def page(told: Mapping[str, Any], paint: Paint) -> str:
    """An explanation for people."""
    return "\n".join(_lines(told, paint))


def _lines(told: Mapping[str, Any], paint: Paint) -> Iterator[str]:
    style = Style.GREEN if told["decision"] in ("forward", "answer") else Style.YELLOW
    status = f" {told['status']}" if told.get("status") else ""
    yield f"{plain(told['method'])} {plain(told['path'])}: {paint(told['decision'] + status, style)}"
    yield f"  because   {plain(told['because'])}"
    for label, text in _facts(told):
        yield f"  {label:<9} {plain(text)}"
    if told.get("candidates"):
        yield ""
        yield table(CANDIDATE_COLUMNS, [_candidate(each) for each in told["candidates"]], paint)
    if told.get("left_out"):
        yield ""
        yield table(LEFT_OUT_COLUMNS, [_left_out(each) for each in told["left_out"]], paint)


def _facts(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is known, in the order in which a request passes through it."""
    if told.get("service"):
        yield "service", f"{told['service']} ({told['dialect']})"
    if told.get("place"):
        yield "place", f"{told['place']['name']}, to the API it is {told['local_path']}"
    if told.get("ask"):
        ask = told["ask"]
        yield "ask", ask["kind"] + (f", {ask['text']!r}" if ask["text"] else "")
    if told.get("offer"):
        offer = told["offer"]
        ends = span(offer["min"], offer["max"])
        ceiling = f", ceiling {offer['ceiling']}" if offer["ceiling"] else ""
        yield "offer", f"{ends} ({offer['policy']}{ceiling}), phase {offer['phase']}"
    if told.get("version"):
        yield "version", told["version"]
    if told.get("operation"):
        operation = told["operation"]
        exists = "exists" if operation["exists"] else "does not exist"
        text = f"{operation['method']} {operation['path']} {exists} at this version: {operation['versions']}"
        yield "operation", text
    for line in told.get("sends") or ():
        yield "sends", line
    reply = told.get("reply")
    if reply:
        for name, value in reply["headers"]:
            yield "says", f"{name}: {value}"
        yield "says", reply["body"]


def _candidate(each: Mapping[str, Any]) -> list[Cell]:
    silent = " (silent)" if each["silent"] else ""
    tried = "first" if each["tier"] == 1 else f"after tier {each['tier'] - 1}"
    return [
        each["backend"],
        tried,
        each["standing"],
        f"{each['serves']}{silent}",
        str(each["in_flight"]),
        each["url"],
        each["why"],
    ]


def _left_out(each: Mapping[str, Any]) -> list[Cell]:
    return [each["backend"], each["standing"], each["serves"], each["why"]]


def _header(text: str) -> Header:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or "\n" in text or "\r" in text:
        raise argparse.ArgumentTypeError("must be 'Name: value'")
    return name.strip(), value.strip()


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError("must begin with /")
    return text
