"""The writer of log lines: nobody who has a line waits, and what is lost is told where it is missing."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final

import pytest

from gateway.telemetry import line_writer
from gateway.telemetry.line_writer import MAX_BACKLOG, LineWriter
from tests.kit.waiting import PATIENCE, wait_until

DEADLINE: Final = PATIENCE
LONG: Final = 10_000


def line(number: int) -> bytes:
    """A line of `LONG` bytes, beginning with its number."""
    return f"{number} ".encode().ljust(LONG - 1, b".") + b"\n"


def told(text: str) -> bytes:
    return f"told: {text}\n".encode()


@final
class Pipe:
    """A named pipe with a reader that reads when the test wants it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "pipe")
        os.mkfifo(self.path)
        self.reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self.found = b""

    def read_until(self, holds: Callable[[list[str]], bool]) -> list[str]:
        """Read until what was read so far, as lines, is as expected. The thread reports nothing."""
        deadline = time.monotonic() + DEADLINE
        while not (self.found.endswith(b"\n") and holds(self.lines)):
            assert time.monotonic() < deadline
            try:
                self.found += os.read(self.reader, 1 << 20)
            except BlockingIOError:
                time.sleep(0.001)
        return self.lines

    @property
    def lines(self) -> list[str]:
        return [text.rstrip(".") for text in self.found.decode().splitlines()]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path)
    yield pipe
    os.close(pipe.reader)


def last_is_told(lines: list[str]) -> bool:
    return lines[-1].startswith("told")


def test_R_B8_what_a_stopped_reader_cost_is_told_where_it_is_missing(pipe: Pipe) -> None:
    writer = LineWriter(pipe.path, told)
    writer.start()
    number = 2 * MAX_BACKLOG // LONG
    for index in range(number):
        writer.put(line(index))
    lost = writer.dropped
    lines = pipe.read_until(last_is_told)
    for index in range(3):
        writer.put(line(index))
    writer.close()
    lines = pipe.read_until(lambda lines: lines[-1] == "2 ")

    assert 0 < lost < number
    text = f"told: {lost} lines were lost because the reader of {pipe.path} stopped"
    assert lines == [*(f"{index} " for index in range(number - lost)), text, "0 ", "1 ", "2 "]
    assert writer.dropped == lost


def test_R_B8_each_time_a_reader_stops_is_told(pipe: Pipe) -> None:
    writer = LineWriter(pipe.path, told)
    writer.start()
    counts: list[int] = []
    for _ in range(2):
        for index in range(2 * MAX_BACKLOG // LONG):
            writer.put(line(index))
        counts.append(writer.dropped - sum(counts))
        pipe.read_until(lambda lines: sum(text.startswith("told") for text in lines) == len(counts))
    writer.close()

    found = [int(text.split()[1]) for text in pipe.lines if text.startswith("told")]
    assert found == counts


def test_R_B8_a_stream_that_cannot_tell_has_it_told_in_the_process_log(
    pipe: Pipe, caplog: pytest.LogCaptureFixture
) -> None:
    writer = LineWriter(pipe.path)
    writer.start()
    writer.put(line(0) * (MAX_BACKLOG // LONG))
    writer.put(line(0) * 7)
    writer.put(b"short, so it would fit\n")
    pipe.read_until(lambda _: bool(caplog.messages))
    writer.close()

    assert caplog.messages == [f"8 lines were lost because the reader of {pipe.path} stopped"]
    assert set(pipe.lines) == {"0 "}


class FullDisk:
    """The disk of the log: nothing can be written while it is `full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        self._write = os.write
        monkeypatch.setattr("gateway.telemetry.line_writer.os.write", self.write)

    def write(self, fd: int, data: memoryview) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return self._write(fd, data)


@pytest.mark.parametrize("tells", [True, False])
def test_R_B8_a_disk_that_was_full_is_told_once_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tells: bool
) -> None:
    path, disk = tmp_path / "log", FullDisk(monkeypatch)
    writer = LineWriter(str(path), told if tells else None)
    writer.start()
    for index in range(5):
        writer.put(f"{index}\n".encode())
    wait_until(lambda: writer.dropped == 5)
    assert caplog.messages == []
    disk.full = False
    writer.put(b"5\n")
    writer.close()

    text = f"5 lines were lost because {path} failed: No space left on device"
    assert path.read_text().splitlines() == ([f"told: {text}"] if tells else []) + ["5"]
    assert caplog.messages == ([] if tells else [text])


def test_R_B8_the_end_does_not_wait_long_for_a_reader(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_writer, "CLOSE_TIMEOUT", 0.05)
    writer = LineWriter(pipe.path, told)
    writer.start()
    writer.put(line(0) * 20)
    writer.close()  # would wait for ever if it waited for the reader
    writer.close()
    writer.put(b"late\n")
    assert writer.dropped == 1
    pipe.read_until(lambda lines: len(lines) >= 20)


def test_a_process_that_still_forks_owns_no_thread_and_loses_no_line(tmp_path: Path) -> None:
    paths = (tmp_path / "started", tmp_path / "only closed")
    for path in paths:
        writer = LineWriter(str(path))
        writer.put(b"first\n")
        writer.reopen()
        writer.put(b"second\n")
        assert not [thread for thread in threading.enumerate() if str(path) in thread.name]
        if path is paths[0]:
            writer.start()
        writer.close()
        assert path.read_bytes() == b"first\nsecond\n"


def test_a_writer_without_lines_has_no_thread(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    writer = LineWriter(path)
    writer.start()
    assert not [thread for thread in threading.enumerate() if path in thread.name]
    writer.put(b"a line\n")
    assert [thread for thread in threading.enumerate() if path in thread.name]
    writer.close()


def test_lines_of_several_threads_stay_whole_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = LineWriter(str(path))
    writer.start()

    def put(name: str) -> None:
        for number in range(1000):
            writer.put(f"{name} {number}\n".encode())

    threads = [threading.Thread(target=put, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()

    lines = path.read_text().splitlines()
    assert len(lines) == 4000
    for name in "abcd":
        assert [text for text in lines if text[0] == name] == [f"{name} {number}" for number in range(1000)]


def test_a_finalizer_may_log_while_a_line_is_put(tmp_path: Path) -> None:
    """A garbage collection can run anywhere, and asyncio logs in finalizers."""
    path = tmp_path / "log"
    writer = LineWriter(str(path))
    writer.start()
    with writer._changed:
        writer.put(b"from a finalizer\n")
    writer.close()
    assert path.read_bytes() == b"from a finalizer\n"


def test_what_tells_of_the_access_log_does_not_depend_on_a_handler(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process without a process log: Python prints warnings to standard error."""
    monkeypatch.setattr(logging.getLogger("skewgate.log"), "propagate", False)
    writer = LineWriter(pipe.path)
    writer.start()
    writer.put(line(0) * (2 * MAX_BACKLOG // LONG))
    writer.put(b"next\n")
    pipe.read_until(lambda lines: lines[-1] == "next")
    writer.close()
    assert writer.dropped == 2 * MAX_BACKLOG // LONG


# --- several processes -------------------------------------------------------------------------------------

WRITER: Final = """
import sys
from gateway.telemetry.line_writer import STDOUT, LineWriter
name, number = sys.argv[1], int(sys.argv[2])
writer = LineWriter(sys.argv[3] if sys.argv[3:] else STDOUT)
writer.start()
print("ready", file=sys.stderr, flush=True)
sys.stdin.readline()
for index in range(number):
    length = 9000 if index % 10 == 0 else 300
    writer.put((f"{name} {index} ".ljust(length, name) + "\\n").encode())
writer.close()
"""
"""Writes lines of its own letter; each tenth is longer than what a pipe takes at once."""


def started(stdout: int, *arguments: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, *arguments],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == b"ready\n"
    return process


def begin(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def whole(lines: list[str]) -> list[str]:
    """Those that one process wrote, and that are as long as it made them."""
    return [text for text in lines if len(text) in {300, 9000} and set(text) <= {text[0], " ", *"0123456789"}]


def all_of(reader: int) -> bytes:
    found = bytearray()
    while data := os.read(reader, 1 << 16):
        found += data
    return bytes(found)


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_R_B8_lines_of_several_processes_stay_whole_in_a_pipe_and_in_a_socket(kind: str) -> None:
    """Standard output of workers. The socket is how journald reads it."""
    reader, stdout = os.pipe() if kind == "pipe" else (each.detach() for each in socket.socketpair())
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += [started(stdout, name, "1000") for name in "abc"]
        os.close(stdout)
        begin(processes)
        lines = all_of(reader).decode().splitlines()
    finally:
        os.close(reader)
        end(processes)

    assert len(lines) == 3000
    assert whole(lines) == lines
    for name in "abc":
        assert [int(text.split()[1]) for text in lines if text[0] == name] == list(range(1000))


def test_R_B8_a_process_that_is_killed_while_it_writes_holds_nobody_up() -> None:
    """It has the lock, since nobody reads."""
    reader, stdout = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += [started(stdout, name, "1000") for name in "ab"]
        os.close(stdout)
        begin(processes[:1])
        first = os.read(reader, 1)  # the pipe is about to be full
        processes[0].kill()
        processes[0].wait()
        begin(processes[1:])
        lines = (first + all_of(reader)).decode().splitlines()
    finally:
        os.close(reader)
        end(processes)

    complete = whole(lines)
    torn = len(lines) - len(complete)
    assert torn <= 1, "only a line of 9,000 bytes is not written at once"
    assert Counter(text[0] for text in complete)["b"] >= 1000 - torn


@pytest.mark.processes
def test_lines_of_several_processes_stay_whole_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += [started(subprocess.DEVNULL, name, "1000", str(path)) for name in "abc"]
        begin(processes)
        for process in processes:
            process.wait(DEADLINE)
    finally:
        end(processes)

    lines = path.read_text().splitlines()
    assert len(lines) == 3000
    assert whole(lines) == lines


def test_a_line_that_another_process_could_not_finish_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk meets all of them, and one has written half a line."""
    path, disk = tmp_path / "log", FullDisk(monkeypatch)
    writer = LineWriter(str(path))
    writer.start()
    writer.put(b"lost\n")
    wait_until(lambda: writer.dropped == 1)
    path.write_bytes(b"half a li")
    disk.full = False
    writer.put(b"next\n")
    writer.close()

    assert path.read_bytes() == b"half a li\nnext\n"


def test_a_lock_that_the_kernel_refuses_is_asked_for_again(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    lockf, refused = fcntl.lockf, [errno.EDEADLK, errno.EDEADLK]

    def refuse(fd: int, command: int) -> None:
        if refused:
            raise OSError(refused.pop(), "Resource deadlock avoided")
        lockf(fd, command)

    monkeypatch.setattr("gateway.telemetry.line_writer.fcntl.lockf", refuse)
    writer = LineWriter(pipe.path)
    writer.start()
    writer.put(b"a line\n")
    pipe.read_until(lambda lines: lines == ["a line"])
    writer.close()
    assert not refused


def test_a_stream_that_cannot_be_locked_is_written_all_the_same(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, command: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr("gateway.telemetry.line_writer.fcntl.lockf", refuse)
    writer = LineWriter(pipe.path)
    writer.start()
    writer.put(b"a line\n")
    pipe.read_until(lambda lines: lines == ["a line"])
    writer.close()
