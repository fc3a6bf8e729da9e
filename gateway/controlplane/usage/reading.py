# ruff: noqa: S608 - these statements are made of constants
"""Reads databases of usage: that of the running gateway, or files without one, which are added up.

    database  ->  read_record  ->  UsageRecord
    files     ->  read_files   ->  UsageRecord, the sum

Blocks. A run that has not ended, or not in order, is a gap of the record.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from time import time
from typing import Any, Final

from gateway.core.days import DAY
from gateway.core.usage.record import Count, Gap, Period, RowKey, Scope, Source, UsageRecord
from gateway.errors import SkewgateError

FORMAT: Final = 1
"""Version of the tables, as `user_version` of the database."""
CRASHED: Final = "a gateway has not ended in order, or is still running: its last requests may be missing"
"""Reason of the gap that a run leaves from its last transaction on."""

UNWRITTEN: Final = "a run of a gateway could not write its last requests"


class UsageError(SkewgateError):
    """Error: the record of usage cannot be read."""


def days_between(first: float, last: float) -> range:
    """The UTC days of two times, in any order, and those between."""
    return range(int(min(first, last) // DAY), int(max(first, last) // DAY) + 1)


def missing(days: Iterable[int], reason: str) -> list[Gap]:
    """The gaps of days on which requests of any service may be missing."""
    return [Gap(day, "", Scope.ALL, reason) for day in days]


def is_unwritten(path: Path | None) -> bool:
    """Whether the last run has left requests unwritten. It says so by the time of the file: 1970."""
    with suppress(OSError):
        return path is not None and path.stat().st_mtime == 0
    return False


def count_of(row: Sequence[Any]) -> Count:
    """The count in a row of the database."""
    *_, requests, first, last, addresses = row
    return Count(requests, first, last, tuple(addresses.split()))


def read_record(
    db: sqlite3.Connection, service: str | None, days: int | None, now: float, own: str = ""
) -> UsageRecord:
    """Read the record of the last `days` whole UTC days and of today; None: of all days. `own`: the run that
    reads, from which nothing is missing. Raises `sqlite3.Error`."""
    runs = db.execute("SELECT begins, ends, open AND run != ? FROM runs ORDER BY begins", (own,)).fetchall()
    since = int(now // DAY) - (days or 0)
    if days is None:
        (first,) = db.execute("SELECT min(day) FROM counts").fetchone()
        since = min(since, *(int(begins // DAY) for begins, *_ in runs), since if first is None else first)
    where, values = "day >= ? AND (service IN ('', ?) OR ? IS NULL)", (since, service, service)
    rows = {}
    for found in db.execute(f"SELECT * FROM counts WHERE requests != 0 AND {where}", values):
        key = RowKey(*found[1 : len(RowKey._fields) + 1])
        key = key._replace(named=bool(key.named), signed=bool(key.signed), safe=bool(key.safe))
        rows[found[0], key] = count_of(found)
    gaps = [
        Gap(day, of, Scope(scope), why)
        for day, of, scope, why in db.execute(f"SELECT * FROM gaps WHERE {where}", values)
    ]
    for _, ends, goes_on in runs:
        if goes_on:
            gaps += missing(days_between(max(ends, since * DAY), now), CRASHED)
    facts = dict(db.execute("SELECT * FROM facts WHERE name IN ('id', 'state', 'config')").fetchall())
    replicas = db.execute("SELECT id, first, last, own FROM replicas").fetchall()
    source = Source(
        replica_ids=tuple(each for each, *_, mine in replicas if mine),
        periods=tuple(Period(begins, ends) for begins, ends, _ in runs),
        replicas={each: (first, last) for each, first, last, _ in replicas},
        **facts,
    )
    return UsageRecord(since, int(now // DAY), rows, tuple(dict.fromkeys(gaps)), (source,))


def read_files(paths: Sequence[Path], service: str | None, days: int | None) -> UsageRecord:
    """Read the sum of several databases, or exports of them, at least one. Raises `UsageError`."""
    now = time()
    records = [_read_file(path, service, days, now) for path in paths]
    rows: dict[tuple[int, RowKey], Count] = {}
    sources: dict[str, Path] = {}
    for path, record in zip(paths, records, strict=True):
        if (same := sources.setdefault(record.sources[0].id, path)) is not path:
            raise UsageError(f"{same} and {path} are the same database: its requests would count twice")
        for place, count in record.rows.items():
            rows[place] = rows[place].plus(count) if place in rows else count
    return records[0]._replace(
        since=min(record.since for record in records),
        rows=rows,
        gaps=tuple(dict.fromkeys(chain.from_iterable(record.gaps for record in records))),
        sources=tuple(chain.from_iterable(record.sources for record in records)),
    )


def _read_file(path: Path, service: str | None, days: int | None, now: float) -> UsageRecord:
    # Without a log of writes (`-wal`) no process has it open. SQLite then needs no right to write beside it.
    options = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True)) as db:
            db.execute("BEGIN")
            if db.execute("PRAGMA user_version").fetchone() != (FORMAT,):
                raise UsageError(f"{path} is no database of usage, or one of another release of skewgate")
            record = read_record(db, service, days, now)
        ends = max((each.ends for each in record.sources[0].periods), default=now)
        lost = days_between(max(ends, record.since * DAY), now) if is_unwritten(path) else ()
        return record._replace(gaps=(*record.gaps, *missing(lost, UNWRITTEN)))
    except (sqlite3.Error, TypeError, ValueError) as problem:
        raise UsageError(f"{path} cannot be read as a database of usage: {problem}") from None
