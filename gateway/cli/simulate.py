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
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import gmtime, strftime
from typing import Any, Final

import click

from gateway.cli import admin_client, known_names
from gateway.cli.admin_client import AdminOptions
from gateway.cli.command import file_option, find_config, output_option, usage_error, verb
from gateway.cli.usage import db_option, exported, since_option
from gateway.core.usage.record import OTHER
from gateway.core.usage.summary import Question, QuestionError, asked_for
from gateway.errors import SettingsError
from gateway.runtime.terminal import Paint, Style, TableCell, plain, table

NOBODY, SOMEBODY, AS_FAR_AS_KNOWN = 0, 3, 4
COLUMNS: Final = ("CLIENT", "ASKED FOR", "NOW", "THEN", "REQUESTS", "LAST SEEN")
_WIDEST: Final = 23
_UNBROKEN: Final = "\xa0"
"""Blank inside an operation, at which no line ends."""
_THEN: Final = {"unavailable": "503", "maintenance": "503", "removed": "404", "transparent": "any version"}
"""What requests get that are executed at no version that is known."""


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
@file_option("--ack", text="names of clients, one a line, that are shown and do not count")
@db_option
@output_option
@click.argument("service", metavar="SERVICE", shell_complete=known_names.services)
def simulate(
    *,
    where: AdminOptions,
    service: str,
    since: str | None,
    candidate: Path | None,
    ack: Path | None,
    db: Sequence[Path],
    output: str,
    **changes: str | None,
) -> int:
    """Print who is affected by a change. Raises `SkewgateError`."""
    change = [(name, value) for name, value in changes.items() if value is not None]
    if len(change) + (candidate is not None) != 1:
        usage_error("give one of --min, --max, --remove-backend and --config")
    if db and where.admin is not None:
        usage_error("--admin is not allowed with --db")
    acknowledged = frozenset() if ack is None else _names_in(ack)
    source, found = _answer(where, db, Question(service, since), change, candidate)
    page = admin_client.formatted(source, lambda: "\n".join(_lines(found, acknowledged, Paint(sys.stdout))))
    print(json.dumps(found) if output == "json" else page)
    return exit_code(found, acknowledged)


def _answer(
    where: AdminOptions,
    db: Sequence[Path],
    question: Question,
    change: Sequence[tuple[str, str]],
    candidate: Path | None,
) -> tuple[str, dict[str, Any]]:
    """Return where the answer is from, and the answer. Raises `SkewgateError`."""
    try:
        days = question.days()
    except QuestionError as problem:
        usage_error(str(problem))
    if not db and candidate is None:
        admin = admin_client.find(where)
        query = [("service", question.service or ""), *change]
        query += [] if question.since is None else [("since", question.since)]
        return admin.url, admin_client.document_of(
            admin.url, "/simulate", *admin.request("GET", "/simulate", query)
        )
    from gateway.cli.offline import answer_offline  # noqa: PLC0415 - a running gateway answers without it

    with ExitStack() as stack:
        if not db:
            copy = stack.enter_context(NamedTemporaryFile())
            copy.write(exported(admin_client.find(where)))
            copy.flush()
            db = (Path(copy.name),)
        running = find_config(where.config)
        return str(running), answer_offline(db, running, question.service or "", days, change, candidate)


def exit_code(found: Mapping[str, Any], acknowledged: Collection[str]) -> int:
    """Return the exit code of an answer if these clients do not count. `other` may be several clients."""
    clients = {one["client"] for one in found["affected"]}
    if clients - set(acknowledged):
        return SOMEBODY
    unknown = found["incomplete"] or (OTHER in clients and found["incomplete_by_client"])
    return AS_FAR_AS_KNOWN if unknown else NOBODY


def _names_in(file: Path) -> frozenset[str]:
    """Read the names in a file, one a line; `#` begins a comment. Raises `SettingsError`."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as problem:
        raise SettingsError(
            f"{file} cannot be read: {getattr(problem, 'strerror', None) or problem}"
        ) from None
    return frozenset(filter(None, (line.partition("#")[0].strip() for line in lines)))


def _lines(found: Mapping[str, Any], acknowledged: Collection[str], paint: Paint) -> Iterator[str]:
    period = f"{found['first_day']} to {found['last_day']} (UTC)"
    yield f"{plain(found['service'])}, {period}: offer {found['offer_before']}, then {found['offer_after']}"
    rows = [_row(one, acknowledged) for one in found["affected"]]
    header, *lines = table(COLUMNS, rows, paint).splitlines()
    if rows:
        yield f"\n{header}"
    for line, one in zip(lines, found["affected"], strict=True):
        yield line
        each = (
            f"{plain(name)} ({number})".replace(" ", _UNBROKEN) for name, number in one["operations"].items()
        )
        yield textwrap.fill(
            ", ".join(each), 80, initial_indent="  ", subsequent_indent="  ", max_lines=3
        ).replace(_UNBROKEN, " ")
    reasons = [*found["incomplete"], *(found["incomplete_by_client"] if OTHER in acknowledged else ())]
    if reasons:
        yield paint("\nNOT CERTAIN: requests may be missing, or cannot be judged", Style.RED)
        for reason in reasons:
            yield textwrap.fill(plain(reason), 80, initial_indent="  ", subsequent_indent="    ")
    counted = [one for one in found["affected"] if one["client"] not in acknowledged]
    refused = sum(one["requests"] for one in counted if not one["then"])
    moved = sum(one["requests"] for one in counted) - refused
    clients = len({one["client"] for one in counted})
    text = f"{clients} client{'' if clients == 1 else 's'} affected: {refused} requests would be refused, "
    text = f"{text}{moved} executed at another version" if counted else "nobody is affected"
    yield f"\n{text}{'' if counted or not reasons else ', as far as is known'}"


def _row(one: Mapping[str, Any], acknowledged: Collection[str]) -> list[TableCell]:
    spoken_to = one["client"] in acknowledged
    client = plain(one["client"] if one["named"] else f"({one['client']})")
    client = f"[ack] {client}" if spoken_to else client
    return [
        client if len(client) <= _WIDEST else f"{client[: _WIDEST - 1]}…",
        asked_for({**one, "versions": [one["asked"]] if one["asked"] else []}),
        one["now"],
        (one["then"] or _THEN.get(one["result"], "refused"), Style.PLAIN if spoken_to else Style.YELLOW),
        f"{one['requests']:>8}",
        strftime("%d %b", gmtime(one["last"])),
    ]
