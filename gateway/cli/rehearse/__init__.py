"""`skewgate rehearse SERVICE`: what clients would notice at another version, by safe requests to one server.

The configuration says how versions are written and where servers are. A running gateway says who uses what.
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TextIO

import click

from gateway.cli import admin_client, known_names
from gateway.cli.admin_client import AdminOptions
from gateway.cli.command import find_config, header_line, number, read_settings, usage_error, verb
from gateway.cli.offline import probed
from gateway.cli.rehearse.comparison import Comparison, Result
from gateway.cli.rehearse.sending import Rehearsal, read_requests
from gateway.core.fleet.backend import Member
from gateway.core.http.message import Header
from gateway.errors import AdminError, VersionTextError
from gateway.runtime import process
from gateway.runtime.terminal import Paint, Style, plain

DETAILS: Final = (
    "Sends each request to the same server at V, again at V, and at W, and prints for each operation whether "
    "the answers differ and where, without values. FILE is an access log, or has METHOD PATH on each "
    "line. Only GET, HEAD and OPTIONS are sent, with the headers that are given.\n\n"
    "Exit code 0: the same, or only additions. 1: nothing could be compared. 2: the server does not serve V "
    "or W. 3: something is changed, refused or has another status."
)
_PER_SECOND: Final = number(0.01, 1000, "/s", "a number of requests a second, such as 5/s")
_SEVERE: Final = (Result.CHANGED, Result.STATUS, Result.REFUSED)
_STYLES: Final = {"added": Style.PLAIN, "changed": Style.YELLOW, "removed": Style.RED}


@verb("rehearse", DETAILS)
@admin_client.options
@click.option("--from", "older", metavar="V", required=True, help="version that clients use now")
@click.option("--to", "newer", metavar="W", required=True, help="version to compare with it")
@click.option(
    "--requests",
    metavar="FILE",
    required=True,
    type=click.File(encoding="utf-8", errors="replace"),
    help="requests to send; - for standard input",
)
@click.option("-H", "--header", multiple=True, type=header_line, metavar="'Name: value'", help="header sent")
@click.option("--backend", metavar="BACKEND", help="server; default: the one with the newest version")
@click.option("--rate", type=_PER_SECOND, metavar="N/s", default="5/s", help="requests; default: 5/s")
@click.argument("service", metavar="SERVICE", shell_complete=known_names.services)
def rehearse(
    *,
    where: AdminOptions,
    service: str,
    older: str,
    newer: str,
    requests: TextIO,
    header: Sequence[Header],
    backend: str | None,
    rate: float,
) -> int:
    """Print what differs between two versions. Raises `SkewgateError`."""
    config = find_config(where.config)
    settings = read_settings(config)
    found = next((each for each in settings.services if each.name == service), None)
    if found is None:
        usage_error(f"{config} has no service {service!a}")
    if found.dialect.configuration_rules.path_is_signed:
        usage_error(f"clients of {service} sign their requests: nobody else can send them")
    try:
        versions = found.dialect.scheme.require(older), found.dialect.scheme.require(newer)
    except VersionTextError as problem:
        usage_error(str(problem))
    to_send = read_requests(requests, found, settings)
    snapshot = process.run_in_loop(probed(replace(settings, services=(found,))))
    member = _chosen(snapshot.views[service].members.all, backend)
    served = member.advertisement
    for version, text in zip(versions, (older, newer), strict=True):
        if served is None or served.legacy or version not in served.versions:
            usage_error(f"{member.backend.name} does not serve {text}")
    rehearsal = Rehearsal(found, member.backend, *versions, header, rate)
    comparisons = process.run_in_loop(rehearsal.comparisons(to_send))
    operations: defaultdict[str, list[Comparison]] = defaultdict(list)
    for request, comparison in zip(to_send, comparisons, strict=True):
        operations[request.operation].append(comparison)
    clients, doubt = _clients(where if where.admin else where._replace(config=config), service)
    print(plain(f"{service}: {older}, then {newer}, at {member.backend.name}"))
    print(*_lines(operations, clients, doubt, Paint(sys.stdout)), sep="\n")
    results = {each.result for each in comparisons}
    return 3 if results.intersection(_SEVERE) else 0 if results - {Result.NOT_COMPARED} else 1


def _chosen(members: Sequence[Member], name: str | None) -> Member:
    """The member with this name, or without one the one with the newest version. Raises `AdminError`."""
    known = [each.backend.name for each in members]
    if name not in {None, *known}:
        usage_error(f"there is no backend {name!a}; there are: {', '.join(known) or 'none'}")
    asked = [each for each in members if name in {None, each.backend.name}]
    newest = {
        each.advertisement.versions.highest: each
        for each in reversed(asked)
        if each.advertisement and each.advertisement.versions
    }
    if not newest:
        errors = [f"{each.backend.name}: {each.error or 'no answer'}" for each in asked]
        raise AdminError(f"no backend with known versions: {plain('; '.join(errors)) or 'none'}")
    return newest[max(newest)]


def _clients(where: AdminOptions, service: str) -> tuple[Mapping[str, Counter[str]], str]:
    """Clients of each operation, as a running gateway has recorded them, and why some may be missing."""
    clients: defaultdict[str, Counter[str]] = defaultdict(Counter)
    try:
        query = [("service", service), ("by", "operation")]
        found = admin_client.find(where).document("/usage", query)
    except AdminError as problem:
        return clients, str(problem)
    for row in found["rows"]:
        clients[row["operation"]].update(row["clients"])
    return clients, "; ".join(found["incomplete"])


def _lines(
    operations: Mapping[str, Sequence[Comparison]],
    clients: Mapping[str, Counter[str]],
    doubt: str,
    paint: Paint,
) -> Iterator[str]:
    """The operations of a report, the worst first, and how many there are of each result."""
    order = list(Result)
    worst = {name: max(order.index(each.result) for each in found) for name, found in operations.items()}
    for name, found in sorted(operations.items(), key=lambda each: (-worst[each[0]], each[0])):
        result = order[worst[name]]
        style = Style.YELLOW if result in _SEVERE else Style.PLAIN
        yield f"\n{plain(name)} ({len(found)}): {paint(result, style)}"
        for path, kind in sorted({each for one in found for each in one.differences}):
            yield f"  {paint(f'{kind:<7}', _STYLES[kind])} {path}"
        reasons = Counter(f"{each.result}: {each.why}" for each in found if each.why)
        unstable = sorted({path for each in found for path in each.unstable})
        notes = [f"{reason} ({number})" for reason, number in reasons.items()]
        notes += [f"changes by itself: {', '.join(unstable)}"] * bool(unstable)
        users = [client for client, _ in clients.get(name, Counter()).most_common()]
        notes += [f"used by {', '.join(users)}"] * bool(users)
        for note in notes:
            yield textwrap.fill(plain(note), 80, initial_indent="  ", subsequent_indent="    ")
    if doubt:
        yield "\n" + textwrap.fill(f"clients may be missing: {plain(doubt)}", 80)
    counted = Counter(worst.values())
    totals = (f"{counted[at]} {order[at]}" for at in sorted(counted, reverse=True))
    yield f"\n{', '.join(totals) or 'no request to send'}"
