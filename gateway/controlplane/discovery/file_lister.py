"""Source `file`: a list of backends in a file, read again when it has changed.

Changes are found by the file's status, through symbolic links: a file that is renamed over the old one, and
the links of a Kubernetes ConfigMap, are noticed like any other change. This is done in a daemon thread: a
file system that hangs blocks neither the event loop nor the end of the process.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeAlias, final

from gateway.controlplane.discovery.lister import Answer, Listed, Lister
from gateway.controlplane.name_lookup import Failed
from gateway.core.fleet.source import Address
from gateway.settings.target_file import MAX_SIZE, TargetsError, read_targets

INTERVAL: Final = 1.0
"""Seconds between two polls. One takes about 50 µs, in a thread."""

PATIENCE: Final = 5.0
"""Seconds after which a file system that does not answer is reported."""

RECENT: Final = 2.0
"""Seconds after a change in which every poll reads the file: one that is written in place may be complete a
moment later with the same times."""

Seen: TypeAlias = tuple[int, ...]
"""File status by which a change is recognized: times, size, inode and device."""


@final
class FileLister(Lister):
    """Lister of the targets in the file at `path`."""

    def __init__(self, path: str, *, interval: float = INTERVAL, patience: float = PATIENCE) -> None:
        self._path = path
        self._interval = interval
        self.pause_after_failure = interval  # a broken file costs nobody more than a good one
        self._patience = patience
        self._seen: Seen | None = None
        self._answer: tuple[Address, ...] | Failed = Failed("it was not read yet")
        self._reading: asyncio.Future[None] | None = None

    async def poll(self) -> Answer:
        """Return the targets. The file is read if it has changed."""
        if self._reading is None:
            self._reading = _in_daemon_thread(self._read)
        done, _ = await asyncio.wait([self._reading], timeout=self._patience)
        if not done:
            return Failed("it cannot be read: the file system does not answer")
        reading, self._reading = self._reading, None
        reading.result()
        answer = self._answer
        return answer if isinstance(answer, Failed) else Listed(answer, self._interval)

    def _read(self) -> None:
        """Read the file, in a thread. One read at a time."""
        try:
            # Without O_NONBLOCK a pipe of this name would block.
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            self._fail(error)
            return
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                self._seen, self._answer = None, Failed("it is not a regular file")
                return
            seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev)
            if seen == self._seen:
                return
            with os.fdopen(fd, "rb", closefd=False) as file:
                data = file.read(MAX_SIZE + 1)
            self._seen = seen if time.time() - status.st_mtime > RECENT else None
            self._answer = read_targets(data, self._path)
        except TargetsError as error:
            self._answer = Failed(str(error))
        except OSError as error:
            self._fail(error)
        finally:
            os.close(fd)

    def _fail(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        self._seen, self._answer = None, Failed(f"it cannot be read: {reason.lower()}")


def _in_daemon_thread(work: Callable[[], None]) -> asyncio.Future[None]:
    """Run `work` in a daemon thread. The end of the process does not wait for it."""
    ended: Future[None] = Future()
    ended.set_running_or_notify_cancel()  # so that nobody can cancel it

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=run, name="skewgate-file", daemon=True).start()
    return asyncio.wrap_future(ended)
