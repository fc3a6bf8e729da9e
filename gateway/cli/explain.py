"""`skewgate explain METHOD PATH`: what would happen to a request, and why.

A running gateway explains; with `--offline` the command probes the backends of the file once and explains
itself. The request is never sent. All reasons are written by `core.decision.explanation`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final

import click

from gateway.cli import admin_client
from gateway.cli.admin_client import AdminOptions
from gateway.cli.command import find_config, header_line, output_option, read_settings, usage_error, verb
from gateway.core.http.message import METHOD, Header, method_of_text
from gateway.runtime.terminal import Paint, Style, TableCell, plain, span, table

CANDIDATE_COLUMNS: Final = ("BACKEND", "TRIED", "FRESHNESS", "SERVES", "IN FLIGHT", "URL", "WHY")
LEFT_OUT_COLUMNS: Final = ("BACKEND", "FRESHNESS", "SERVES", "WHY NOT")


def _method(text: str) -> str:
    if not METHOD.fullmatch(text):
        raise ValueError("must be a method, such as GET")
    return method_of_text(text)


def _address(text: str) -> str:
    return str(ip_address(text))


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("must start with /")
    return text


@verb("explain", "PATH may have a query. The request is not sent.")
@admin_client.options
@click.option(
    "--offline", is_flag=True, help="decide without a gateway: probe the backends of the configuration once"
)
@click.option(
    "-H",
    "--header",
    multiple=True,
    type=header_line,
    metavar="'Name: value'",
    help="header of the request",
)
@click.option(
    "--from", "address", type=_address, metavar="ADDRESS", help="address of the client, for its name"
)
@output_option
@click.argument("method", metavar="METHOD", type=_method)
@click.argument("path", metavar="PATH", type=_path)
def explain(
    *,
    where: AdminOptions,
    offline: bool,
    header: Sequence[Header],
    address: str | None,
    output: str,
    method: str,
    path: str,
) -> int:
    """Print what would happen to a request, and why. Raises `AdminError` or `SettingsError`."""
    if offline:
        source, explanation = _offline(where, method, path, header, address or "")
    else:
        admin = admin_client.find(where)
        source = admin.url
        explanation = admin.explain(method, path, header, address or "")
    shown = admin_client.formatted(source, lambda: "\n".join(_lines(explanation, Paint(sys.stdout))))
    print(json.dumps(explanation) if output == "json" else shown)
    return 0


def _offline(
    where: AdminOptions, method: str, path: str, headers: Sequence[Header], address: str
) -> tuple[str, dict[str, Any]]:
    """Return the configuration file's name, and the explanation made without a gateway."""
    if where.admin is not None:
        usage_error("--admin is not allowed with --offline")
    file = find_config(where.config)
    from gateway.cli.offline import explain_offline  # noqa: PLC0415
    from gateway.runtime import process  # noqa: PLC0415 - a running gateway explains without all that

    explanation = explain_offline(read_settings(file), method, path, headers, address)
    return str(file), process.run_in_loop(explanation)


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
        keys = ("backend", "freshness", "serves", "why")
        yield table(LEFT_OUT_COLUMNS, [[exclusion[key] for key in keys] for exclusion in left_out], paint)


def _facts(explanation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return labels and texts of an explanation's facts, in the order in which the gateway finds them."""
    if explanation.get("client_name"):
        yield "client", explanation["client_name"]
    if explanation.get("service"):
        yield "service", f"{explanation['service']} ({explanation['dialect']})"
    if route := explanation.get("route"):
        stays = "" if route["strip_prefix"] or route["path"] == "/" else ", not stripped"
        yield "route", f"host {route['host'] or 'any'}, path {route['path']}{stays}"
    if explanation.get("endpoint"):
        yield "endpoint", f"{explanation['endpoint']['name']}, path in the API {explanation['local_path']}"
    if requested := explanation.get("requested"):
        yield "requested", requested["kind"] + (f", {requested['text']!r}" if requested["text"] else "")
    if offer := explanation.get("offer"):
        ends = span(offer["min"], offer["max"])
        ceiling = f", ceiling {offer['ceiling']}" if offer["ceiling"] else ""
        by = f" by its sunset of {offer['floor_sunset']}" if offer.get("floor_sunset") else ""
        floor = f", floor {offer['floor']}{by}" if offer.get("floor") else ""
        yield "offer", f"{ends} ({offer['policy']}{ceiling}{floor}), phase {offer['phase']}"
    if explanation.get("version"):
        yield "version", explanation.get("bridged") or explanation["version"]
    yield from (("announces", ": ".join(header)) for header in explanation.get("announces") or ())
    if operation := explanation.get("operation"):
        exists = "exists" if operation["exists"] else "does not exist"
        text = f"{operation['method']} {operation['path']} {exists} at this version: {operation['versions']}"
        yield "operation", text
    for line in explanation.get("sends") or ():
        yield "sends", line
    if response := explanation.get("response"):
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
