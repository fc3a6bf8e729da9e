"""A small file that is replaced atomically: a reader finds the old text or the new one, even after a crash.

    NAME.new, written and fsynced  ->  rename to NAME  ->  fsync of the folder

Blocks; knows no service and no event loop (`keeper`). A symbolic link is followed once, at the start, and
stays one. `NAME.lock` is held from the first write on, so that two gateways never write one file.
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
"""Largest state file that is read, in bytes. A service with a hundred drained backends takes a few KiB."""
MODE: Final = 0o600
"""Mode of a new state file, before the umask: other users need not know the names of backends."""


class StateFileError(SkewgateError):
    """Error: the state file cannot be used. The text gives the reason."""


@final
class StateFile:
    """State file at `path`. Call `read` first, then `replace` any number of times, then `close`.

    `lock` and `text` come from the gateway that is taken over: its state is newer than the disk's. `users`:
    trusted owners of the files. Raises `ForeignFileError` if another user owns them."""

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
        """Descriptor that holds the state file's lock, for the gateway that takes over."""
        self._text = text
        self._damaged = False

    def read(self) -> str | None:
        """Read the text of the state file; None: there is no file. Raises `StateFileError`."""
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
        """Whether a gateway has ever held the state file's lock: the lock file stays behind."""
        return os.path.lexists(self._beside(".lock"))

    def mark_damaged(self) -> Path | None:
        """Note that the file's content is unusable: the next `replace` first moves it to `NAME.damaged`.
        Returns that path; None: it is no regular file, and stays."""
        self._damaged = True
        try:
            movable = stat.S_ISREG(self.path.lstat().st_mode)
        except OSError:
            movable = False
        return self._beside(".damaged") if movable else None

    def replace(self, text: str) -> None:
        """Replace the file's text durably. After a `StateFileError` it holds the old or the new text."""
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
        """Release the lock of the file. A gateway that has taken over still holds it."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _reason(self, problem: OSError) -> str:
        """Describe an error, with a hint for the usual one: after a start as root the files are root's."""
        reason = (problem.strerror or str(problem)).lower()
        if problem.errno not in (errno.EACCES, errno.EPERM):
            return reason
        return (
            f"{reason}; let user {os.geteuid()}, as whom this gateway runs, write {self.path.parent} "
            f"and own all files there whose names begin with {self.path.name}"
        )

    def _acquire_lock(self) -> None:
        """Become the only writer of the state file. The lock is a separate file: writes replace this one."""
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
        """Move a damaged state file away. A folder or a pipe of this name is a mistake, not our state."""
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(self.path.lstat().st_mode):
                raise StateFileError("it is not a regular file")
            self.path.replace(self._beside(".damaged"))
        self._damaged = False

    def _write(self, data: bytes) -> None:
        """Write `NAME.new` and sync it to the disk. A file of that name, left behind by a killed process, is
        removed first: it may be a link to a file that must not be overwritten."""
        self._new.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self._new, flags, MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _sync_folder(self) -> None:
        """Sync the state file's folder: without this a power failure could lose the rename."""
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as problem:
            if problem.errno != errno.EINVAL:  # a file system on which folders cannot be synced
                raise
        finally:
            os.close(fd)
