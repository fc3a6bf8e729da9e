# ruff: noqa: S608 - the names in these statements are of RowKey and FOLDS
"""The database of usage: sums of the workers' reports by UTC day, in SQLite, written by one thread.

    Batch  ->  counts, gaps  ->  one transaction  ->  file, or memory

All methods block, and belong to one thread. Two gateways may write one file, as in a take-over: each adds to
what it finds. A run that has not ended in order is found by its open row. Counts that could not be written
wait for the next transaction.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple, final
from uuid import uuid4

from gateway.controlplane.state.keeper import wall_offset
from gateway.controlplane.state.text import format_state
from gateway.controlplane.usage.reading import CRASHED, DAY, FORMAT, days_between, read_record
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.core.usage.record import NO_PRODUCT, OTHER, Count, Gap, RowKey, Scope, UsageRecord, UsageReport
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet, union
from gateway.settings.sections.usage import UsageSettings

_COLUMNS: Final = ", ".join(("day", *RowKey._fields))
_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS counts ({_COLUMNS}, requests, first, last, addresses,
    PRIMARY KEY ({_COLUMNS})) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gaps (day, service, scope, reason,
    PRIMARY KEY (day, service, scope, reason)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs (run PRIMARY KEY, pid, begins, ends, open) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS replicas (id PRIMARY KEY, first, last, own) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name PRIMARY KEY, value) WITHOUT ROWID;
PRAGMA user_version = {FORMAT};
COMMIT;
"""
_THIS: Final = "day = ? AND " + " AND ".join(f"{name} = ?" for name in RowKey._fields)
_REMOTE: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "afs", "lustre", "gpfs", "ocfs2", "gfs2"}
"""File systems of several machines, which do not share the memory that WAL needs; `fuse.` ones are, too."""
_TOLERANCE: Final = 1.0
"""Seconds by which a clock may step back, as small corrections do."""

_log = logging.getLogger("skewgate.usage")


@final
class Fold(NamedTuple):
    """Rule by which values of one field are counted together, as `OTHER`, on one day of a service."""

    field: str
    most: int
    """Most values that have a place of their own."""
    share: float
    """Share of the `rows` of all days from which on new rows get `OTHER`, too."""
    scope: Scope
    reason: str


FOLDS: Final = (
    Fold("asked", 20, 1.0, Scope.OPERATIONS, "versions that no backend has advertised are counted together"),
    Fold("operation", 500, 0.8, Scope.OPERATIONS, "operations are counted together: there are too many"),
    Fold("client", 200, 1.0, Scope.CLIENTS, "clients are counted together: there are too many"),
)


@final
class Batch(NamedTuple):
    """What one transaction adds to the database, with the state of the gateway at its time."""

    now: float
    gaps: Collection[Gap]
    snapshot: Snapshot
    records: Mapping[str, AgreedRecord]
    """Agreed records, by service, that the state is written with."""
    config: str
    """Hash of the configuration in force."""
    replicas: Collection[str] = ()
    """Ids of all replicas that are registered; empty: there are none."""
    own: str = ""
    reports: Collection[UsageReport] = ()


@final
class Database:
    """The database at `path`; None: in memory. `predecessor`: process of the gateway that is taken over."""

    def __init__(self, path: Path | None, settings: UsageSettings, predecessor: int | None = None) -> None:
        self._path = path
        self._settings = settings
        self._predecessor = predecessor
        self._run = uuid4().hex
        self._db: sqlite3.Connection | None = None
        self._counts: dict[tuple[int, RowKey], Count] = {}
        """Counts that no transaction has written yet."""
        self._gaps: set[Gap] = set()
        self._last = 0.0
        """Latest time of the clock so far."""
        self._expired = -1
        """Day on which expired days were deleted last."""
        self._rows = 0
        self._values: dict[tuple[int, str, str], set[str]] = {}
        """Values that have a place of their own, by day, service and field."""
        self._advertised: dict[str, VersionSet] = {}
        """Versions that a backend has ever advertised, by service, as far as this process knows."""
        self._views: Mapping[str, ServiceView] = {}
        self._saved: object = None

    def commit(self, batch: Batch, *, last: bool = False) -> bool:
        """Add a batch in one transaction; `last`: the run ends in order. Returns whether the day is
        incomplete. Raises `sqlite3.Error`; the batch is then a part of the next transaction."""
        self._gather(batch)
        try:
            return self._written(batch, last=last)
        except sqlite3.DatabaseError as problem:
            self._rows, self._values, self._expired = 0, {}, -1
            if type(problem) is not sqlite3.DatabaseError or self._path is None:
                raise
            self._set_aside(self._path, problem, batch.now)
            return self._written(batch, last=last)

    def read(self, service: str | None, days: int | None, now: float) -> UsageRecord:
        """Read the record, as `read_record` does. Raises `sqlite3.Error`."""
        record = read_record(self._opened(now), service, days, now, self._run)
        unwritten = {
            Gap(day, "", Scope.ALL, "the last requests could not be written") for day, _ in self._counts
        }
        return record._replace(gaps=(*record.gaps, *self._gaps, *unwritten))

    def export(self, now: float) -> bytes:
        """Copy the database, as if the run had ended in order. Raises `sqlite3.Error`."""
        with closing(sqlite3.connect(":memory:")) as copy:
            self._opened(now).backup(copy)
            copy.execute("UPDATE runs SET open = 0 WHERE run = ?", (self._run,))
            copy.commit()
            data = copy.serialize()
        # The copy is one file without a log of writes: bytes 18 and 19 say so (format of SQLite, 1.3.3).
        return data[:18] + b"\1\1" + data[20:]

    def close(self) -> None:
        """Close the database."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _gather(self, batch: Batch) -> None:
        for report in batch.reports:
            self._gaps.update(report.gaps)
            for place, count in report.rows.items():
                before = self._counts.get(place)
                self._counts[place] = count if before is None else before.plus(count)
        self._gaps.update(batch.gaps)
        if len(self._counts) > self._settings.rows:
            days = {day for day, _ in self._counts}
            self._gaps |= {
                Gap(day, "", Scope.ALL, "requests could not be written, and were lost") for day in days
            }
            self._counts.clear()
        if batch.now < self._last - _TOLERANCE:
            _log.warning(
                "the clock was set back by %.0f s: usage of these days is incomplete", self._last - batch.now
            )
            self._mark(batch.now, self._last, "the clock was set back")
        self._last, self._views = batch.now, batch.snapshot.views
        for name, view in batch.snapshot.views.items():
            found = [group.summary.advertised or NO_VERSIONS for group in view.members.groups]
            self._advertised[name] = union((self._advertised.get(name, view.offer_state.versions), *found))

    def _mark(self, first: float, last: float, reason: str) -> None:
        """Mark the days between two times as incomplete, as far as they are kept."""
        days = days_between(first, last)[-self._settings.keep - 1 :]
        self._gaps |= {Gap(day, "", Scope.ALL, reason) for day in days}

    def _written(self, batch: Batch, *, last: bool) -> bool:
        db, today = self._opened(batch.now), int(batch.now // DAY)
        with db:
            db.execute("BEGIN IMMEDIATE")
            if self._expired != today:
                self._expire(db, today)
            for (day, key), count in self._counts.items():
                self._add(db, day, key, count)
            db.executemany("INSERT OR IGNORE INTO gaps VALUES (?, ?, ?, ?)", self._gaps)
            db.execute("UPDATE runs SET ends = ?, open = ? WHERE run = ?", (batch.now, not last, self._run))
            db.executemany(
                "INSERT INTO replicas VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET last = excluded.last",
                [(each, today, today, each == batch.own) for each in batch.replicas],
            )
            saved = batch.snapshot.saved(), batch.records, batch.config
            if saved != self._saved:
                state = format_state(batch.snapshot, wall_offset(), batch.records)
                facts = ("state", state), ("config", batch.config)
                db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)
            incomplete = db.execute("SELECT 1 FROM gaps WHERE day = ?", (today,)).fetchone() is not None
        self._saved = saved
        self._counts.clear()
        self._gaps.clear()
        return incomplete

    def _add(self, db: sqlite3.Connection, day: int, key: RowKey, count: Count) -> None:
        """Add the count of one row, in the row of others where a bound is reached."""
        before = self._count(db, day, key)
        for fold in FOLDS:
            if before is None and not self._has_place(db, day, key, fold):
                # A version that nobody serves is refused: clients that are served are still told apart.
                scope = Scope.CLIENTS if fold.field == "asked" and key.version else fold.scope
                self._gaps.add(Gap(day, key.service, scope, fold.reason))
                key = RowKey(**{**key._asdict(), fold.field: OTHER})
                before = self._count(db, day, key)
        self._rows += before is None
        total = count if before is None else before.plus(count)
        values = (day, *key, total.requests, total.first, total.last, " ".join(total.addresses))
        db.execute(f"INSERT OR REPLACE INTO counts VALUES ({', '.join('?' * len(values))})", values)

    def _count(self, db: sqlite3.Connection, day: int, key: RowKey) -> Count | None:
        found = db.execute(f"SELECT requests, first, last, addresses FROM counts WHERE {_THIS}", (day, *key))
        for requests, first, last, addresses in found:
            return Count(requests, first, last, tuple(addresses.split()))
        return None

    def _has_place(self, db: sqlite3.Connection, day: int, key: RowKey, fold: Fold) -> bool:
        """Whether a new row may have its own value in a field."""
        field, service, value = fold.field, key.service, getattr(key, fold.field)
        if not self._is_bounded(service, field, value, named=key.named):
            return True
        values = self._values.get((day, service, field))
        if values is None:
            there = f"SELECT DISTINCT {field}, named FROM counts WHERE day = ? AND service = ?"
            values = self._values[day, service, field] = {
                other
                for other, named in db.execute(there, (day, service))
                if self._is_bounded(service, field, other, named=named)
            }
        if self._rows >= fold.share * self._settings.rows or len(values | {value}) > fold.most:
            return False
        values.add(value)
        return True

    def _is_bounded(self, service: str, field: str, value: str, *, named: bool) -> bool:
        if field == "client" and named:
            return False
        if field == "asked" and service in self._views:
            version = self._views[service].service.dialect.scheme.parse(value)
            return bool(value) and (version is None or version not in self._advertised[service])
        return value not in {"", OTHER, NO_PRODUCT}

    def _expire(self, db: sqlite3.Connection, today: int) -> None:
        """Delete what is older than `keep` days, or has become nothing."""
        first = today - self._settings.keep
        db.execute("DELETE FROM counts WHERE day < ? OR requests = 0", (first,))
        db.execute("DELETE FROM gaps WHERE day < ?", (first,))
        db.execute("DELETE FROM replicas WHERE last < ?", (first,))
        db.execute("DELETE FROM runs WHERE ends < ? AND NOT open", (first * DAY,))
        db.execute("UPDATE runs SET begins = max(begins, ?)", (first * DAY,))
        (self._rows,) = db.execute("SELECT count(*) FROM counts").fetchone()
        self._values, self._expired = {}, today

    def _opened(self, now: float) -> sqlite3.Connection:
        """The open database. A file that cannot be used is replaced by memory, a damaged one is set aside."""
        if self._db is None and self._path is not None:
            try:
                self._db = self._open(_file(self._path), now)
            except (OSError, sqlite3.OperationalError) as problem:
                _log.warning("%s cannot be used, usage is kept in memory: %s", self._path, problem)
                self._path = None
            except sqlite3.DatabaseError as problem:
                self._set_aside(self._path, problem, now)
                return self._opened(now)
        if self._db is None:
            self._db = self._open(":memory:", now)
        return self._db

    def _open(self, name: str, now: float) -> sqlite3.Connection:
        """Open a database, and begin a run in it. Raises `sqlite3.Error`."""
        db = sqlite3.connect(name, isolation_level=None)
        try:
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode not in {"wal", "memory"}:
                raise sqlite3.OperationalError("its file system does not allow write-ahead logging")
            (found,), (well,) = (
                db.execute(f"PRAGMA {of}").fetchone() for of in ("user_version", "quick_check(1)")
            )
            if found not in {0, FORMAT} or well != "ok":
                raise sqlite3.DatabaseError(f"it is damaged, or of another release: {well}, format {found}")
            db.execute("PRAGMA synchronous = NORMAL")
            db.executescript(_SCHEMA)
            with db:
                db.execute("BEGIN IMMEDIATE")
                self._begin(db, now)
        except BaseException:
            db.close()
            raise
        return db

    def _begin(self, db: sqlite3.Connection, now: float) -> None:
        db.execute("INSERT OR IGNORE INTO facts VALUES ('id', ?)", (uuid4().hex,))
        crashed = "open AND run IS NOT ? AND pid IS NOT ?", (self._run, self._predecessor)
        for (ends,) in db.execute(f"SELECT ends FROM runs WHERE {crashed[0]}", crashed[1]).fetchall():
            self._mark(ends, now, CRASHED)
            _log.warning("the last run has not ended in order: usage is incomplete from its last write on")
        db.execute(f"UPDATE runs SET open = 0 WHERE {crashed[0]}", crashed[1])
        (latest,) = db.execute("SELECT max(ends) FROM runs").fetchone()
        self._last = max(self._last, latest or 0.0)
        db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, 1)", (self._run, os.getpid(), now, now))

    def _set_aside(self, path: Path, problem: sqlite3.Error, now: float) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{path}{suffix}").replace(f"{path}.damaged{suffix}")
        _log.error("%s is damaged and was moved to %s.damaged, usage begins anew: %s", path, path, problem)
        self._mark(now, now, f"the database was damaged, and set aside as {path.name}.damaged")


def _file(path: Path) -> str:
    """Create the file, for this user alone. Raises `OSError`, also if several machines may share it."""
    kind = _file_system(path.parent)
    if kind in _REMOTE or kind.startswith("fuse."):
        raise OSError(f"it is on a remote file system ({kind})")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return str(path)


def _file_system(folder: Path) -> str:
    """Kind of file system that a folder is on; empty: not known."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    mounts = [(line.split()[4], line.partition(" - ")[2].split()[0]) for line in lines]
    return max((each for each in mounts if folder.is_relative_to(each[0])), default=("", ""))[1]
