"""The record of usage adds up exactly what was reported, or says what may be missing from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.controlplane.usage.database import Batch, Database
from gateway.controlplane.usage.reading import UsageError, read_files
from gateway.core.fleet.backend import Backend
from gateway.core.usage.record import OTHER, Count, Gap, RowKey, Scope, UsageRecord, UsageReport
from gateway.settings.sections.usage import UsageSettings
from tests.controlplane.fakes import service
from tests.kit.ironic import holder_of, learn, upto

DAY = 20_000
NOW = DAY * 86_400.0 + 3_600.0
LIST = RowKey(
    "baremetal", "curl", False, "exact", "1.5", "served", "1.5", "api", False, True, "GET /v1/nodes"
)
SETTINGS = UsageSettings()


def known(number: int = 58) -> Any:
    holder = holder_of(service(Backend("api-1", "127.0.0.1", 1)))
    learn(holder, "api-1", upto(number))
    return holder.current


SNAPSHOT = known()


def rows(*keys: RowKey, times: int = 1, day: int = DAY) -> Mapping[tuple[int, RowKey], Count]:
    return {(day, key): Count(times, NOW, NOW) for key in keys}


def batch(*keys: RowKey, times: int = 1, now: float = NOW, gaps: tuple[Gap, ...] = (), **more: Any) -> Batch:
    day = int(now // 86_400)
    report = UsageReport("worker", 1, {(day, key): Count(times, now, now) for key in keys})
    return Batch(now=now, gaps=gaps, snapshot=SNAPSHOT, records={}, config="c0", reports=(report,), **more)


def counted(record: UsageRecord) -> dict[RowKey, int]:
    return {key: count.requests for (_, key), count in record.rows.items()}


def reasons(record: UsageRecord) -> list[str]:
    return [gap.reason for gap in record.gaps]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.db"


def test_reports_add_up(path: Path) -> None:
    database = Database(path, SETTINGS)
    assert not database.commit(batch(LIST, times=2))
    database.commit(batch(LIST, LIST._replace(client="rally"), times=3, now=NOW + 60))
    record = database.read(None, None, NOW + 61)
    assert counted(record) == {LIST: 5, LIST._replace(client="rally"): 3}
    assert record.rows[DAY, LIST] == Count(5, NOW, NOW + 60)
    assert record.gaps == ()
    database.close()


def test_a_file_of_an_ended_run_is_complete(path: Path) -> None:
    database = Database(path, SETTINGS)
    database.commit(batch(LIST), last=True)
    database.close()
    record = read_files([path], None, None)
    assert counted(record) == {LIST: 1}
    assert record.gaps == ()
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_same_database_twice_is_an_error(path: Path, tmp_path: Path) -> None:
    database = Database(path, SETTINGS)
    database.commit(batch(LIST))
    copy = tmp_path / "copy.db"
    copy.write_bytes(database.export(NOW))
    database.close()
    with pytest.raises(UsageError, match="the same database"):
        read_files([path, copy], None, None)


def test_invented_versions_are_counted_together(path: Path) -> None:
    database = Database(path, SETTINGS)
    refused = [LIST._replace(asked=f"9.{number}", result="above_max", version="") for number in range(30)]
    assert database.commit(batch(*refused, LIST)), "a question by version cannot be answered"
    record = database.read(None, None, NOW)
    texts = {key.asked for key in counted(record)}
    assert len(texts) == 22
    assert OTHER in texts
    assert "1.5" in texts
    assert sum(counted(record).values()) == 31
    assert {gap.scope for gap in record.gaps} == {Scope.OPERATIONS}
    database.close()
