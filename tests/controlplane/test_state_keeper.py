"""What should survive a restart is in the file soon after it changed, and a bad file stops no gateway."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.state.file import StateFile
from gateway.controlplane.state.keeper import StateKeeper, load_state
from gateway.controlplane.state.text import format_state, parse_state
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import Drain, Pin, ProbeFailed, ProbeSucceeded
from gateway.core.fleet.offer_state import SavedAdvertisement, SavedState
from gateway.core.fleet.service import Policy
from gateway.core.versions.ranges import NO_VERSIONS
from gateway.core.versions.version import Version
from tests.controlplane.fakes import service
from tests.kit.ironic import holder_of, learn, reconfigure, until_snapshot, upto
from tests.kit.waiting import PATIENCE

API = service(Backend("api-1", "127.0.0.1", 1), Backend("api-2", "127.0.0.1", 2))
UPTO_58 = upto(58)
WOULD_BE_LOST = "offers, pins and drains would be lost at a restart"
GUARANTEED = (Policy.GUARANTEED, None)
NOTHING = SavedState(policy=GUARANTEED)
PINNED = SavedState(NO_VERSIONS, Version(1, 31), policy=GUARANTEED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


@asynccontextmanager
async def keeper_of(path: Path, snapshot_holder: SnapshotHolder) -> AsyncIterator[StateKeeper]:
    keeper = StateKeeper(StateFile(path), snapshot_holder)
    await keeper.start()
    try:
        yield keeper
    finally:
        await keeper.close()


def identity(path: Path) -> int:
    """The file's inode: another one after every write."""
    return path.stat().st_ino


def on_disk(path: Path) -> SavedState:
    return parse_state(path.read_text(), [API]).saved["baremetal"]


async def test_every_change_of_what_is_saved_is_written(path: Path) -> None:
    snapshot_holder = holder_of(API)
    async with keeper_of(path, snapshot_holder) as keeper:
        assert on_disk(path) == NOTHING, "the file is there from the start"
        snapshot_holder.apply("baremetal", Pin(Version(1, 31)))
        assert await keeper.written()
        assert on_disk(path) == PINNED
        snapshot_holder.apply("baremetal", Drain("api-2"))
        snapshot_holder.apply("baremetal", Pin(None))
        for backend in ("api-1", "api-2"):
            learn(snapshot_holder, backend, UPTO_58)
        assert await keeper.written()
        known = {
            name: SavedAdvertisement(url, UPTO_58)
            for name, url in (("api-1", "http://127.0.0.1:1"), ("api-2", "http://127.0.0.1:2"))
        }
        assert on_disk(path) == SavedState(UPTO_58.versions, None, {"api-2": ""}, GUARANTEED, known)


async def test_the_last_state_is_written_before_the_end(path: Path) -> None:
    snapshot_holder = holder_of(API)
    async with keeper_of(path, snapshot_holder):
        snapshot_holder.apply("baremetal", Pin(Version(1, 31)))
    assert on_disk(path) == PINNED


async def test_the_end_in_the_middle_of_a_reload_writes_what_is_in_force(path: Path) -> None:
    """After a reload each subscriber has a turn of its own; the end may come before the keeper's."""
    snapshot_holder = holder_of(API)
    learn(snapshot_holder, "api-1", UPTO_58)
    async with keeper_of(path, snapshot_holder):
        snapshot_holder.put_in_force(snapshot_holder.configured([API]))
        snapshot_holder.batch("baremetal", "api-1", ProbeSucceeded(upto(40), 2.0))
    saved = on_disk(path).advertisements["api-1"]
    assert saved.advertisement == upto(40)


async def test_a_change_during_the_last_write_is_written_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow; meanwhile a command comes, and then the end."""
    snapshot_holder = holder_of(API)
    began, may_finish = threading.Event(), threading.Event()
    replace = StateFile.replace

    def slow(self: StateFile, text: str) -> None:
        began.set()
        assert may_finish.wait(10)
        replace(self, text)

    keeper = StateKeeper(StateFile(path), snapshot_holder)
    await keeper.start()
    monkeypatch.setattr(StateFile, "replace", slow)
    snapshot_holder.apply("baremetal", Pin(Version(1, 58)))
    await asyncio.to_thread(began.wait, 10)
    snapshot_holder.apply("baremetal", Pin(Version(1, 31)))
    closing = asyncio.ensure_future(keeper.close())
    await asyncio.sleep(0)
    may_finish.set()
    await closing
    assert on_disk(path) == PINNED


async def test_a_change_of_nothing_that_is_saved_writes_nothing(path: Path) -> None:
    snapshot_holder = holder_of(API)
    async with keeper_of(path, snapshot_holder) as keeper:
        inode = identity(path)
        snapshot_holder.observe("baremetal", "api-1", ProbeFailed("no connection", 1.0))
        assert await keeper.written()
        assert identity(path) == inode
        assert keeper.writes().writes == 1


async def test_many_changes_at_once_are_few_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = []
    replace = StateFile.replace

    def counted(self: StateFile, text: str) -> None:
        writes.append(text)
        replace(self, text)

    monkeypatch.setattr(StateFile, "replace", counted)
    snapshot_holder = holder_of(API)
    async with keeper_of(path, snapshot_holder) as keeper:
        for minor in range(1, 200):
            snapshot_holder.apply("baremetal", Pin(Version(1, minor)))
        assert await keeper.written()
    assert on_disk(path).pin == Version(1, 199)
    assert len(writes) <= 3


async def test_a_file_that_cannot_be_written_is_reported_once_and_tried_again(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "skewgate.state")
    monkeypatch.setattr("gateway.controlplane.state.keeper.RETRY_PAUSE", 0.01)
    folder = path.parent / "later"
    path = folder / "state.json"
    snapshot_holder = holder_of(API)
    async with keeper_of(path, snapshot_holder) as keeper:
        assert not await keeper.written()
        snapshot_holder.apply("baremetal", Pin(Version(1, 31)))
        assert not await keeper.written()
        assert snapshot_holder.current.views["baremetal"].members.pin == Version(1, 31), (
            "it is in force all the same"
        )
        failed = keeper.writes()
        assert (failed.successful, failed.written_at, failed.writes) == (False, 0.0, 0)
        assert failed.failures >= 2
        folder.mkdir()
        while not await keeper.written():
            await until_logged(caplog, "is written again")
        assert on_disk(path) == PINNED
        assert await keeper.written()
        written = keeper.writes()
        assert (written.successful, written.writes) == (True, 1)
        assert written.written_at == pytest.approx(path.stat().st_mtime, abs=1)

    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [
        (
            "ERROR",
            f"{path} cannot be written, {WOULD_BE_LOST}: no such file or directory",
        ),
        ("INFO", f"{path} is written again"),
    ]


async def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait for a line of the log."""
    logged = asyncio.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if text in record.getMessage():
                logged.set()

    listener = Listener()
    logger = logging.getLogger("skewgate.state")
    logger.addHandler(listener)
    try:
        if text not in caplog.text:
            async with asyncio.timeout(PATIENCE):
                await logged.wait()
    finally:
        logger.removeHandler(listener)


async def test_a_second_gateway_with_the_file_logs_it_and_goes_on(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = holder_of(API), holder_of(API)
    async with keeper_of(path, first) as keeper:
        first.apply("baremetal", Pin(Version(1, 31)))
        assert await keeper.written()
        async with keeper_of(path, second) as other:
            assert not await other.written()
    assert on_disk(path) == PINNED
    assert "another gateway writes it: give each gateway its own `state` file" in caplog.text


def test_what_was_saved_is_restored(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    snapshot_holder = holder_of(API)
    snapshot_holder.apply("baremetal", Pin(Version(1, 31)))
    path.write_text(format_state(snapshot_holder.current))
    assert load_state(StateFile(path), [API]) == {"baremetal": PINNED}
    assert caplog.records == []


def test_R3_N9_at_the_first_start_no_state_file_is_information(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    assert load_state(StateFile(path), [API]) == {}
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"{path} does not exist yet: this is the first start")
    ]


def test_R3_N9_a_state_file_that_is_gone_is_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    earlier = StateFile(path)
    earlier.replace(format_state(holder_of(API).current))
    earlier.close()
    path.unlink()

    assert load_state(StateFile(path), [API]) == {}
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"{path} is missing: starting without the offers, pins and drains of the last run")
    ]


def holding(path: Path, content: bytes) -> StateFile:
    path.write_bytes(content)
    return StateFile(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"skewgate_state": 3}', b" " * (5 << 20)])
async def test_a_damaged_file_is_a_warning_and_moved_aside(
    path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = holding(path, content)

    assert load_state(file, [API]) == {}

    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(
        f"{path} is ignored, so the offers, pins and drains of the last run are lost: "
    )
    snapshot_holder = holder_of(API)
    keeper = StateKeeper(file, snapshot_holder)
    await keeper.start()
    await keeper.close()
    assert path.with_name("state.json.damaged").read_bytes() == content
    assert on_disk(path) == NOTHING


def test_what_no_longer_fits_is_one_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    snapshot_holder = holder_of(API)
    snapshot_holder.apply("baremetal", Drain("api-2"))
    path.write_text(format_state(snapshot_holder.current))
    now = service(Backend("api-1", "127.0.0.1", 1))

    assert load_state(StateFile(path), [now]) == {"baremetal": NOTHING}
    assert [record.getMessage() for record in caplog.records] == [
        f"not restored from {path}: baremetal/api-2: was drained, no longer configured"
    ]


def test_a_folder_in_the_place_of_the_file_is_not_reported_as_moved(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()

    assert load_state(StateFile(path), [API]) == {}
    [record] = caplog.records
    assert record.getMessage().endswith("it is not a regular file; it stays where it is")


def test_what_another_gateways_file_holds_is_one_readable_line(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = json.loads(format_state(holder_of(API).current))["services"]["baremetal"]
    services = {f"other-{number}": entry for number in range(5000)}
    path.write_text(json.dumps({"skewgate_state": 2, "services": services}))

    assert load_state(StateFile(path), [API]) == {}
    [record] = caplog.records
    assert record.getMessage().endswith("other-19: no longer configured; and 4980 more")


async def test_a_reload_keeps_pins_and_drains_in_the_file(path: Path) -> None:
    snapshot_holder = holder_of(API)
    async with keeper_of(path, snapshot_holder) as keeper:
        snapshot_holder.apply("baremetal", Pin(Version(1, 31)))
        snapshot_holder.apply("baremetal", Drain("api-2"))
        reconfigure(snapshot_holder, [service(*API.backends, interval=0.5)])
        assert await keeper.written()
        assert on_disk(path) == SavedState(NO_VERSIONS, Version(1, 31), {"api-2": ""}, GUARANTEED)
        reconfigure(snapshot_holder, [service(API.backends[0])])
        await until_snapshot(snapshot_holder, lambda now: len(now.views["baremetal"].members.all) == 1)
        assert await keeper.written()
        assert on_disk(path) == PINNED


async def test_times_in_the_file_are_of_the_wall_clock_and_mean_the_same_after_a_restart(path: Path) -> None:
    snapshot_holder = holder_of(API)
    heard = time.monotonic()
    learn(snapshot_holder, "api-1", UPTO_58, heard)
    async with keeper_of(path, snapshot_holder):
        pass
    text = StateFile(path).read()
    assert text is not None
    entry = json.loads(text)["services"]["baremetal"]["advertisements"]["api-1"]
    saved = load_state(StateFile(path), [API])["baremetal"].advertisements["api-1"]

    assert entry["at"] == pytest.approx(time.time(), abs=60)
    assert saved.at == pytest.approx(heard, abs=60)


async def test_the_first_round_of_probes_is_a_few_writes(path: Path) -> None:
    """A text for each of a thousand backends would hold the event loop for seconds."""
    names = [f"api-{number}" for number in range(200)]
    snapshot_holder = holder_of(service(*(Backend(name, "127.0.0.1", 1) for name in names)))
    async with keeper_of(path, snapshot_holder) as keeper:
        files = {identity(path)}
        for name in names:
            snapshot_holder.batch("baremetal", name, ProbeSucceeded(UPTO_58, 1.0))
            await asyncio.sleep(0)
            files.add(identity(path))
        assert snapshot_holder.current.generation > 100
        assert await keeper.written()
        assert len(files) <= 3
        assert len(json.loads(StateFile(path).read() or "")["services"]["baremetal"]["advertisements"]) == 200
