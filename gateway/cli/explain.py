"""`skewgate explain METHOD PATH`: what would happen to a request, and why.

It gets the explanation from a running gateway. With `--offline` it probes the backends of the file once and
makes the explanation itself. The request is never sent. `core.decision.explanation` writes all reasons.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from gateway import process
from gateway.cli import admin_client
from gateway.cli.files import read_settings
from gateway.controlplane.prober import Prober
from gateway.controlplane.resolver import Resolver
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.explanation import explain
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import METHOD, Header, method_of_text
from gateway.dataplane.http1.heads import read_described, refusal_sentence
from gateway.dataplane.http1.names import NameTable
from gateway.errors import AdminError, FramingError
from gateway.settings import Settings
from gateway.telemetry.metrics import Metrics
from gateway.terminal import Paint, Style, TableCell, plain, span, table

HELP = "show what would happen to a request and why"

CANDIDATE_COLUMNS: Final = ("BACKEND", "TRIED", "FRESHNESS", "SERVES", "IN FLIGHT", "URL", "WHY")
LEFT_OUT_COLUMNS: Final = ("BACKEND", "FRESHNESS", "SERVES", "WHY NOT")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The request, and the gateway or the file that explains it."""
    admin_client.arguments(parser)
    parser.add_argument(
        "--offline", action="store_true", help="probe the backends of -c FILE once, without a gateway"
    )
    parser.add_argument("-H", "--header", action="append", default=[], type=_header, metavar="'Name: value'")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("method", metavar="METHOD", type=_method)
    parser.add_argument("path", metavar="PATH", type=_path, help="the path, with a query if there is one")
    parser.set_defaults(usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """Print the explanation. Raises `AdminError` or `SettingsError`."""
    if options.offline and options.config is None:
        options.usage_error("--offline needs -c FILE")
    if options.offline:
        explanation = process.run_in_loop(
            explain_offline(read_settings(options.config), options.method, options.path, options.header)
        )
        source = str(options.config)
    else:
        admin = admin_client.find(options)
        source = admin.url
        query = [("method", options.method), ("path", options.path)]
        query += [("header", f"{name}: {value}") for name, value in options.header]
        explanation = admin.document("GET", "/explain", query)
    if options.output == "json":
        print(json.dumps(explanation))
    else:
        print(admin_client.formatted(source, lambda: page(explanation, Paint(sys.stdout))))
    return 0


async def explain_offline(
    settings: Settings, method: str, path: str, headers: Sequence[Header]
) -> dict[str, Any]:
    """Probe every backend once, then explain the request. Raises `AdminError` for a request that the gateway
    refuses before any service."""
    holder = SnapshotHolder(Snapshot.configured(settings.services, now=monotonic()))
    table = NameTable.for_requests(holder.current.selected_names)
    try:
        head = read_described(method, path, headers, table, settings.limits)
    except FramingError as refusal:
        raise AdminError(refusal_sentence(refusal)) from None
    all_probed = asyncio.Event()

    def check(before: Snapshot, after: Snapshot) -> None:
        if _all_probed(after):
            all_probed.set()

    holder.subscribe(check)
    async with Resolver() as resolver:
        resolver.retarget(settings.services)
        async with Prober(
            holder,
            Metrics(),
            settings.services,
            resolve=resolver.resolve,
            max_document=settings.limits.document,
            clock=monotonic,
        ):
            if not _all_probed(holder.current):
                await all_probed.wait()  # each probe has its own deadline
    # There is no second round: the first offer does not wait for those that did not answer in the first.
    snapshot = holder.current.with_fleet(holder.current.fleet, math.inf)
    return explain(snapshot, head, head.host).to_json()


def _all_probed(snapshot: Snapshot) -> bool:
    return all(member.probed for pool in snapshot.fleet.pools.values() for member in pool.members)


def page(explanation: Mapping[str, Any], paint: Paint) -> str:
    """An explanation for people."""
    return "\n".join(_lines(explanation, paint))


def _lines(explanation: Mapping[str, Any], paint: Paint) -> Iterator[str]:
    decision = explanation["decision"]
    style = Style.GREEN if decision in ("forward", "answer") else Style.YELLOW
    status = f" {explanation['status']}" if explanation.get("status") else ""
    yield f"{plain(explanation['method'])} {plain(explanation['path'])}: {paint(decision + status, style)}"
    yield f"  because   {plain(explanation['because'])}"
    for label, text in _facts(explanation):
        yield f"  {label:<9} {plain(text)}"
    if candidates := explanation.get("candidates"):
        yield ""
        yield table(CANDIDATE_COLUMNS, [_candidate(candidate) for candidate in candidates], paint)
    if left_out := explanation.get("left_out"):
        yield ""
        yield table(LEFT_OUT_COLUMNS, [_left_out(exclusion) for exclusion in left_out], paint)


def _facts(explanation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The facts, in the order in which the gateway finds them for a request."""
    if explanation.get("service"):
        yield "service", f"{explanation['service']} ({explanation['dialect']})"
    if explanation.get("endpoint"):
        yield "endpoint", f"{explanation['endpoint']['name']}, path in the API {explanation['local_path']}"
    if explanation.get("requested"):
        requested = explanation["requested"]
        yield "requested", requested["kind"] + (f", {requested['text']!r}" if requested["text"] else "")
    if explanation.get("offer"):
        offer = explanation["offer"]
        ends = span(offer["min"], offer["max"])
        ceiling = f", ceiling {offer['ceiling']}" if offer["ceiling"] else ""
        yield "offer", f"{ends} ({offer['policy']}{ceiling}), phase {offer['phase']}"
    if explanation.get("version"):
        yield "version", explanation["version"]
    if explanation.get("operation"):
        operation = explanation["operation"]
        exists = "exists" if operation["exists"] else "does not exist"
        text = f"{operation['method']} {operation['path']} {exists} at this version: {operation['versions']}"
        yield "operation", text
    for line in explanation.get("sends") or ():
        yield "sends", line
    response = explanation.get("response")
    if response:
        for name, value in response["headers"]:
            yield "response", f"{name}: {value}"
        yield "response", response["body"]


def _candidate(candidate: Mapping[str, Any]) -> list[TableCell]:
    legacy = " (legacy)" if candidate["legacy"] else ""
    tried = "first" if candidate["tier"] == 1 else f"after tier {candidate['tier'] - 1}"
    return [
        candidate["backend"],
        tried,
        candidate["freshness"],
        f"{candidate['serves']}{legacy}",
        str(candidate["in_flight"]),
        candidate["url"],
        candidate["why"],
    ]


def _left_out(exclusion: Mapping[str, Any]) -> list[TableCell]:
    return [exclusion["backend"], exclusion["freshness"], exclusion["serves"], exclusion["why"]]


def _header(text: str) -> Header:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or "\n" in text or "\r" in text:
        raise argparse.ArgumentTypeError("must be 'Name: value'")
    return name.strip(), value.strip()


def _method(text: str) -> str:
    if not METHOD.fullmatch(text):
        raise argparse.ArgumentTypeError("must be a method, such as GET")
    return method_of_text(text)


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError("must begin with /")
    return text
