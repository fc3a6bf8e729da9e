"""`skewgate usage`: who uses which version. It formats the answer of a running gateway, or with `--db` the
same answer from databases alone.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import gmtime, strftime
from typing import Any, Final

import click

from gateway.cli import admin_client, known_names
from gateway.cli.admin_client import AdminClient, AdminOptions
from gateway.cli.command import FILE_NAME, file_option, usage_error, verb
from gateway.core.usage.summary import BY, CLIENT, OPERATION, Question, QuestionError, answer, asked_for
from gateway.errors import AdminError
from gateway.runtime.terminal import Paint, Style, plain, print_error, table

WIDEST: Final = 22
"""Maximum characters of the names of clients in one cell of a table; more clients are counted."""
EXPORT_TIMEOUT: Final = 120.0
"""Seconds to wait for the copy of a database."""

db_option: Final = click.option(
    "--db", multiple=True, metavar="FILE", type=FILE_NAME, help="database to read instead; several are added"
)
since_option: Final = click.option(
    "--since", metavar="DAYS", help="whole UTC days to look back, such as 7d; default: all that is recorded"
)


@verb("usage", "With --db no gateway is asked. Give the databases of all replicas to see them together.")
@admin_client.options
@since_option
@click.option("--client", metavar="NAME", help="only requests of this client")
@click.option("--version", metavar="V", help="only requests for this version, or executed at it")
@click.option("--below", metavar="V", help="only requests for versions below this one")
@click.option("--by", type=click.Choice(BY), default=CLIENT, show_default=True, help="what the rows are")
@db_option
@file_option("--export", text="write a copy of the gateway's database, and print nothing")
@click.option(
    "-o", "--output", type=click.Choice(("text", "json", "csv")), default="text", help="output format"
)
@click.argument("service", metavar="[SERVICE]", required=False, shell_complete=known_names.services)
def usage(
    *, where: AdminOptions, db: tuple[Path, ...], export: Path | None, output: str, **given: str
) -> int:
    """Print who uses which version, or write a copy of the database. Raises `AdminError` or `UsageError`."""
    if db and (export or where.admin or where.config):
        usage_error("--db is not allowed with --export, --admin or a configuration file")
    if export is not None:
        _write_private(export, exported(admin_client.find(where)))
        return 0
    source, found = _answer(where, db, Question(**given))
    lines = _csv if output == "csv" else _lines
    text = admin_client.formatted(source, lambda: "\n".join(lines(found, Paint(sys.stdout))))
    print(json.dumps(found) if output == "json" else text)
    return 0


def _answer(where: AdminOptions, db: tuple[Path, ...], question: Question) -> tuple[str, dict[str, Any]]:
    """Return where the answer is from, and the answer. Raises `AdminError` and `UsageError`."""
    if not db:
        admin = admin_client.find(where)
        return admin.url, admin.document("/usage", question._asdict().items())
    from gateway.controlplane.usage.reading import read_files  # noqa: PLC0415 - a gateway answers without it

    try:
        record = read_files(db, question.service, question.days())
        if question.service is not None and not record.rows:
            usage_error(f"nothing is recorded about {question.service}")
        return "--db", answer(record, question)
    except QuestionError as problem:
        usage_error(str(problem))


def exported(admin: AdminClient) -> bytes:
    """Return a copy of a running gateway's database. Raises `AdminError`."""
    status, content = replace(admin, timeout=EXPORT_TIMEOUT).request("GET", "/usage/export")
    if status != 200:
        admin_client.document_of(admin.url, "/usage/export", status, content)
    return content


def _write_private(path: Path, content: bytes) -> None:
    """Write a new file that only this user may read. Raises `AdminError`, also if there is one already."""
    try:
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(content)
    except OSError as problem:
        raise AdminError(f"{path} cannot be written: {problem.strerror}") from None


def _lines(found: Mapping[str, Any], paint: Paint) -> Iterator[str]:
    rows, by = found["rows"], found["by"]
    period = f"{found['first_day']} to {found['last_day']} (UTC)"
    requests = "1 request" if found["requests"] == 1 else f"{found['requests']} requests"
    yield f"{plain(found['service'] or 'all services')}, {period}: {requests}, {found['refused']} refused"
    is_of_several = len({row["service"] for row in rows}) > 1
    addresses = [", ".join(row["addresses"]) for row in rows]
    columns: dict[str, list[str]] = {
        "SERVICE": [row["service"] for row in rows if is_of_several],
        "CLIENT": [shown_client(row) for row in rows if by == CLIENT],
        "OPERATION": [row[by] for row in rows if by == OPERATION],
        "ASKED FOR": [asked_for(row) for row in rows],
        "CLIENTS": [_clients(list(row["clients"])) for row in rows if by != CLIENT],
        "REQUESTS": [f"{row['requests']:>8}" for row in rows],
        "REFUSED": [f"{row['refused']:>7}" for row in rows if found["refused"]],
        "LAST SEEN": [strftime("%d %b %H:%M", gmtime(row["last"])) for row in rows],
        "ADDRESSES": addresses if any(addresses) else [],
    }
    if rows:
        shown = {name: cells for name, cells in columns.items() if cells}
        yield f"\n{table(list(shown), list(zip(*shown.values(), strict=True)), paint)}"
    if any(not row.get("named", True) for row in rows):
        yield "\n(client): product of the User-Agent, (none) without one; not named in `clients`"
    if found["incomplete"]:
        yield paint("\nINCOMPLETE: requests may be missing here, or be counted under `other`", Style.RED)
        for reason in found["incomplete"]:
            yield textwrap.fill(plain(reason), 80, initial_indent="  ", subsequent_indent="    ")


def shown_client(row: Mapping[str, Any]) -> str:
    """Return a client as it is shown: its name, or the product of a client without a name as `(curl)`."""
    return str(row[CLIENT] if row["named"] else f"({row[CLIENT]})")


def _clients(names: Sequence[str]) -> str:
    text = ", ".join(names)
    if len(text) <= WIDEST:
        return text
    return f"{len(names)} clients" if len(names) > 1 else f"{text[: WIDEST - 1]}…"


def _csv(found: Mapping[str, Any], _: Paint) -> Iterator[str]:
    """Format the rows as CSV. A column says whether they are complete; the reasons go to standard error."""
    for reason in found["incomplete"]:
        print_error(f"incomplete: {plain(reason)}")
    rows = [{**row, "complete": found["complete"]} for row in found["rows"]]
    writer = csv.writer(out := io.StringIO(), lineterminator="\n")
    writer.writerow(rows[0] if rows else ("service", found["by"], "complete"))
    for row in rows:
        times = {name: strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(row[name])) for name in ("first", "last")}
        writer.writerow(_cell(each) for each in {**row, **times}.values())
    yield out.getvalue().rstrip("\n")


def _cell(value: object) -> str:
    """Format a value for CSV. A spreadsheet takes some texts for formulas, and clients choose theirs."""
    text = plain(";".join(value) if isinstance(value, (list, dict)) else value)
    return text.lower() if isinstance(value, bool) else f"'{text}" if text[:1] in {*"=+-@"} else text
