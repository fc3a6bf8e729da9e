"""The access log: complete and harmless when it can be written, lost and counted when it cannot."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import RequestedKind
from gateway.errors import StartupError
from gateway.telemetry.access_log import BATCH, MAX_VALUE, AccessLog, printable, quoted
from tests.telemetry.builders import record


def wait_until(holds: Callable[[], bool]) -> None:
    """The log's thread reports nothing, so poll until it has written."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def lines(path: Path) -> list[str]:
    return path.read_text("ascii").splitlines()


def test_a_line_of_json_holds_everything(tmp_path: Path) -> None:
    log = AccessLog("json", str(tmp_path / "log"))
    log.record(record())
    log.record(
        record(service="", backend="none", requested=None, result=None, version="", backend_seconds=-1.0)
    )
    log.close()

    first, second = map(json.loads, lines(tmp_path / "log"))
    assert len(first.pop("time")) == len("2026-11-20T13:43:28.123Z")
    assert first == {
        "client": "192.0.2.7",
        "method": "GET",
        "target": "/v1/nodes",
        "status": 200,
        "service": "baremetal",
        "backend": "old",
        "requested": "exact",
        "result": "served",
        "version": "1.31",
        "attempts": 1,
        "seconds": 0.004,
        "backend_seconds": 0.003,
        "bytes": 532,
        "request_id": None,
        "reason": "",
    }
    assert (second["requested"], second["result"], second["backend_seconds"]) == (None, None, None)


def test_a_line_of_text_is_for_people(tmp_path: Path) -> None:
    log = AccessLog("text", str(tmp_path / "log"))
    log.record(record(requested=RequestedKind.LATEST, result=NegotiationResult.SERVED))
    log.close()

    (line,) = lines(tmp_path / "log")
    assert line.split(" ", 1)[1] == (
        '192.0.2.7 "GET /v1/nodes" 200 baremetal/old latest served 1.31 '
        "attempts=1 seconds=0.004000 bytes=532 request_id=- reason=-"
    )


def test_off_writes_nothing(tmp_path: Path) -> None:
    log = AccessLog("off", str(tmp_path / "log"))
    log.record(record())
    log.reopen()
    log.close()

    assert not (tmp_path / "log").exists()
    assert log.dropped == 0


HOSTILE = '/\r\n127.0.0.1 - - "GET /" \x1b[2J\x7f\x00\x85\u2028\u202e\U0001f600\ud800\\' + '"'


@pytest.mark.parametrize("form", ["json", "text"])
def test_o8_what_a_client_wrote_cannot_leave_its_place(form: str, tmp_path: Path) -> None:
    log = AccessLog(form, str(tmp_path / "log"))  # type: ignore[arg-type]
    log.record(record(target=HOSTILE, client=HOSTILE, version=HOSTILE, method=HOSTILE))
    log.record(record())
    log.close()

    written = (tmp_path / "log").read_bytes()
    assert written.count(b"\n") == 2
    assert all(0x20 <= byte < 0x7F for byte in written if byte != 0x0A)
    if form == "json":
        assert json.loads(lines(tmp_path / "log")[0])["target"] == HOSTILE


@pytest.mark.parametrize("character", ["a", "\x00", "é", "\U0001f600", "\\", '"', "\x7f"])
@pytest.mark.parametrize("length", [1, 84, 85, 510, 1021, 1024, 1025, 8192, 100_000])
def test_o8_long_texts_are_cut(character: str, length: int) -> None:
    text = character * length
    line = quoted(text)

    assert len(line) <= MAX_VALUE + 2
    assert printable(text) == line[1:-1]
    back = json.loads(line)
    assert back == text or (back.endswith("...") and text.startswith(back[:-3]))


async def test_a_line_is_written_within_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = AccessLog("json", str(path))
    log.record(record())
    assert path.read_bytes() == b"", "lines are written together"

    await asyncio.to_thread(wait_until, lambda: path.read_bytes() != b"")
    log.close()


def test_many_lines_are_written_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = AccessLog("json", str(path))
    for _ in range(BATCH):
        log.record(record())

    wait_until(lambda: path.read_bytes().count(b"\n") == BATCH)
    log.close()


def test_after_rotation_lines_go_to_the_new_file_and_none_is_lost(tmp_path: Path) -> None:
    path, old = tmp_path / "log", tmp_path / "log.1"
    log = AccessLog("json", str(path))
    for number in range(500):
        log.record(record(bytes_out=number))
    path.rename(old)
    log.reopen()
    for number in range(500, 1000):
        log.record(record(bytes_out=number))
    log.close()

    assert [json.loads(line)["bytes"] for line in (*lines(old), *lines(path))] == list(range(1000))
    assert json.loads(lines(path)[0])["bytes"] == 500
    assert log.dropped == 0


def test_a_rotation_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    folder, moved = tmp_path / "logs", tmp_path / "moved"
    folder.mkdir()
    log = AccessLog("json", str(folder / "log"))
    folder.rename(moved)
    log.reopen()
    log.record(record())
    log.close()

    assert len(lines(moved / "log")) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_costs_lines_but_no_request() -> None:
    log = AccessLog("json", "/dev/full")
    for _ in range(BATCH * 3 + 1):
        log.record(record())
    log.close()

    assert log.dropped == BATCH * 3 + 1


def test_a_reader_that_stopped_reading_blocks_nobody(tmp_path: Path) -> None:
    """A full pipe holds the thread; requests go on, and what does not fit is counted."""
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog("json", path)
    started = time.monotonic()
    long = "/" + "x" * 1000
    for _ in range(10_000):
        log.record(record(target=long))
    took = time.monotonic() - started

    assert took < 5
    assert 0 < log.dropped < 10_000
    os.close(reader)
    log.close()
    assert log.dropped >= 9_000, "with the reader gone, what was waiting is lost and counted, too"


def test_a_line_that_was_cut_short_does_not_swallow_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log = AccessLog("json", str(path))
    write, calls = os.write, 0

    def full_in_the_middle(fd: int, data: memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            return write(fd, data[:10])
        if calls == 2:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr("gateway.telemetry.line_writer.os.write", full_in_the_middle)
    for number in range(2 * BATCH):
        log.record(record(bytes_out=number))
        if number == BATCH - 1:
            wait_until(lambda: log.dropped == BATCH)
    log.close()

    found = lines(path)
    assert found[0] == '{"time": "'
    assert [json.loads(line)["bytes"] for line in found[1:]] == list(range(BATCH, 2 * BATCH))
    assert log.dropped == BATCH


def test_a_record_that_cannot_be_formatted_is_a_lost_line_and_no_error(tmp_path: Path) -> None:
    log = AccessLog("json", str(tmp_path / "log"))
    broken = record()
    broken.seconds = "soon"  # type: ignore[assignment]
    log.record(broken)
    log.close()
    log.record(record())

    assert log.dropped == 1
    assert lines(tmp_path / "log") == []


def test_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    log = AccessLog("json")
    log.record(record())
    log.close()

    assert json.loads(capfd.readouterr().out)["target"] == "/v1/nodes"


def test_a_file_that_cannot_be_opened_is_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot be opened: No such file or directory"):
        AccessLog("json", str(tmp_path / "nowhere" / "log"))


def test_R_D6_a_line_has_the_id_of_the_request(tmp_path: Path) -> None:
    request_id = "req-0f5e7a9c-1b2d-4c3e-8f40-5a6b7c8d9e0f"
    for form in ("json", "text"):
        log = AccessLog(form, str(tmp_path / form))
        log.record(record(request_id=request_id))
        log.record(record())
        log.close()

    first, second = map(json.loads, lines(tmp_path / "json"))
    assert (first.get("request_id"), second.get("request_id", "missing")) == (request_id, None)
    first, second = lines(tmp_path / "text")
    assert first.endswith(f" request_id={request_id} reason=-")
    assert second.endswith(" request_id=- reason=-")
