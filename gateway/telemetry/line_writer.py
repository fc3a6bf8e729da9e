"""Writer of whole lines to a standard stream or a file, for the access log and the process log.

    lines -> a bounded queue -> a thread -> write(2)

The caller never waits and never sees an error: a full disk or a stopped reader blocks only the thread
(threats L2, R-B8). Lines that do not fit are dropped and counted, and one line reports the number as soon as
lines can be written again.

Several processes may write to one stream: workers do, and the old and the new gateway at a take-over. Lines
stay whole. In a file the kernel orders what is appended. A pipe or a socket takes a long write in parts, so
all processes of the gateway lock it until all parts are written. If the holder is killed, the kernel releases
the lock, and the output ends with a whole line, unless that line is longer than a page (`PIPE_BUF`).
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import select
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Final, TypeAlias, final

MAX_BACKLOG: Final = 4 * 1024 * 1024
"""Maximum bytes that wait for the thread; beyond it all lines are dropped until half of it is written."""

CLOSE_TIMEOUT: Final = 2.0
"""Maximum seconds for which `close` waits until the thread has written the lines that are left."""

STDOUT: Final = 1
STDERR: Final = 2

_NAMES: Final = {STDOUT: "standard output", STDERR: "standard error"}

_SAME_STREAM: Final = threading.Lock()
"""Lock held during a write if both standard streams lead to the same pipe (`2>&1`). A write that waits for
the reader is cut in two, and a line of the other stream must not get in between."""

_AGAIN: Final = 0.01
"""Seconds between two attempts to get a lock that the kernel refuses with EDEADLK. It sees processes that
wait for each other, and does not see that other threads hold the locks."""

_IN_PARTS: Final = frozenset({stat.S_IFIFO, stat.S_IFSOCK})
"""File types that take a long write in parts: pipes and sockets."""

_LINE_END: Final = ord("\n")

_Entry: TypeAlias = bytes | int | None
"""Entry of the writer's queue: whole lines, a number of lines dropped here, or None to reopen the file."""

_log = logging.getLogger("skewgate.log")


@final
class LineWriter:
    """Bounded queue of lines, and the thread that writes them. `target` is a standard stream or the path of a
    file. Raises `OSError` if the file cannot be opened.

    `lost_line` makes the line that reports dropped lines in the stream itself, in their place. Without it the
    process log reports them.
    """

    def __init__(self, target: int | str, lost_line: Callable[[str], bytes] | None = None) -> None:
        self._path = target if isinstance(target, str) else None
        self._name = target if isinstance(target, str) else _NAMES[target]
        self._fd = _open(target) if isinstance(target, str) else target
        self._lost_line = lost_line
        self._changed = threading.Condition()
        self._queue: list[_Entry] = []
        self._waiting = 0
        self._dropping = self._started = self._stopping = False
        self._thread: threading.Thread | None = None
        self.dropped = 0
        """Number of lines so far that were dropped or could not be written."""
        self._turn = threading.Lock() if self._path or not os.path.sameopenfile(1, 2) else _SAME_STREAM
        self._torn = False
        """Whether the last line that was written was cut short."""
        self._lost = 0
        self._failed = False
        self._error = ""
        """Error of the last write that lost lines; empty: they are lost because the reader has stopped."""

    def start(self) -> None:
        """Allows the thread to start, at the first line: a process that still forks must not own one."""
        with self._changed:
            self._started = True
            if self._queue:
                self._wake()

    def put(self, lines: bytes) -> None:
        """Queues whole lines for writing, or drops them if too many wait. Any thread may call it."""
        with self._changed:
            room = MAX_BACKLOG // 2 if self._dropping else MAX_BACKLOG
            self._dropping = self._stopping or self._waiting + len(lines) > room
            if self._dropping:
                self._drop(lines)
                return
            self._waiting += len(lines)
            self._queue.append(lines)
            self._wake()

    def reopen(self) -> None:
        """Opens the writer's file again for log rotation, after the lines queued so far."""
        with self._changed:
            self._queue.append(None)
            self._wake()

    def close(self) -> None:
        """Closes the writer: writes what is left, and waits for that at most `CLOSE_TIMEOUT` seconds."""
        with self._changed:
            if self._stopping:
                return
            self._started = self._stopping = True
            if self._queue or self._thread is not None:
                self._wake()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT)
            if self._thread.is_alive():
                # The descriptor stays open: closed during a write, its number could become another's.
                return
        if self._path is not None:
            os.close(self._fd)

    def _drop(self, lines: bytes) -> None:
        number = lines.count(b"\n")
        self.dropped += number
        if self._queue and isinstance(last := self._queue[-1], int):
            self._queue[-1] = last + number
        else:
            self._queue.append(number)

    def _wake(self) -> None:
        if self._thread is not None:
            self._changed.notify()
        elif self._started:
            thread = threading.Thread(target=self._run, name=f"skewgate-log {self._name}", daemon=True)
            with suppress(RuntimeError):  # no more threads: the next line tries again
                thread.start()
                self._thread = thread

    # --- in the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Writes queued lines, in the thread, all together: beside a busy event loop it seldom runs."""
        while True:
            with self._changed:
                while not (self._queue or self._stopping):
                    self._changed.wait()
                if not self._queue:
                    return
                queue, self._queue = self._queue, []
            for kind, entries in groupby(queue, type):
                if kind is bytes:
                    self._write_lines(b"".join(entry for entry in entries if isinstance(entry, bytes)))
                elif kind is int:
                    self._lost += sum(entry for entry in entries if isinstance(entry, int))
                else:
                    self._change_file()
            if self._lost and not (self._failed or self._queue):  # no line follows that would report it
                self._report_lost()

    def _write_lines(self, lines: bytes) -> None:
        if self._lost and self._lost_line is not None:
            self._report_lost()
        lost = self._write(lines)
        with self._changed:
            self._waiting -= len(lines)
            self.dropped += lost
        self._lost += lost
        if self._lost and not self._failed:
            self._report_lost()

    def _report_lost(self) -> None:
        """Reports lost lines in the stream itself, or in the process log after a successful write."""
        number = "1 line was" if self._lost == 1 else f"{self._lost} lines were"
        why = f"{self._name} failed: {self._error}" if self._error else f"the reader of {self._name} stopped"
        text = f"{number} lost because {why}"
        if self._lost_line is None:
            _log.warning("%s", text)
        elif self._write(self._lost_line(text)):
            return
        self._lost, self._error = 0, ""

    def _write(self, lines: bytes) -> int:
        """Writes `lines` and returns the number of lost ones. A line that was cut short gets an end."""
        form = _form(self._fd)
        with self._turn, _alone(self._fd, form):
            # Another process may have failed as well, in the middle of a line.
            torn = self._torn or (self._failed and _ends_amid_line(self._fd, form))
            lost = 0
            left = memoryview(b"\n" + lines if torn and lines else lines)
            while left:
                try:
                    written = os.write(self._fd, _at_once(left) if form in _IN_PARTS else left)
                except OSError as error:
                    if error.errno == errno.EAGAIN and self._wait_for_reader():
                        continue
                    self._error = error.strerror or str(error)
                    lost = bytes(left).count(b"\n") - (left[0] == _LINE_END)
                    break
                torn = left[written - 1] != _LINE_END
                left = left[written:]
            self._torn, self._failed = torn, bool(left)
            return lost

    def _wait_for_reader(self) -> bool:
        """Waits for the reader of a pipe that another process made non-blocking; False: nobody reads, and
        this process ends. Not by `select`, which knows no descriptors above 1023."""
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(1000 * CLOSE_TIMEOUT / 2)) or not self._stopping

    def _change_file(self) -> None:
        if self._path is None:
            return
        try:
            fd = _open(self._path)
        except OSError as error:
            _log.warning("cannot open %s, so the log stays in the old file: %s", self._path, error.strerror)
            return
        os.close(self._fd)
        self._fd = fd
        self._torn = False


def _form(fd: int) -> int:
    """Returns the file type of a descriptor as `stat` names it; 0: it is closed, and the write will fail."""
    try:
        return stat.S_IFMT(os.fstat(fd).st_mode)
    except OSError:
        return 0


def _at_once(lines: memoryview) -> memoryview:
    """Returns the whole lines, or the part of a longer one, that a pipe or socket takes in one piece."""
    if len(lines) <= select.PIPE_BUF:
        return lines
    size = lines[: select.PIPE_BUF].tobytes().rfind(b"\n") + 1 or select.PIPE_BUF
    return lines[:size]


@contextmanager
def _alone(fd: int, form: int) -> Iterator[None]:
    """Keeps other processes from writing to a pipe or socket within the block. Waits for its turn."""
    if form not in _IN_PARTS or not _lock(fd):
        yield
        return
    try:
        yield
    finally:
        fcntl.lockf(fd, fcntl.LOCK_UN)


def _lock(fd: int) -> bool:
    """Locks a stream for this process; False: this kind of stream cannot be locked here."""
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno != errno.EDEADLK:
                return False
            time.sleep(_AGAIN)
        else:
            return True


def _ends_amid_line(fd: int, form: int) -> bool:
    """Whether the last line of a file lacks its line end; False if that is not known."""
    if form != stat.S_IFREG:
        return False
    try:
        size = os.fstat(fd).st_size
        with Path(f"/proc/self/fd/{fd}").open("rb", buffering=0) as file:
            return size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
    except OSError:
        return False


def _open(path: str) -> int:
    """Opens a log file for appending. With `O_APPEND` the kernel orders the lines of several processes."""
    return os.open(Path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
