# ruff: noqa: S608 - these statements are made of constants
"""The database of usage: what was reported, added up by UTC day in SQLite, in one transaction a batch.

All methods block, and belong to one thread. Two gateways may write one file, as in a take-over: each adds to
what it finds. Counts that cannot be written wait for the next transaction. What may be missing is a gap.
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
from gateway.controlplane.usage import reading
from gateway.controlplane.usage.reading import FORMAT, count_of, days_between, missing, read_record
from gateway.core.agreement.record import AgreedRecord
from gateway.core.days import DAY
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.usage.record import NO_PRODUCT, OTHER, Count, Gap, RowKey, Scope, UsageRecord, UsageReport
from gateway.core.versions.ranges import VersionSet, union
from gateway.core.versions.version import Scheme
from gateway.settings.sections.usage import UsageSettings

_KEY: Final = ("day", *RowKey._fields)
_SCHEMA: Final = f"""BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS counts ({", ".join(_KEY)}, requests, first, last, addresses,
    PRIMARY KEY ({", ".join(_KEY)})) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gaps (day, service, scope, reason, UNIQUE (day, service, scope, reason));
CREATE TABLE IF NOT EXISTS runs (run PRIMARY KEY, pid, begins, ends, open);
CREATE TABLE IF NOT EXISTS replicas (id PRIMARY KEY, first, last, own);
CREATE TABLE IF NOT EXISTS facts (name PRIMARY KEY, value);
INSERT OR IGNORE INTO facts VALUES ('id', lower(hex(randomblob(16))));
PRAGMA user_version = {FORMAT};
COMMIT;"""
_FIND: Final = f"SELECT * FROM counts WHERE {' AND '.join(f'{each} = ?' for each in _KEY)}"
_PUT: Final = f"INSERT OR REPLACE INTO counts VALUES ({', '.join('?' * (len(_KEY) + 4))})"
_REMOTE: Final = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "afs", "lustre", "gpfs", "ocfs2", "gfs2"}
"""File systems of several machines, which share no memory, as WAL needs. Those of `fuse.` are, too."""
_IDLE: Final = 600.0
"""Longest time between two runs, in seconds, in which nobody expects that requests were served."""
_PASSING: Final = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR")
"""Errors after which the next transaction tries again."""
_TOLERANCE: Final = 1.0
"""Seconds by which a clock may be set back, as small corrections do."""

_log = logging.getLogger("skewgate.usage")


@final
class Fold(NamedTuple):
    """Rule by which values of one field are counted together, as `OTHER`, on one day of a service."""

    field: str
    most: int
    """Most values that have a place of their own."""
    share: float
    """Share of the `rows` of all days from which on new rows have none."""
    scope: Scope
    reason: str


FOLDS: Final = (
    Fold("asked", 20, 1.0, Scope.VERSIONS, "versions that no backend has advertised are counted together"),
    Fold("operation", 500, 0.8, Scope.OPERATIONS, "there are too many operations: some are counted together"),
    Fold("client", 200, 1.0, Scope.CLIENTS, "there are too many clients: some are counted together"),
)


@final
class Batch(NamedTuple):
    """What one transaction adds to the database, with the state of the gateway at its time."""

    now: float
    gaps: Collection[Gap]
    snapshot: Snapshot
    records: Mapping[str, AgreedRecord]
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
        self._began = self._last = 0.0
        self._db: sqlite3.Connection | None = None
        self._counts: dict[tuple[int, RowKey], Count] = {}
        """Counts that no transaction has written yet."""
        self._gaps: set[Gap] = set()
        self._renewed = -1
        """Day on which the database was looked through; -1: not since the start or a failure."""
        self._rows = 0
        self._places: dict[tuple[int, str, str], set[str]] = {}
        """Values that have got a place of their own, by day, service and field."""
        self._advertised: dict[str, tuple[Scheme, VersionSet]] = {}
        """Versions that a backend has ever advertised to this process, by service."""
        self._saved: object = None
        self._unwritten = self._lost_before = reading.is_unwritten(path)

    def commit(self, batch: Batch, *, last: bool = False) -> bool:
        """Add a batch in one transaction; `last`: the run ends in order. Returns whether today is incomplete.
        Raises `sqlite3.Error`: then the batch is a part of the next transaction."""
        self._gather(batch)
        try:
            return self._written(batch, last=last)
        except sqlite3.DatabaseError as problem:
            if type(problem) is not sqlite3.DatabaseError:  # the base class itself stands for a damaged file
                self._flag(unwritten=True)
                raise
            self._set_aside(problem, batch.now)
            return self._written(batch, last=last)

    def read(self, service: str | None, days: int | None, now: float) -> UsageRecord:
        """Read the record, as `read_record` does. Raises `sqlite3.Error`."""
        record = read_record(self._opened(now), service, days, now, self._run)
        left = missing({day for day, _ in self._counts}, "the last requests could not be written")
        return record._replace(gaps=(*record.gaps, *self._gaps, *left))

    def export(self, now: float) -> bytes:
        """Copy the database, as if the run had ended, unless a write failed. Raises `sqlite3.Error`."""
        with closing(sqlite3.connect(":memory:")) as copy:
            self._opened(now).backup(copy)
            if not self._counts and not self._gaps:
                with copy:
                    copy.execute("UPDATE runs SET open = 0 WHERE run = ?", (self._run,))
            data = copy.serialize()
        return data[:18] + b"\1\1" + data[20:]  # one file, without WAL (file format of SQLite, 1.3.3)

    def close(self) -> None:
        """Close the database."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _gather(self, batch: Batch) -> None:
        self._began = self._began or batch.now
        if len(self._counts) > self._settings.rows:
            lost = "requests could not be written, and were given up"
            self._gaps.update(missing({day for day, _ in self._counts}, lost))
            self._counts.clear()
        for report in batch.reports:
            self._gaps.update(report.gaps)
            for place, count in report.rows.items():
                self._counts[place] = self._counts[place].plus(count) if place in self._counts else count
        self._gaps.update(batch.gaps)
        self._compare_clock(batch.now, self._last)
        if self._last and batch.now > self._last + DAY:  # days in between may have expired
            self._mark(batch.now, batch.now, "the clock was set forward")
        self._last = batch.now
        for name, view in batch.snapshot.views.items():
            found = [each.summary.advertised for each in view.members.groups if each.summary.advertised]
            _, before = self._advertised.get(name, (None, view.offer_state.versions))
            self._advertised[name] = view.service.dialect.scheme, union((before, *found))

    def _compare_clock(self, now: float, last: float) -> None:
        if now < last - _TOLERANCE:
            _log.warning("the clock was set back by %.0f s: these days of usage are incomplete", last - now)
            self._mark(now, last, "the clock was set back")

    def _mark(self, first: float, last: float, reason: str) -> None:
        self._gaps.update(missing(days_between(first, last), reason))

    def _written(self, batch: Batch, *, last: bool) -> bool:
        db, now, today = self._opened(batch.now), batch.now, int(batch.now // DAY)
        saved = batch.snapshot.saved(), batch.records, batch.config
        with db:
            db.execute("BEGIN IMMEDIATE")
            renewed, self._renewed = self._renewed, -1
            if renewed != today:
                self._renew(db, now, today)
            for (day, key), count in self._counts.items():
                self._add(db, day, key, count)
            if saved != self._saved:
                self._save(db, batch, today)
            db.executemany("INSERT OR IGNORE INTO gaps VALUES (?, ?, ?, ?)", self._gaps)
            run = (self._run, os.getpid(), self._began, now, not last)
            db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", run)
            db.executemany(
                "INSERT INTO replicas VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET last = excluded.last",
                [(each, today, today, each == batch.own) for each in batch.replicas],
            )
            incomplete = db.execute("SELECT 1 FROM gaps WHERE day = ?", (today,)).fetchone() is not None
        if renewed != today:  # a copy of the file alone shows that this run is open
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._flag(unwritten=False)
        self._saved, self._renewed = saved, today
        self._counts.clear()
        self._gaps.clear()
        return incomplete

    def _save(self, db: sqlite3.Connection, batch: Batch, today: int) -> None:
        """Write the state, and mark services whose requests may have been another service's until now."""
        views = {name: view.service for name, view in batch.snapshot.views.items()}
        reads = {f"reads {name}": repr((each.scheme_id, each.match)) for name, each in views.items()}
        known = dict(db.execute("SELECT * FROM facts WHERE name LIKE 'reads %'").fetchall())
        changed = [name for name in reads if known and known.get(name) != reads[name]]
        reason = "the service is new, or its `match` or dialect: earlier requests may be another service's"
        self._gaps |= {Gap(today, name.removeprefix("reads "), Scope.ALL, reason) for name in changed}
        state = format_state(batch.snapshot, wall_offset(), batch.records)
        facts = {**reads, "state": state, "config": batch.config}
        db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def _renew(self, db: sqlite3.Connection, now: float, today: int) -> None:
        """Look for runs that have not ended in order, and delete what is too old or has become nothing."""
        others = "open AND begins < ? AND pid IS NOT ?", (self._began, self._predecessor)
        for (ends,) in db.execute(f"SELECT ends FROM runs WHERE {others[0]}", others[1]):
            _log.warning("an earlier run has not ended in order: usage is incomplete since its last write")
            self._mark(ends, now, "a gateway has not ended in order: its last requests may be missing")
        db.execute(f"UPDATE runs SET open = 0 WHERE {others[0]}", others[1])
        latest = db.execute("SELECT max(ends) FROM runs").fetchone()[0] or now
        self._compare_clock(now, latest)
        if self._began > latest + _IDLE:
            self._mark(
                latest, self._began, "nothing was recorded for a while: the gateway was stopped, or usage off"
            )
        if self._lost_before:
            self._mark(latest, self._began, reading.UNWRITTEN)
            self._lost_before = False
        first = today - self._settings.keep
        db.execute("DELETE FROM counts WHERE day < ? OR requests = 0", (first,))
        db.execute("DELETE FROM gaps WHERE day < ?", (first,))
        db.execute("DELETE FROM replicas WHERE last < ?", (first,))
        db.execute("DELETE FROM runs WHERE ends < ? AND NOT open", (first * DAY,))
        db.execute("UPDATE runs SET begins = max(begins, ?)", (first * DAY,))
        self._began = max(self._began, first * DAY)
        self._rows = db.execute("SELECT count(*) FROM counts").fetchone()[0]
        self._places = {}

    def _add(self, db: sqlite3.Connection, day: int, key: RowKey, count: Count) -> None:
        """Add the count of a row; a new row is counted together with others where it has no place."""
        before = _find(db, day, key)
        for fold in FOLDS:
            if before is None and not self._has_place(day, key, fold):
                # A version that no backend has is refused, unless another one is served in its place.
                scope = Scope.CLIENTS if fold.field == "asked" and key.version else fold.scope
                self._gaps.add(Gap(day, key.service, scope, fold.reason))
                key = RowKey(**{**key._asdict(), fold.field: OTHER})
                before = _find(db, day, key)
        self._rows += before is None
        total = count if before is None else before.plus(count)
        db.execute(_PUT, (day, *key, *total[:3], " ".join(total.addresses)))

    def _has_place(self, day: int, key: RowKey, fold: Fold) -> bool:
        """Whether a new row may have its own value in a field."""
        value: str = getattr(key, fold.field)
        if value in {"", OTHER, NO_PRODUCT} or (fold.field == "client" and key.named):
            return True
        if fold.field == "asked" and key.service in self._advertised:
            scheme, advertised = self._advertised[key.service]
            if (version := scheme.parse(value)) is not None and version in advertised:
                return True
        places = self._places.setdefault((day, key.service, fold.field), set())
        if self._rows >= fold.share * self._settings.rows or len(places | {value}) > fold.most:
            return False
        places.add(value)
        return True

    def _opened(self, now: float) -> sqlite3.Connection:
        """The open database. Memory takes the place of a file that cannot be used; a damaged one is moved."""
        while self._db is None:
            try:
                self._db = _connect(self._path)
            except (OSError, sqlite3.OperationalError) as problem:
                if getattr(problem, "sqlite_errorname", "").startswith(_PASSING):
                    raise
                _log.warning("%s cannot be used, so usage is kept in memory: %s", self._path, problem)
                self._flag(unwritten=True)
                self._path = None
            except sqlite3.DatabaseError as problem:
                self._set_aside(problem, now)
        return self._db

    def _flag(self, *, unwritten: bool) -> None:
        """Say by the time of the file, for the next run, that counts are not written. It needs no room."""
        if unwritten is not self._unwritten and self._path is not None:
            self._unwritten = unwritten
            with suppress(OSError):
                os.utime(self._path, (0, 0) if unwritten else None)

    def _set_aside(self, problem: sqlite3.Error, now: float) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{self._path}{suffix}").replace(f"{self._path}.damaged{suffix}")
        path = self._path
        _log.error("%s was damaged and moved to %s.damaged, usage begins anew: %s", path, path, problem)
        self._mark(now, now, "the database was damaged, and begins anew")
        self._began, self._saved = now, None


def _find(db: sqlite3.Connection, day: int, key: RowKey) -> Count | None:
    found = db.execute(_FIND, (day, *key)).fetchone()
    return None if found is None else count_of(found)


def _connect(path: Path | None) -> sqlite3.Connection:
    """Open a database. Raises `OSError` or `sqlite3.Error`; `DatabaseError` itself: it is damaged."""
    if path is not None:
        if not path.is_file():
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        if (kind := _file_system(path)) in _REMOTE or kind.startswith("fuse."):
            raise OSError(f"it is on a remote file system, {kind}")
    db = sqlite3.connect(path or ":memory:", isolation_level=None)
    try:
        mode, found, well = (
            db.execute(f"PRAGMA {each}").fetchone()[0]
            for each in ("journal_mode = WAL", "user_version", "quick_check(1)")
        )
        if mode not in {"wal", "memory"}:
            raise OSError("its file system does not allow write-ahead logging")
        if found not in {0, FORMAT} or well != "ok":
            raise sqlite3.DatabaseError(f"{well}, format {found}")
        db.executescript(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


def _file_system(path: Path) -> str:
    """Kind of the file system of a path; empty: not known."""
    with suppress(OSError):
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        mounts = [(line.split()[4], line.partition(" - ")[2].split()[0]) for line in lines]
        return max(each for each in mounts if path.is_relative_to(each[0]))[1]
    return ""
