"""One small file that is replaced as a whole: whoever reads it finds the old text or the new one, after a
crash as well.

    NAME.new, written and fsynced  ->  rename to NAME  ->  fsync of the folder

Blocks; knows no service and no event loop (that is `state`). A symbolic link is followed once, at the start,
and stays one. `NAME.lock` is held from the first write on, so that two gateways never write one file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from gateway.errors import SkewgateError

LARGEST: Final = 4 << 20
"""Bytes that are read. A service with a hundred drained backends takes a few KiB."""

MODE: Final = 0o600
"""Of a new file, less what the umask forbids: names of backends are nobody else's business."""


class FileTroubleError(SkewgateError):
    """The file cannot be used; the text says why."""


@final
class StateFile:
    """The file at `path`. `read` first, then `replace` as often as wanted, then `close`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.realpath(path))
        self._fresh = self._beside(".new")
        self._lock: int | None = None
        self._aside = False

    def read(self) -> str | None:
        """The text; None: there is no file. Raises `FileTroubleError` when it cannot be read as text."""
        try:
            # A pipe of this name must not make us wait.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise FileTroubleError(f"it cannot be read: {_reason(problem)}") from None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FileTroubleError("it is no ordinary file")
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(LARGEST + 1)
        except OSError as problem:
            raise FileTroubleError(f"it cannot be read: {_reason(problem)}") from None
        finally:
            os.close(fd)
        if len(data) > LARGEST:
            raise FileTroubleError(f"it is larger than {LARGEST >> 20} MiB")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise FileTroubleError("it is no text") from None

    def put_aside(self) -> Path | None:
        """What is there now is to become `NAME.damaged` before anything is written; returns that name. None:
        it is no ordinary file, and stays."""
        self._aside = True
        try:
            movable = stat.S_ISREG(self.path.lstat().st_mode)
        except OSError:
            movable = False
        return self._beside(".damaged") if movable else None

    def replace(self, text: str) -> None:
        """Durable when this returns. Raises `FileTroubleError`; the old text or the new one is there then,
        nothing else."""
        try:
            self._take()
            if self._aside:
                self._move_aside()
            self._write(text.encode("utf-8"))
            self._fresh.replace(self.path)
            self._sync_folder()
        except OSError as problem:
            with suppress(OSError):
                self._fresh.unlink(missing_ok=True)
            raise FileTroubleError(_reason(problem)) from None

    def close(self) -> None:
        """Let others write the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _take(self) -> None:
        """Become the one who writes. The lock stands beside the file, which every write replaces."""
        if self._lock is not None:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._beside(".lock"), flags, MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise FileTroubleError("another gateway writes it: give each a `state` of its own") from None
        except OSError:
            pass  # a file system without locks: to keep something there is worth more than to be sure
        self._lock = fd

    def _move_aside(self) -> None:
        """Only an ordinary file: a folder or a pipe of this name is somebody's mistake, not our state."""
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(self.path.lstat().st_mode):
                raise FileTroubleError("it is no ordinary file")
            self.path.replace(self._beside(".damaged"))
        self._aside = False

    def _write(self, data: bytes) -> None:
        """The new file, complete on the disk. One that a killed process left behind is removed first: never
        written through, wherever a link of its name may lead."""
        self._fresh.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self._fresh, flags, MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _sync_folder(self) -> None:
        """Or the new name itself might be lost with the power."""
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as problem:
            if problem.errno != errno.EINVAL:  # a file system on which folders cannot be synced
                raise
        finally:
            os.close(fd)


def _reason(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()
