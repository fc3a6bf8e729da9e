# ruff: noqa: S608 - the text in these statements is this file's
"""Reads databases of usage: that of the running gateway, or files without a gateway, which are added up.

    database  ->  read_record  ->  UsageRecord
    files     ->  read_files   ->  UsageRecord, the sum

Blocks. Whatever may be missing is a gap of the record: an open run has not ended in order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from time import time
from typing import Final

from gateway.core.usage.record import Count, Gap, Period, RowKey, Scope, Source, UsageRecord
from gateway.errors import SkewgateError

FORMAT: Final = 1
"""Version of the tables, as `user_version` of the database."""
DAY: Final = 86_400
"""Seconds of a UTC day."""
CRASHED: Final = "the gateway has not ended in order, so its last requests may be missing"
"""Reason of the gap that a run leaves which has not ended in order, or which goes on."""


class UsageError(SkewgateError):
    """Error: a database of usage cannot be read."""


def days_between(first: float, last: float) -> range:
    """The UTC days that two times, in any order, lie in, and those between."""
    return range(int(min(first, last) // DAY), int(max(first, last) // DAY) + 1)


def read_record(
    db: sqlite3.Connection, service: str | None, days: int | None, now: float, own: str = ""
) -> UsageRecord:
    """Read the record of the last `days` whole UTC days and of today; None: of all days. `own`: the run that
    reads, whose last requests are not missing. Raises `sqlite3.Error`."""
    runs = db.execute(
        "SELECT begins, ends, open AND run IS NOT ? FROM runs ORDER BY begins", (own,)
    ).fetchall()
    today = int(now // DAY)
    since = int(min((begins for begins, *_ in runs), default=now) // DAY) if days is None else today - days
    of_service = "day >= ? AND (service = ? OR ? IS NULL)", (since, service, service)
    rows: dict[tuple[int, RowKey], Count] = {}
    for day, *values in db.execute(
        f"SELECT * FROM counts WHERE requests > 0 AND {of_service[0]}", of_service[1]
    ):
        requests, first, last, addresses = values[len(RowKey._fields) :]
        key = RowKey(*values[: len(RowKey._fields)])
        key = key._replace(named=bool(key.named), signed=bool(key.signed), safe=bool(key.safe))
        rows[day, key] = Count(requests, first, last, tuple(addresses.split()))
    found = db.execute(
        f"SELECT * FROM gaps WHERE service = '' AND day >= {since} OR {of_service[0]}", of_service[1]
    )
    gaps = [Gap(day, of, Scope(scope), reason) for day, of, scope, reason in found]
    gaps += [
        Gap(day, "", Scope.ALL, CRASHED)
        for _, ends, missing in runs
        for day in (days_between(ends, now) if missing else ())
        if day >= since
    ]
    facts = dict(db.execute("SELECT name, value FROM facts").fetchall())
    replicas = db.execute("SELECT id, first, last, own FROM replicas").fetchall()
    source = Source(
        id=facts["id"],
        replica_ids=tuple(each for each, *_, mine in replicas if mine),
        periods=tuple(Period(begins, ends) for begins, ends, _ in runs),
        replicas={each: (first, last) for each, first, last, _ in replicas},
        state=facts.get("state", ""),
        config=facts.get("config", ""),
    )
    return UsageRecord(since, today, rows, tuple(dict.fromkeys(gaps)), (source,))


def read_files(paths: Sequence[Path], service: str | None, days: int | None) -> UsageRecord:
    """Read the sum of several databases, or exports of them, at most one of each. Raises `UsageError`."""
    now, records = time(), []
    for path in paths:
        try:
            records.append(_read_file(path, service, days, now))
        except (sqlite3.Error, KeyError, ValueError) as problem:
            raise UsageError(f"{path} cannot be read as a database of usage: {problem}") from None
    rows: dict[tuple[int, RowKey], Count] = {}
    sources: dict[str, Path] = {}
    for path, record in zip(paths, records, strict=True):
        (source,) = record.sources
        if (same := sources.setdefault(source.id, path)) is not path:
            raise UsageError(f"{same} and {path} are the same database: its requests would count twice")
        for place, count in record.rows.items():
            rows[place] = rows[place].plus(count) if place in rows else count
    return UsageRecord(
        min(record.since for record in records),
        int(now // DAY),
        rows,
        tuple(dict.fromkeys(gap for record in records for gap in record.gaps)),
        tuple(source for record in records for source in record.sources),
    )


def _read_file(path: Path, service: str | None, days: int | None, now: float) -> UsageRecord:
    # Without a log of writes (`-wal`) no process has it open. SQLite then needs no right to write beside it.
    options = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True)) as db:
        db.execute("BEGIN")
        (found,) = db.execute("PRAGMA user_version").fetchone()
        if found != FORMAT:
            raise UsageError(f"{path} is no database of usage, or one of another release of skewgate")
        return read_record(db, service, days, now)
