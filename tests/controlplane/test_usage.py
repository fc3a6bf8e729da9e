"""The record of usage adds up exactly what was reported, or says what may be missing from it."""

from __future__ import annotations

import logging
import resource
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.controlplane.usage import database as usage_database
from gateway.controlplane.usage.database import Batch, Database
from gateway.controlplane.usage.reading import UsageError, read_files
from gateway.core.days import DAY
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.usage.record import OTHER, Count, Gap, RowKey, Scope, UsageRecord, UsageReport
from gateway.settings.sections.usage import UsageSettings
from tests.controlplane.fakes import service
from tests.kit.ironic import holder_of, learn, upto

TODAY = 20_000
NOW = TODAY * DAY + 3_600.0
LIST = RowKey(
    service="baremetal",
    client="curl",
    named=False,
    requested="exact",
    asked="1.5",
    result="served",
    version="1.5",
    endpoint="api",
    signed=False,
    safe=True,
    operation="GET /v1/nodes",
)
CREATE = LIST._replace(operation="POST /v1/nodes", safe=False)
numbers = count(1)


def snapshot_of(highest: int = 58) -> Snapshot:
    holder = holder_of(service(Backend("api-1", "127.0.0.1", 1)))
    learn(holder, "api-1", upto(highest))
    return holder.current


SNAPSHOT = snapshot_of()


def report(*keys: RowKey, times: int = 1, now: float = NOW) -> UsageReport:
    return UsageReport("a", next(numbers), {(int(now // DAY), key): Count(times, now, now) for key in keys})


def batch(*keys: RowKey, times: int = 1, now: float = NOW, **more: Any) -> Batch:
    given = {"gaps": (), "snapshot": SNAPSHOT, "records": {}, "config": "c0", **more}
    return Batch(now=now, reports=(report(*keys, times=times, now=now),), **given)


def counted(record: UsageRecord) -> dict[RowKey, int]:
    return {key: each.requests for (_, key), each in record.rows.items()}


def marked(record: UsageRecord) -> set[tuple[int, Scope]]:
    """Days that are incomplete, with the questions that they cannot answer."""
    return {(gap.day, gap.scope) for gap in record.gaps}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.db"


@contextmanager
def database_of(path: Path | None, **options: Any) -> Iterator[Database]:
    predecessor = options.pop("predecessor", None)
    database = Database(path, UsageSettings(**options), predecessor)
    with closing(database):
        yield database


def of_ended_run(path: Path, *keys: RowKey, now: float = NOW) -> Path:
    with database_of(path) as database:
        database.commit(batch(*keys, now=now), last=True)
    return path


@pytest.mark.parametrize("in_memory", [True, False])
def test_reports_add_up(path: Path, in_memory: bool) -> None:
    with database_of(None if in_memory else path) as database:
        assert not database.commit(batch(LIST, times=2))
        assert not database.commit(batch(LIST, CREATE, times=3, now=NOW + 60))
        record = database.read(None, None, NOW + 61)
    assert counted(record) == {LIST: 5, CREATE: 3}
    assert record.rows[TODAY, LIST] == Count(5, NOW, NOW + 60)
    assert record.gaps == ()
    assert type(next(iter(record.rows))[1].safe) is bool, "a row of the database is the row that was reported"


def test_a_request_that_belongs_to_another_row_moves(path: Path) -> None:
    other = LIST._replace(client=OTHER)
    with database_of(path) as database:
        database.commit(batch(other))
        moves = UsageReport("a", 2, {(TODAY, other): Count(-1, NOW, NOW), (TODAY, LIST): Count(1, NOW, NOW)})
        database.commit(batch()._replace(reports=[moves]))
        assert counted(database.read(None, None, NOW)) == {LIST: 1}


def test_a_request_that_moves_after_midnight_is_one_request(path: Path) -> None:
    other = LIST._replace(client=OTHER)
    with database_of(path) as database:
        database.commit(batch(other))
        moves = UsageReport(
            "a", 2, {(TODAY + 1, other): Count(-1, NOW, NOW), (TODAY + 1, LIST): Count(1, NOW, NOW)}
        )
        database.commit(batch(now=NOW + DAY)._replace(reports=[moves]))
        record = database.read(None, None, NOW + DAY)
    assert sum(each.requests for each in record.rows.values()) == 1


def test_at_most_four_addresses_of_a_row_are_kept(path: Path) -> None:
    with database_of(path) as database:
        for each in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.3", "10.0.0.4", "10.0.0.5"):
            seen = UsageReport("a", 1, {(TODAY, LIST): Count(1, NOW, NOW, (each,))})
            database.commit(batch()._replace(reports=[seen]))
        (kept,) = database.read(None, None, NOW).rows.values()
    assert kept == Count(6, NOW, NOW, ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"))


def test_a_record_has_whole_days_and_today(path: Path) -> None:
    with database_of(path) as database:
        for days in (3, 2, 1, 0):
            database.commit(batch(LIST, now=NOW - days * DAY))
        assert {day for day, _ in database.read(None, 2, NOW).rows} == {TODAY - 2, TODAY - 1, TODAY}
        assert database.read(None, None, NOW).since == TODAY - 3
        assert database.read("baremetal", None, NOW).rows
        assert not database.read("compute", None, NOW).rows


def test_gaps_of_other_services_are_left_out(path: Path) -> None:
    gaps = [Gap(TODAY, name, Scope.ALL, "seen by nobody") for name in ("", "baremetal", "compute")]
    with database_of(path) as database:
        assert database.commit(batch(gaps=gaps))
        record = database.read("baremetal", None, NOW)
    assert {gap.service for gap in record.gaps} == {"", "baremetal"}


# ---------------------------------------------------------------- runs


def test_a_run_that_ends_in_order_leaves_no_gap(path: Path) -> None:
    of_ended_run(path, LIST)
    with database_of(path) as database:
        assert not database.commit(batch(LIST, now=NOW + 60))
        record = database.read(None, None, NOW + 60)
    assert counted(record) == {LIST: 2}
    assert [tuple(period) for period in record.sources[0].periods] == [(NOW, NOW), (NOW + 60, NOW + 60)]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_long_time_without_a_run_marks_its_days(path: Path) -> None:
    of_ended_run(path, LIST, now=NOW - DAY)
    with database_of(path) as database:
        assert database.commit(batch(LIST)), "usage may have been off"
        assert marked(database.read(None, None, NOW)) == {(TODAY - 1, Scope.ALL), (TODAY, Scope.ALL)}


def test_a_service_with_another_name_has_no_record_of_its_past(path: Path) -> None:
    """Its requests were recorded under the old name: `simulate` must not pass for it."""
    holder = holder_of(replace(service(Backend("api-1", "127.0.0.1", 1)), name="metal"))
    of_ended_run(path, LIST)
    with database_of(path) as database:
        database.commit(batch(now=NOW + 60, snapshot=holder.current))
        record = database.read("metal", 7, NOW + 61)
        assert database.read("baremetal", 7, NOW + 61).gaps == ()
    assert [(gap.day, gap.service, gap.scope) for gap in record.gaps] == [(TODAY, "metal", Scope.ALL)]


def test_a_crash_marks_all_days_since_the_last_transaction(path: Path) -> None:
    with database_of(path) as database:
        database.commit(batch(LIST, now=NOW - 2 * DAY))
        database.commit(batch(LIST, now=NOW - DAY))
    assert {day for day, scope in marked(read_files([path], None, None)) if scope is Scope.ALL} >= {TODAY - 1}
    with database_of(path) as database:
        assert database.commit(batch())
        record = database.read(None, None, NOW)
    assert marked(record) == {(TODAY - 1, Scope.ALL), (TODAY, Scope.ALL)}
    assert {day for day, _ in record.rows} == {TODAY - 2, TODAY - 1}


def test_a_take_over_leaves_no_gap(path: Path) -> None:
    with database_of(path) as old, database_of(path, predecessor=4711) as new:
        old.commit(batch(LIST))
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE runs SET pid = 4711")  # else this test would need another process
        new.commit(batch(LIST, now=NOW + 1))
        assert marked(new.read(None, None, NOW + 1)), "the old gateway may have counted more"
        old.commit(batch(LIST, now=NOW + 2), last=True)
        new.commit(batch(LIST, now=NOW + 3))
        record = new.read(None, None, NOW + 3)
        assert counted(record) == {LIST: 4}
        assert record.gaps == ()


def test_an_old_gateway_that_still_drains_marks_no_day_for_the_new_one(path: Path) -> None:
    with database_of(path) as old, database_of(path) as new:
        old.commit(batch(LIST))
        new.commit(batch(LIST, now=NOW + DAY - 7_200))
        old.commit(batch(LIST, now=NOW + DAY), last=True)
        new.commit(batch(LIST, now=NOW + DAY), last=True)
    record = read_files([path], None, None)
    assert marked(record) == {(TODAY, Scope.ALL)}, "it knew of no take-over"


# ---------------------------------------------------------------- bounds


def test_invented_versions_are_counted_together(path: Path) -> None:
    refused = [LIST._replace(asked=f"9.{each}", result="above_max", version="") for each in range(30)]
    with database_of(path) as database:
        assert database.commit(batch(*refused, LIST))
        record = database.read(None, None, NOW)
    assert len({key.asked for key in counted(record)} - {OTHER, "1.5"}) == 20
    assert sum(counted(record).values()) == 31
    assert marked(record) == {(TODAY, Scope.VERSIONS)}, "all clients that are served are told apart"


def test_versions_that_a_backend_once_advertised_are_told_apart(path: Path) -> None:
    asked = [LIST._replace(asked=f"1.{each}") for each in range(1, 59)]
    with database_of(path) as database:
        database.commit(batch())
        assert not database.commit(batch(*asked, snapshot=snapshot_of(highest=20)))
        assert len(database.read(None, None, NOW).rows) == 58


def test_invented_versions_that_are_served_make_clients_uncertain(path: Path) -> None:
    nearest = [LIST._replace(asked=f"9.{each}", version="1.58") for each in range(30)]
    with database_of(path) as database:
        database.commit(batch(*nearest))
        assert marked(database.read(None, None, NOW)) == {(TODAY, Scope.CLIENTS)}


@pytest.mark.parametrize(
    "field, most, scope", [("operation", 500, Scope.OPERATIONS), ("client", 200, Scope.CLIENTS)]
)
def test_values_beyond_the_most_are_counted_together(path: Path, field: str, most: int, scope: Scope) -> None:
    keys = [RowKey(**{**LIST._asdict(), field: f"x{each}"}) for each in range(most + 50)]
    with database_of(path) as database:
        assert not database.commit(batch(*keys[:most]))
        assert database.commit(batch(*keys))
        record = database.read(None, None, NOW)
        assert not database.commit(batch(*keys[-most:], now=NOW + DAY)), "each day begins anew"
    values = {getattr(key, field): requests for key, requests in counted(record).items()}
    assert len(values) == most + 1
    assert values[OTHER] == 50
    assert marked(record) == {(TODAY, scope)}


def test_named_clients_always_have_a_place(path: Path) -> None:
    keys = [LIST._replace(client=f"x{each}", named=True) for each in range(2_000)]
    with database_of(path, rows=1_000) as database:
        database.commit(batch(*keys))
        record = database.read(None, None, NOW)
    assert {key.client for key in counted(record)} == {key.client for key in keys}
    assert marked(record) == {(TODAY, Scope.OPERATIONS)}


def test_a_full_record_gives_up_operations_first_and_then_clients(path: Path) -> None:
    def of_clients(numbers: range) -> list[RowKey]:
        return [LIST._replace(client=f"x{number % 100}", version=f"1.{number // 100}") for number in numbers]

    with database_of(path, rows=1_000) as database:
        assert not database.commit(batch(*of_clients(range(800))))
        database.commit(batch(*of_clients(range(800, 1_000))))
        assert marked(database.read(None, None, NOW)) == {(TODAY, Scope.OPERATIONS)}
        database.commit(batch(*of_clients(range(1_000, 1_100))))
        record = database.read(None, None, NOW)
    assert marked(record) == {(TODAY, Scope.OPERATIONS), (TODAY, Scope.CLIENTS)}
    assert sum(counted(record).values()) == 1_100
    assert len(record.rows) <= 1_001


keys_of_few = st.builds(
    lambda client, named, operation, asked: LIST._replace(
        client=client, named=named, operation=operation, asked=asked
    ),
    st.sampled_from([f"c{number}" for number in range(8)]),
    st.booleans(),
    st.sampled_from([f"GET /{number}" for number in range(8)]),
    st.sampled_from(["1.5", "9.1", "9.2", ""]),
)


@settings(deadline=None)
@given(st.lists(st.lists(keys_of_few, max_size=20), max_size=5), st.integers(0, 30))
def test_whatever_comes_the_sum_is_exact_and_a_client_is_found_or_the_day_says_so(
    batches: Sequence[Sequence[RowKey]], rows: int
) -> None:
    with database_of(None, rows=rows or 1) as database:
        for keys in batches:
            reports = [report(key) for key in keys]
            database.commit(batch()._replace(reports=reports[: rows or 1]))
            database.commit(batch()._replace(reports=reports[rows or 1 :]))
        record = database.read(None, None, NOW)
    total = sum(map(len, batches))
    found, scopes = counted(record), {gap.scope for gap in record.gaps}
    assert sum(found.values()) == total or Scope.ALL in scopes
    for key in {key for keys in batches for key in keys}:
        assert key in found or scopes
        assert key.client in {each.client for each in found} or scopes & {Scope.CLIENTS, Scope.ALL}


# ---------------------------------------------------------------- files and clocks


def test_what_is_older_than_keep_is_deleted(path: Path) -> None:
    with database_of(path, keep=2) as database:
        for days in range(6):
            database.commit(batch(LIST, now=NOW + days * DAY, replicas=["a"], own="a"))
        record = database.read(None, None, NOW + 5 * DAY)
    assert {day for day, _ in record.rows} == {TODAY + 3, TODAY + 4, TODAY + 5}
    assert [tuple(each) for each in record.sources[0].periods] == [((TODAY + 3) * DAY, NOW + 5 * DAY)]


def test_a_clock_that_is_set_back_marks_the_days(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with database_of(path) as database:
        database.commit(batch(LIST, now=NOW + DAY))
        assert database.commit(batch(LIST))
        assert marked(database.read(None, None, NOW)) == {(TODAY, Scope.ALL), (TODAY + 1, Scope.ALL)}
    assert "the clock was set back by 86400 s" in caplog.text


def test_a_clock_that_was_set_back_between_two_runs_marks_the_days(path: Path) -> None:
    of_ended_run(path, LIST, now=NOW + 60)
    with database_of(path) as database:
        assert database.commit(batch(LIST))


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + bytes(8_192)])
def test_a_damaged_file_is_set_aside(path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(content)
    with database_of(path) as database:
        assert database.commit(batch(LIST)), "today is incomplete"
        assert counted(database.read(None, None, NOW)) == {LIST: 1}
    assert Path(f"{path}.damaged").read_bytes() == content
    assert "was damaged and moved to" in caplog.text


def test_a_file_that_is_damaged_meanwhile_is_set_aside(path: Path) -> None:
    with database_of(path) as database:
        many = (LIST._replace(operation=f"GET /{each}") for each in range(400))
        database.commit(batch(*many, now=NOW - 60))
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(4_096)
            file.write(b"\xff" * (size - 4_096))
        assert database.commit(batch(LIST))
        record = database.read(None, None, NOW)
    assert counted(record) == {LIST: 1}
    (source,) = record.sources
    assert source.periods[0].begins == NOW, "what was recorded before is not in this file"
    assert source.state
    assert Path(f"{path}.damaged").exists()


def test_a_database_of_another_release_is_set_aside(path: Path) -> None:
    of_ended_run(path, LIST)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(UsageError, match="another release"):
        read_files([path], None, None)
    with database_of(path) as database:
        assert database.commit(batch())
    assert Path(f"{path}.damaged").exists()


def test_a_file_that_cannot_be_used_is_replaced_by_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with database_of(tmp_path / "missing" / "usage.db") as database:
        assert not database.commit(batch(LIST))
        assert counted(database.read(None, None, NOW)) == {LIST: 1}
    assert "cannot be used, so usage is kept in memory: " in caplog.text


def test_a_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    with database_of(tmp_path) as database:
        database.commit(batch(LIST))
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_a_remote_file_system_is_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(usage_database, "_file_system", lambda _: "nfs4")
    with database_of(path) as database:
        database.commit(batch(LIST))
        assert counted(database.read(None, None, NOW)) == {LIST: 1}
    assert "it is on a remote file system, nfs4" in caplog.text


def test_a_file_system_without_shared_memory_is_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def without_shared_memory(name: Path | str, **options: Any) -> sqlite3.Connection:
        vfs = name if name == ":memory:" else f"file:{name}?vfs=unix-dotfile"
        return connect(vfs, uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", without_shared_memory)
    with database_of(path) as database:
        database.commit(batch(LIST))
        assert counted(database.read(None, None, NOW)) == {LIST: 1}
    assert "its file system does not allow write-ahead logging" in caplog.text
    assert "usage is kept in memory" in caplog.text


def test_the_kind_of_a_file_system_is_known() -> None:
    assert usage_database._file_system(Path("/proc/self")) == "proc"


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """As a full disk does: no file may become larger than this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_a_full_disk_does_not_take_is_written_later(path: Path) -> None:
    keys = [LIST._replace(operation=f"GET /{each}") for each in range(400)]
    with database_of(path) as database:
        database.commit(batch(LIST))
        with full_disk(4_096):
            with pytest.raises(sqlite3.OperationalError):
                database.commit(batch(*keys))
            assert marked(database.read(None, None, NOW)) == {(TODAY, Scope.ALL)}
        assert not database.commit(batch(*keys))
        record = database.read(None, None, NOW)
    assert counted(record) == {LIST: 1, **dict.fromkeys(keys, 2)}


def test_what_waits_for_the_disk_has_a_bound(path: Path) -> None:
    with database_of(path, rows=1_000) as database:
        database.commit(batch(LIST))
        with full_disk(4_096), pytest.raises(sqlite3.OperationalError):
            database.commit(batch(*(LIST._replace(operation=f"GET /{each}") for each in range(1_001))))
        assert database.commit(batch(LIST))
        record = database.read(None, None, NOW)
    assert counted(record) == {LIST: 2}
    assert (TODAY, Scope.ALL) in marked(record)


def test_a_value_that_cannot_be_written_keeps_nothing_half_written(path: Path) -> None:
    with database_of(path) as database:
        with pytest.raises(UnicodeEncodeError):
            database.commit(batch(CREATE, LIST._replace(client="\udc80")))
        assert marked(database.read(None, None, NOW)) == {(TODAY, Scope.ALL)}
        assert counted(database.read(None, None, NOW)) == {}


def test_a_start_on_a_full_disk_waits_for_room(path: Path, tmp_path: Path) -> None:
    with database_of(path) as database:
        with full_disk(0), pytest.raises(sqlite3.OperationalError):
            database.commit(batch(LIST))
        assert not database.commit(batch(CREATE))
    assert counted(read_files([path], None, None)) == {LIST: 1, CREATE: 1}


def test_a_run_that_could_never_write_is_missed(path: Path) -> None:
    """It ends in order while the disk is full, so the database has not even a row of it."""
    of_ended_run(path, CREATE)
    with full_disk(0), database_of(path) as database, pytest.raises(sqlite3.Error):
        database.commit(batch(LIST, now=NOW + 60), last=True)
    assert TODAY in {gap.day for gap in read_files([path], None, None).gaps}
    for later in (120, 180):
        of_ended_run(path, CREATE, now=NOW + later)
        [gap] = read_files([path], None, None).gaps
        assert (gap.day, gap.scope) == (TODAY, Scope.ALL)


def test_a_run_that_was_kept_in_memory_is_missed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_ended_run(path, CREATE)
    with monkeypatch.context() as patched:
        patched.setattr(usage_database, "_file_system", lambda _: "nfs4")
        of_ended_run(path, LIST, now=NOW + 60)
    of_ended_run(path, CREATE, now=NOW + 120)
    assert [gap.day for gap in read_files([path], None, None).gaps] == [TODAY]


def test_an_export_from_a_full_disk_is_incomplete(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with database_of(path) as database:
        database.commit(batch(LIST))
        with full_disk(4_096), pytest.raises(sqlite3.OperationalError):
            database.commit(batch(*(LIST._replace(operation=f"GET /{each}") for each in range(400))))
        copy.write_bytes(database.export(NOW))
    assert (TODAY, Scope.ALL) in marked(read_files([copy], None, None))


def test_a_copy_of_a_running_file_alone_is_incomplete(path: Path, tmp_path: Path) -> None:
    of_ended_run(path, LIST, now=NOW - DAY)
    copy = tmp_path / "copy.db"
    with database_of(path) as database:
        database.commit(batch(CREATE))
        copy.write_bytes(path.read_bytes())
    assert (TODAY, Scope.ALL) in marked(read_files([copy], None, None))


def test_a_clock_that_is_set_forward_marks_the_day(path: Path) -> None:
    with database_of(path) as database:
        database.commit(batch(LIST, now=60.0))
        assert database.commit(batch(LIST)), "what was counted in 1970 has expired"


# ---------------------------------------------------------------- several databases


def test_databases_add_up(tmp_path: Path) -> None:
    paths = [of_ended_run(tmp_path / name, LIST, *more) for name, more in (("a", [CREATE]), ("b", []))]
    record = read_files(paths, None, None)
    assert counted(record) == {LIST: 2, CREATE: 1}
    assert len({source.id for source in record.sources}) == 2
    assert record.gaps == ()


def test_the_same_database_twice_is_an_error(path: Path, tmp_path: Path) -> None:
    with database_of(path) as database:
        database.commit(batch(LIST))
        copy = tmp_path / "copy.db"
        copy.write_bytes(database.export(NOW))
    with pytest.raises(UsageError, match=r"usage\.db and .*copy\.db are the same database"):
        read_files([path, copy], None, None)


def test_an_export_is_a_complete_file_of_its_own(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "read-only" / "copy.db"
    copy.parent.mkdir()
    with database_of(path) as database:
        database.commit(batch(LIST, replicas=["a", "b"], own="a"))
        copy.write_bytes(database.export(NOW))
        copy.parent.chmod(0o500)
        assert read_files([path], None, None).gaps, "of a run that goes on, the last requests may be missing"
        record = read_files([copy], None, None)
    assert counted(record) == {LIST: 1}
    assert record.gaps == ()
    (source,) = record.sources
    assert source.replica_ids == ("a",)
    assert source.replicas == {"a": (TODAY, TODAY), "b": (TODAY, TODAY)}
    assert source.config == "c0"
    assert '"baremetal"' in source.state
    assert list(copy.parent.iterdir()) == [copy]


def test_a_replica_is_known_from_its_first_to_its_last_day(path: Path) -> None:
    with database_of(path) as database:
        database.commit(batch(replicas=["a", "b"], own="a"))
        database.commit(batch(replicas=["a"], own="a", now=NOW + DAY))
        (source,) = database.read(None, None, NOW + DAY).sources
    assert source.replicas == {"a": (TODAY, TODAY + 1), "b": (TODAY, TODAY)}


@pytest.mark.parametrize("content", [None, b"", b"no database at all" * 100])
def test_a_file_that_is_no_database_is_an_error(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"usage\.db"):
        read_files([path], None, None)


def test_a_killed_gateway_is_told_in_the_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with database_of(path) as database:
        database.commit(batch(LIST))
    with database_of(path) as database, caplog.at_level(logging.WARNING, "skewgate.usage"):
        database.commit(batch(LIST, now=NOW + 10))
    assert "an earlier run has not ended in order" in caplog.text
