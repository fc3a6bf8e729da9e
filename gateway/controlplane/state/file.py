"""One small file that is replaced as a whole: a reader finds the old text or the new one, after a crash too.

    NAME.new, written and fsynced  ->  rename to NAME  ->  fsync of the folder

Blocks; knows no service and no event loop, which are the `keeper`'s. A symbolic link is followed once, at the
start, and stays one. `NAME.lock` is held from the first write on, so that two gateways never write one file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from gateway.errors import SkewgateError
from gateway.runtime.file_trust import (
    ForeignFileError,
    real_path,
    require_all_own,
    require_own,
    trusted_users,
)

MAX_SIZE: Final = 4 << 20
"""Bytes that are read at most. A service with a hundred drained backends takes a few KiB."""

MODE: Final = 0o600
"""Mode of a new file, less what the umask forbids: other users need not know the names of backends."""


class StateFileError(SkewgateError):
    """The file cannot be used; the text says why."""


@final
class StateFile:
    """The file at `path`. Call `read` first, then `replace` any number of times, then `close`. `lock` and
    `text`: of the gateway that is taken over, which knows better than the disk what is in force.
    `users`: whose files it relies on. Raises `ForeignFileError` for those of others."""

    def __init__(
        self,
        path: str | Path,
        lock: int | None = None,
        text: str | None = None,
        users: Collection[int] | None = None,
    ) -> None:
        self._users = trusted_users() if users is None else users
        self.path = real_path(path, self._users)
        require_all_own((self.path, self._beside(".lock")), self._users)
        self._new = self._beside(".new")
        self.lock = lock
        """The descriptor that holds the lock, for the gateway that takes over."""
        self._text = text
        self._damaged = False

    def read(self) -> str | None:
        """The text; None: there is no file. Raises `StateFileError` if it cannot be read as text."""
        if self._text is not None:
            return self._text
        try:
            # Without O_NONBLOCK a pipe of this name would block.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise StateFileError(f"it cannot be read: {self._reason(problem)}") from None
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise StateFileError("it is not a regular file")
            require_own(self.path, found, self._users)
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(MAX_SIZE + 1)
        except OSError as problem:
            raise StateFileError(f"it cannot be read: {self._reason(problem)}") from None
        except ForeignFileError as problem:
            raise StateFileError(str(problem)) from None
        finally:
            os.close(fd)
        if len(data) > MAX_SIZE:
            raise StateFileError(f"it is larger than {MAX_SIZE >> 20} MiB")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise StateFileError("it is not UTF-8 text") from None

    @property
    def was_used(self) -> bool:
        """Whether some gateway has had the lock: its file stays behind."""
        return os.path.lexists(self._beside(".lock"))

    def mark_damaged(self) -> Path | None:
        """Report that the content cannot be used: the next `replace` first moves it to `NAME.damaged`.

        Returns that path; None: it is not a regular file, and stays."""
        self._damaged = True
        try:
            movable = stat.S_ISREG(self.path.lstat().st_mode)
        except OSError:
            movable = False
        return self._beside(".damaged") if movable else None

    def replace(self, text: str) -> None:
        """The text is durable when this returns. Raises `StateFileError`: then the file holds either text,
        whole."""
        try:
            self._acquire_lock()
            if self._damaged:
                self._move_damaged()
            self._write(text.encode("utf-8"))
            self._new.replace(self.path)
            self._sync_folder()
        except OSError as problem:
            with suppress(OSError):
                self._new.unlink(missing_ok=True)
            raise StateFileError(self._reason(problem)) from None

    def close(self) -> None:
        """Let other gateways write the file, unless one that takes over has the lock, too."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _reason(self, problem: OSError) -> str:
        """Whose files they are is what people get wrong: after one start by hand as root they are root's."""
        reason = (problem.strerror or str(problem)).lower()
        if problem.errno not in (errno.EACCES, errno.EPERM):
            return reason
        return (
            f"{reason}; let user {os.geteuid()}, as whom this gateway runs, write {self.path.parent} "
            f"and own all files there whose names begin with {self.path.name}"
        )

    def _acquire_lock(self) -> None:
        """Become the only writer. The lock is another file, since every write replaces the state file."""
        if self.lock is not None:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._beside(".lock"), flags, MODE)
        try:
            require_own(self._beside(".lock"), os.fstat(fd), self._users)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ForeignFileError as problem:
            os.close(fd)
            raise StateFileError(str(problem)) from None
        except BlockingIOError:
            os.close(fd)
            raise StateFileError(
                "another gateway writes it: give each gateway its own `state` file"
            ) from None
        except OSError:
            pass  # a file system without locks: saving there without a lock is better than not saving
        self.lock = fd

    def _move_damaged(self) -> None:
        """Moves a regular file only: a folder or a pipe of this name is a mistake, not our state."""
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(self.path.lstat().st_mode):
                raise StateFileError("it is not a regular file")
            self.path.replace(self._beside(".damaged"))
        self._damaged = False

    def _write(self, data: bytes) -> None:
        """Write `NAME.new` and sync it to the disk. A file of that name, left behind by a killed process, is
        removed first: it might be a link to another file, which must not be overwritten."""
        self._new.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self._new, flags, MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _sync_folder(self) -> None:
        """Without this a power cut could lose the rename."""
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as problem:
            if problem.errno != errno.EINVAL:  # a file system on which folders cannot be synced
                raise
        finally:
            os.close(fd)
