"""What should survive a restart is in the file soon after it changed, and a bad file stops nobody."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.controlplane.cell import Cell
from gateway.controlplane.state import StateKeeper, recalled
from gateway.controlplane.state_file import StateFile
from gateway.controlplane.state_text import recall, state_text
from gateway.core.backend import Backend
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered, Drain, Failed, Pin
from gateway.core.memory import Kept
from gateway.core.ranges import NOTHING, VersionSet
from gateway.core.version import Version
from tests.controlplane.fakes import cell_of, service, until

API = service(Backend("api-1", "127.0.0.1", 1), Backend("api-2", "127.0.0.1", 2))
UPTO_58 = VersionSet.between(Version(1, 1), Version(1, 58))
LOST = "offers, pins and drains would be lost at a restart"
PINNED = Kept(NOTHING, Version(1, 31))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


@asynccontextmanager
async def kept_in(path: Path, cell: Cell, retry: float = 60.0) -> AsyncIterator[StateKeeper]:
    keeper = StateKeeper(StateFile(path), cell, retry=retry)
    await keeper.start()
    try:
        yield keeper
    finally:
        await keeper.close()


def identity(path: Path) -> int:
    """Another one after every writing."""
    return path.stat().st_ino


def on_disk(path: Path) -> Kept:
    return recall(path.read_text(), [API]).kept["baremetal"]


async def test_every_change_of_what_is_kept_is_written(path: Path) -> None:
    cell = cell_of(API)
    async with kept_in(path, cell) as keeper:
        assert on_disk(path) == Kept(), "the file is there from the start"
        cell.obey("baremetal", Pin(Version(1, 31)))
        assert await keeper.written()
        assert on_disk(path) == PINNED
        cell.obey("baremetal", Drain("api-2"))
        cell.obey("baremetal", Pin(None))
        for backend in ("api-1", "api-2"):
            cell.observe("baremetal", backend, Answered(Advert(UPTO_58), 1.0))
        assert await keeper.written()
        assert on_disk(path) == Kept(UPTO_58, None, frozenset({"api-2"}))


async def test_the_last_state_is_written_before_the_end(path: Path) -> None:
    cell = cell_of(API)
    async with kept_in(path, cell):
        cell.obey("baremetal", Pin(Version(1, 31)))
    assert on_disk(path) == PINNED


async def test_a_change_during_the_last_writing_is_written_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes its time; meanwhile an order comes, and then the end."""
    cell = cell_of(API)
    began, goes_on = threading.Event(), threading.Event()
    works = StateFile.replace

    def slow(self: StateFile, text: str) -> None:
        began.set()
        assert goes_on.wait(10)
        works(self, text)

    keeper = StateKeeper(StateFile(path), cell)
    await keeper.start()
    monkeypatch.setattr(StateFile, "replace", slow)
    cell.obey("baremetal", Pin(Version(1, 58)))
    await asyncio.to_thread(began.wait, 10)
    cell.obey("baremetal", Pin(Version(1, 31)))
    closing = asyncio.ensure_future(keeper.close())
    await asyncio.sleep(0)
    goes_on.set()
    await closing
    assert on_disk(path) == PINNED


async def test_what_changes_nothing_that_is_kept_writes_nothing(path: Path) -> None:
    cell = cell_of(API)
    async with kept_in(path, cell) as keeper:
        written = identity(path)
        cell.observe("baremetal", "api-1", Failed("no connection", 1.0))
        assert await keeper.written()
        assert identity(path) == written


async def test_many_changes_at_once_are_few_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = []
    works = StateFile.replace

    def counted(self: StateFile, text: str) -> None:
        writes.append(text)
        works(self, text)

    monkeypatch.setattr(StateFile, "replace", counted)
    cell = cell_of(API)
    async with kept_in(path, cell) as keeper:
        for minor in range(1, 200):
            cell.obey("baremetal", Pin(Version(1, minor)))
        assert await keeper.written()
    assert on_disk(path).pin == Version(1, 199)
    assert len(writes) <= 3


async def test_a_file_that_cannot_be_written_is_said_once_and_tried_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "skewgate.state")
    folder = path.parent / "later"
    path = folder / "state.json"
    cell = cell_of(API)
    async with kept_in(path, cell, retry=0.01) as keeper:
        assert not await keeper.written()
        cell.obey("baremetal", Pin(Version(1, 31)))
        assert not await keeper.written()
        assert cell.current.views["baremetal"].pool.pin == Version(1, 31), "it is in force all the same"
        folder.mkdir()
        while not await keeper.written():
            await until_said(caplog, "is written again")
        assert on_disk(path) == PINNED
        assert await keeper.written()

    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [
        (
            "ERROR",
            f"{path} cannot be written, {LOST}: no such file or directory",
        ),
        ("INFO", f"{path} is written again"),
    ]


async def until_said(caplog: pytest.LogCaptureFixture, said: str) -> None:
    """Wait for a line of the log."""
    came = asyncio.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if said in record.getMessage():
                came.set()

    listener = Listener()
    logger = logging.getLogger("skewgate.state")
    logger.addHandler(listener)
    try:
        if said not in caplog.text:
            async with asyncio.timeout(10):
                await came.wait()
    finally:
        logger.removeHandler(listener)


async def test_a_second_gateway_with_the_file_says_so_and_goes_on(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = cell_of(API), cell_of(API)
    async with kept_in(path, first) as keeper:
        first.obey("baremetal", Pin(Version(1, 31)))
        assert await keeper.written()
        async with kept_in(path, second) as other:
            assert not await other.written()
    assert on_disk(path) == PINNED
    assert "another gateway writes it: give each a `state` of its own" in caplog.text


def test_what_was_kept_comes_back(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cell = cell_of(API)
    cell.obey("baremetal", Pin(Version(1, 31)))
    path.write_text(state_text(cell.current))
    assert recalled(StateFile(path), [API]) == {"baremetal": PINNED}
    assert caplog.records == []


async def test_a_file_that_does_not_exist_is_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert recalled(StateFile(path), [API]) == {}
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"{path} does not exist: starting without offers, pins and drains of an earlier run")
    ]


def holding(path: Path, content: bytes) -> StateFile:
    path.write_bytes(content)
    return StateFile(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"skewgate_state": 2}', b" " * (5 << 20)])
async def test_a_damaged_file_is_a_warning_and_kept_aside(
    path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = holding(path, content)

    assert recalled(file, [API]) == {}

    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(
        f"{path} cannot be used, offers, pins and drains of the last run are lost: "
    )
    cell = cell_of(API)
    keeper = StateKeeper(file, cell)
    await keeper.start()
    await keeper.close()
    assert path.with_name("state.json.damaged").read_bytes() == content
    assert on_disk(path) == Kept()


def test_what_fits_no_longer_is_one_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cell = cell_of(API)
    cell.obey("baremetal", Drain("api-2"))
    path.write_text(state_text(cell.current))
    now = service(Backend("api-1", "127.0.0.1", 1))

    assert recalled(StateFile(path), [now]) == {"baremetal": Kept()}
    assert [record.getMessage() for record in caplog.records] == [
        f"not taken over from {path}: baremetal/api-2: was drained and is not configured any more"
    ]


def test_a_folder_in_the_place_of_the_file_is_not_said_to_be_moved(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()

    assert recalled(StateFile(path), [API]) == {}
    [record] = caplog.records
    assert record.getMessage().endswith("it is no ordinary file; it stays where it is")


def test_what_another_gateways_file_holds_is_one_line_that_can_be_read(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = json.loads(state_text(cell_of(API).current))["services"]["baremetal"]
    services = {f"other-{number}": entry for number in range(5000)}
    path.write_text(json.dumps({"skewgate_state": 1, "services": services}))

    assert recalled(StateFile(path), [API]) == {}
    [record] = caplog.records
    assert record.getMessage().endswith("other-19: is not configured any more; and 4980 more")


async def test_a_reload_keeps_what_was_ordered_in_the_file(path: Path) -> None:
    cell = cell_of(API)
    async with kept_in(path, cell) as keeper:
        cell.obey("baremetal", Pin(Version(1, 31)))
        cell.obey("baremetal", Drain("api-2"))
        cell.configure([service(*API.backends, interval=0.5)])
        assert await keeper.written()
        assert on_disk(path) == Kept(NOTHING, Version(1, 31), frozenset({"api-2"}))
        cell.configure([service(API.backends[0])])
        await until(cell, lambda snapshot: len(snapshot.views["baremetal"].pool.members) == 1)
        assert await keeper.written()
        assert on_disk(path) == Kept(NOTHING, Version(1, 31))
