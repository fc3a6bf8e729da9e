"""Every report counts once, and what went wrong with it is in the record and in the log."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.controlplane.usage.database import Batch, Database
from gateway.controlplane.usage.keeper import UsageKeeper
from gateway.controlplane.usage.reading import UsageError, read_files
from gateway.core.usage.record import Count, Scope, UsageRecord, UsageReport
from gateway.settings.sections.usage import UsageSettings
from gateway.telemetry.neighbours import EngineReport
from tests.controlplane.test_usage import CREATE, LIST, NOW, SNAPSHOT, TODAY, counted, full_disk
from tests.kit.fleets import brief_session, running_fleet
from tests.kit.gateways import gateway_of
from tests.kit.ironic import until_snapshot
from tests.kit.waiting import until


class Workers:
    """Stands in for the data plane: what it has counted comes when it is asked."""

    def __init__(self) -> None:
        self.keeper: UsageKeeper | None = None
        self.waiting: list[UsageReport] = []

    async def collect(self) -> None:
        assert self.keeper is not None
        for each in self.waiting:
            self.keeper.received(each)
        self.waiting.clear()


def state(now: float) -> Batch:
    return Batch(now=now, gaps=(), snapshot=SNAPSHOT, records={}, config="c0")


def report(sequence: int = 1, worker: str = "a") -> UsageReport:
    return UsageReport(worker, sequence, {(TODAY, LIST): Count(1, NOW, NOW)})


def reports_of(*reports: UsageReport) -> Callable[[], Awaitable[UsageReport | None]]:
    """A worker in this process, with these reports, and then none."""
    left = iter(reports)

    async def take() -> UsageReport | None:
        return next(left, None)

    return take


@asynccontextmanager
async def keeper_of(path: Path, workers: Workers | None = None) -> AsyncIterator[UsageKeeper]:
    """One that gathers nothing by itself. No day of the test is too old, whenever that runs."""
    database = Database(path, UsageSettings(keep=100_000))
    workers = workers or Workers()
    keeper = workers.keeper = UsageKeeper(database, state, workers.collect)
    try:
        yield keeper
    finally:
        await keeper.close()


async def reasons(keeper: UsageKeeper) -> set[str]:
    return {gap.reason for gap in (await keeper.read(None, None)).gaps}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.db"


async def test_a_report_counts_once(path: Path) -> None:
    async with keeper_of(path) as keeper:
        for each in (report(1), report(1), report(2), report(1), report(1, worker="b")):
            keeper.received(each)
        record = await keeper.read(None, None)
    assert counted(record) == {LIST: 3}
    assert record.gaps == ()


async def test_a_report_that_has_not_arrived_marks_the_day(path: Path) -> None:
    async with keeper_of(path) as keeper:
        keeper.received(report(1))
        before = keeper.incomplete
        keeper.received(report(3))
        assert (before, keeper.incomplete) == (False, True)
        assert await reasons(keeper) == {"a report of a process has not arrived"}
        assert keeper.incomplete


async def test_a_killed_worker_marks_the_day(path: Path) -> None:
    async with keeper_of(path) as keeper:
        keeper.lost("a worker process has ended unexpectedly")
        (gap, *_) = (await keeper.read(None, None)).gaps
    assert gap.scope is Scope.ALL
    assert gap.service == ""
    assert gap.reason == "a worker process has ended unexpectedly"


async def test_answers_have_what_workers_and_this_process_have_just_counted(path: Path) -> None:
    workers = Workers()
    async with keeper_of(path, workers) as keeper:
        keeper.report = reports_of(report(1, worker="own"))
        workers.waiting.append(report(1))
        assert counted(await keeper.read(None, None)) == {LIST: 2}
        workers.waiting.append(report(2))
        path.with_name("copy.db").write_bytes(await keeper.export())
    assert counted(read_files([path.with_name("copy.db")], None, None)) == {LIST: 3}


async def test_the_last_report_is_written_at_the_end(path: Path) -> None:
    async with keeper_of(path) as keeper:
        keeper.report = reports_of(report())
    record = read_files([path], None, None)
    assert counted(record) == {LIST: 1}
    assert record.gaps == ()


async def test_an_error_is_logged_once_and_everything_is_written_later(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "skewgate.usage")
    many = {(TODAY, LIST._replace(operation=f"GET /{each}")): Count(1, NOW, NOW) for each in range(400)}
    async with keeper_of(path) as keeper:
        await keeper.read(None, None)
        with full_disk(4_096):
            keeper.received(UsageReport("a", 1, many))
            assert {gap.scope for gap in (await keeper.read(None, None)).gaps} == {Scope.ALL}
            await keeper.read(None, None)
            during = keeper.incomplete
        assert len((await keeper.read(None, None)).rows) == 400
        assert (during, keeper.incomplete) == (True, False)
    errors = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "until it can be written" in errors[0]
    assert "usage is written again" in caplog.text


async def test_a_record_that_cannot_be_read_is_an_error_of_the_question(path: Path) -> None:
    async with keeper_of(path) as keeper:
        with full_disk(0), pytest.raises(UsageError, match="cannot be used"):
            await keeper.read(None, None)
        keeper.received(report())
        assert counted(await keeper.read(None, None)) == {LIST: 1}


async def test_an_operator_who_gives_up_loses_no_report(path: Path) -> None:
    held = threading.Event()
    async with keeper_of(path) as keeper:
        busy = asyncio.get_running_loop().run_in_executor(keeper._thread, held.wait)
        keeper.received(report())
        asked = asyncio.get_running_loop().create_task(keeper.read(None, None))
        await until(lambda: not keeper._reports, "the report is on its way to the thread")
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
        held.set()
        await busy
        assert counted(await keeper.read(None, None)) == {LIST: 1}


async def test_reports_do_not_pile_up_while_the_disk_hangs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.controlplane.usage.keeper.MAX_WAITING", 10)
    held = threading.Event()
    async with keeper_of(path) as keeper:
        busy = asyncio.get_running_loop().run_in_executor(keeper._thread, held.wait)
        for number in range(1, 20):
            keeper.received(report(number))
            assert len(keeper._reports) <= 10
        held.set()
        await busy
        record = await keeper.read(None, None)
    assert [(gap.day, gap.scope) for gap in record.gaps] == [(TODAY, Scope.ALL)]


async def test_a_bug_of_the_counter_stops_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with keeper_of(path) as keeper:
        keeper.report = lambda: 1 // 0  # type: ignore[assignment, return-value]
        keeper.received(report())
        await keeper.read(None, None)
        assert keeper.incomplete
        keeper.report = reports_of()
        assert counted(await keeper.read(None, None)) == {LIST: 1}
    assert "ZeroDivisionError" in caplog.text


async def test_a_gateway_gathers_by_itself(path: Path) -> None:
    asked = asyncio.Event()

    async def no_report() -> None:
        asked.set()

    async with keeper_of(path) as keeper:
        keeper.report = no_report
        keeper.start()
        await asked.wait()
    assert read_files([path], None, None).gaps == ()


def served(record: UsageRecord) -> int:
    """Requests for a list of nodes that were served."""
    return sum(
        each.requests
        for (_, key), each in record.rows.items()
        if key.operation == CREATE.operation.replace("POST", "GET") and key.result == "served"
    )


CONFIGURATION = """
listen: [{{address: 127.0.0.1:0}}]
admin: {{listen: 127.0.0.1:0}}
access_log: {{format: off}}
{more}
services:
  baremetal:
    dialect: ironic
    probe: {{interval: 200ms}}
    backends: [{{name: api-1, url: {url}}}]
"""


async def test_a_gateway_keeps_its_record_beside_the_state_file(tmp_path: Path) -> None:
    state_file = tmp_path / "state.json"
    async with running_fleet() as fleet, brief_session() as session:
        text = CONFIGURATION.format(more=f"state: {state_file}", url=f"http://127.0.0.1:{fleet.old.port}")
        for _ in range(2):
            async with gateway_of(text) as gateway:
                keeper = gateway.parts.late_parts.usage
                await until_snapshot(
                    gateway.snapshot_holder, lambda now: bool(now.views["baremetal"].offer.versions)
                )
                for _ in range(3):
                    async with session.get(f"{gateway.urls[0]}/v1/nodes") as response:
                        assert response.status == 200
                assert keeper is not None
                record = await keeper.read("baremetal", None)
                assert record.gaps == ()
                assert '"api-1"' in record.sources[0].state
    record = read_files([Path(f"{state_file}.usage")], None, None)
    assert served(record) == 6
    assert record.gaps == ()
    assert len(record.sources[0].periods) == 2


async def test_a_gateway_without_a_record_writes_none(tmp_path: Path) -> None:
    text = CONFIGURATION.format(
        more=f"state: {tmp_path / 'state.json'}\nusage: off", url="http://127.0.0.1:1"
    )
    async with gateway_of(text) as gateway:
        assert gateway.parts.late_parts.usage is None
    assert not list(tmp_path.glob("*usage*"))  # noqa: ASYNC240 - a temporary folder


async def test_a_short_run_without_a_record_is_missed(tmp_path: Path) -> None:
    file = Path(f"{tmp_path / 'state.json'}.usage")
    for more in ("", "\nusage: off"):
        text = CONFIGURATION.format(more=f"state: {tmp_path / 'state.json'}{more}", url="http://127.0.0.1:1")
        async with gateway_of(text):
            pass
        assert bool(read_files([file], None, None).gaps) is bool(more)


async def test_a_gateway_without_a_place_keeps_its_record_in_memory() -> None:
    text = CONFIGURATION.format(more="", url="http://127.0.0.1:1")
    async with gateway_of(text) as gateway:
        keeper = gateway.parts.late_parts.usage
        assert keeper is not None
        assert len((await keeper.read(None, None)).sources) == 1


class Engine:
    """Stands in for an engine that has rows for one of two services."""

    problem = ""

    def report(self) -> EngineReport:
        rows = {"baremetal": 3, "compute": 0}
        return EngineReport("haproxy", "2.9", 1, self.problem, rows, {}, 0, (), {}, 0, 0)


async def test_what_an_engine_carries_is_a_gap_of_its_services() -> None:
    async with gateway_of(CONFIGURATION.format(more="", url="http://127.0.0.1:1")) as gateway:
        keeper, late_parts = gateway.parts.late_parts.usage, gateway.parts.late_parts
        assert keeper is not None
        assert (await keeper.read(None, None)).gaps == ()
        late_parts.engine = engine = cast(Any, Engine())
        gaps = (await keeper.read(None, None)).gaps
        engine.problem = "it does not answer, and may still have earlier rows"
        unknown = (await keeper.read(None, None)).gaps
        late_parts.engine = None
    assert {gap.service for gap in gaps} == {"baremetal"}
    assert {gap.service for gap in unknown} == {"baremetal", "compute"}
    assert {gap.scope for gap in gaps} == {Scope.ALL}


async def test_a_record_names_the_configuration_in_force(tmp_path: Path) -> None:
    file = tmp_path / "skewgate.yaml"
    text = CONFIGURATION.format(more="", url="http://127.0.0.1:1")
    file.write_text(text)
    async with gateway_of(text, source=file) as gateway:
        keeper = gateway.parts.late_parts.usage
        assert keeper is not None
        before = (await keeper.read(None, None)).sources[0].config
        file.write_text(text + "    offer: {ceiling: '1.5'}\n")
        result = await gateway.parts.reloader.reload()
        after = (await keeper.read(None, None)).sources[0].config
        assert result.ok
        assert after == gateway.parts.reloader.config.hash
    assert before != after
