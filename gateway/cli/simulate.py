"""`skewgate simulate SERVICE`: which recorded requests a change would refuse, or execute at another version.

A running gateway answers. With `--db` or `--config` the same function (`core.usage.what_if.answer`) answers
here, from databases or a copy of the gateway's. The command formats the answer and leaves out clients that
somebody has spoken to.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import gmtime, strftime
from typing import Any, Final, TextIO

import click

from gateway.cli import admin_client, known_names
from gateway.cli.admin_client import AdminOptions
from gateway.cli.command import file_option, find_config, output_option, usage_error, verb
from gateway.cli.usage import db_option, exported, shown_client, since_option
from gateway.core.usage.record import OTHER
from gateway.core.usage.summary import Question, QuestionError, asked_for
from gateway.runtime.terminal import Paint, Style, TableCell, plain, table

NOBODY, SOMEBODY, AS_FAR_AS_KNOWN = 0, 3, 4
COLUMNS: Final = ("CLIENT", "ASKED FOR", "NOW", "THEN", "REQUESTS", "LAST SEEN")
_WIDEST: Final = 23
_OTHER: Final = f"({OTHER})"
_UNBROKEN: Final = "\xa0"
"""Blank inside an operation, at which no line ends."""
_THEN: Final = {"unavailable": "503", "removed": "404", "transparent": "any version"}
"""What requests get that are executed at no version that is known, by the result of the judgement."""


@verb(
    "simulate",
    "Exit code 0: nobody is affected. 3: somebody is. 4: nobody as far as is known, because requests may be "
    "missing or cannot be judged.\n\nWith --db or --config, -c FILE is the configuration that the gateway "
    "runs with. Give the databases of all replicas.",
)
@partial(admin_client.options, config=("-c", "config"))
@click.option("--min", metavar="V", help="lowest version on offer after the change")
@click.option("--max", metavar="V", help="highest version on offer after the change")
@click.option("--remove-backend", metavar="BACKEND", help="backend that is removed")
@file_option("--config", "candidate", text="configuration to reload")
@since_option
@click.option(
    "--ack",
    metavar="FILE",
    type=click.File(encoding="utf-8", errors="replace"),
    help="clients, one a line as they are shown, that do not count",
)
@db_option
@output_option
@click.argument("service", metavar="SERVICE", shell_complete=known_names.services)
def simulate(
    *,
    where: AdminOptions,
    service: str,
    since: str | None,
    candidate: Path | None,
    ack: TextIO | None,
    db: Sequence[Path],
    output: str,
    **changes: str | None,
) -> int:
    """Print who is affected by a change. Raises `SkewgateError`."""
    change = {name: value for name, value in changes.items() if value is not None}
    if len(change) + (candidate is not None) != 1:
        usage_error("give one of --min, --max, --remove-backend and --config")
    if db and where.admin is not None:
        usage_error("--admin is not allowed with --db")
    try:
        question = Question(service, since)
        question.days()
    except QuestionError as problem:
        usage_error(str(problem))
    source, found = _answer(where, db, question, change, candidate)
    clients = {line.partition("#")[0].strip() for line in ack or ()}
    page = admin_client.formatted(source, lambda: "\n".join(page_lines(found, clients, Paint(sys.stdout))))
    print(json.dumps(found) if output == "json" else page)
    return exit_code(found, clients)


def _answer(
    where: AdminOptions,
    db: Sequence[Path],
    question: Question,
    change: Mapping[str, str],
    candidate: Path | None,
) -> tuple[str, dict[str, Any]]:
    """Return where the answer is from, and the answer. Raises `SkewgateError`."""
    if candidate is None and not db:
        admin = admin_client.find(where)
        query = [("service", question.service), ("since", question.since), *change.items()]
        return admin.url, admin.document("/simulate", query)
    from gateway.cli.offline import answer_offline  # noqa: PLC0415 - a running gateway answers without it

    with NamedTemporaryFile() as copy:
        if not db:
            copy.write(exported(admin_client.find(where)))
            copy.flush()
        databases = db or [Path(copy.name)]
        return "databases", answer_offline(databases, find_config(where.config), question, change, candidate)


def exit_code(found: Mapping[str, Any], acknowledged: Collection[str]) -> int:
    """Return the exit code of an answer if these clients do not count. `other` may be several clients."""
    clients = {shown_client(one) for one in found["affected"]}
    if clients - set(acknowledged):
        return SOMEBODY
    unknown = found["incomplete"] or (_OTHER in clients and found["incomplete_by_client"])
    return AS_FAR_AS_KNOWN if unknown else NOBODY


def page_lines(found: Mapping[str, Any], acknowledged: Collection[str], paint: Paint) -> Iterator[str]:
    """Return the lines of the page for an answer, at most 80 columns wide."""
    affected, reasons = found["affected"], list(found["incomplete"])
    yield f"{plain(found['service'])}, {found['first_day']} to {found['last_day']} (UTC)"
    offers = f"offer {found['offer_before']}, then {found['offer_after']}"
    yield textwrap.fill(offers, 80, subsequent_indent="  ")
    header, *lines = table(COLUMNS, [_row(one, acknowledged) for one in affected], paint).splitlines()
    if affected:
        yield f"\n{header}"
    for line, one in zip(lines, affected, strict=True):
        yield line
        operations = (f"{plain(name)} ({number})" for name, number in one["operations"].items())
        text = ", ".join(each.replace(" ", _UNBROKEN) for each in operations)
        filled = textwrap.fill(text, 80, initial_indent="  ", subsequent_indent="  ", max_lines=3)
        yield filled.replace(_UNBROKEN, " ")
    if _OTHER in acknowledged:
        reasons += found["incomplete_by_client"]
    if reasons:
        yield paint("\nNOT CERTAIN: requests may be missing, or cannot be judged", Style.RED)
    for reason in reasons:
        yield textwrap.fill(plain(reason), 80, initial_indent="  ", subsequent_indent="    ")
    counted = [one for one in affected if shown_client(one) not in acknowledged]
    refused, all_affected = (
        sum(one["requests"] for one in counted if every or not one["then"]) for every in (False, True)
    )
    clients = len({shown_client(one) for one in counted})
    result = (
        f"{clients} client{'s' * (clients > 1)} affected: {refused} request{'s' * (refused != 1)} refused, "
    )
    result += f"{all_affected - refused} moved to another version"
    nobody = f"nobody{' else' * bool(affected)} is affected{', as far as is known' * bool(reasons)}"
    yield f"\n{result if counted else nobody}"


def _row(one: Mapping[str, Any], acknowledged: Collection[str]) -> list[TableCell]:
    client = plain(shown_client(one))
    if shown_client(one) in acknowledged:
        client = f"[ack] {client}"
    return [
        client if len(client) <= _WIDEST else f"{client[: _WIDEST - 1]}…",
        asked_for({**one, "versions": [one["asked"]] * bool(one["asked"])}),
        one["now"] or _THEN["transparent"],
        (one["then"] or _THEN.get(one["result"], "refused"), Style.YELLOW),
        f"{one['requests']:>8}",
        strftime("%d %b", gmtime(one["last"])),
    ]
