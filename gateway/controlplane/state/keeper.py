"""Keeps what survives a restart: loads it from the state file at the start, writes it whenever it changes.

    file -> load_state -> Snapshot.configured(saved=…)
    SnapshotHolder -> StateKeeper -> a thread -> file

One write at a time; changes that come during a write are written together in the next one. The event loop and
requests never wait for the disk. A file that cannot be used is reported in the log and never stops the
gateway.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.state.file import StateFile, StateFileError
from gateway.controlplane.state.text import StateTextError, format_state, parse_state
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot

RETRY_PAUSE: Final = 10.0
"""Seconds until a failed write is tried again when nothing changes: people need time to empty a full disk."""

MAX_WAIT: Final = 5.0
"""Seconds for which the response to an operator's command waits for the disk."""

MAX_NAMED: Final = 20
"""Entries that one log line names when they cannot be restored: the file may be another gateway's."""

_log = logging.getLogger("skewgate.state")


def wall_offset() -> float:
    """Seconds since 1970, less those of the clock that dates facts: times in the file must mean something to
    another process."""
    return time.time() - time.monotonic()


def report_no_state_file() -> None:
    """Log that this gateway has no state file."""
    _log.info("no `state` file is configured: offers, pins and drains do not survive a restart")


def load_state(file: StateFile, services: Sequence[Service]) -> Mapping[str, SavedState]:
    """What the last run saved of `services`, as far as it fits the configuration. One warning reports what is
    not restored. Blocks."""
    try:
        text = file.read()
        if text is None:
            _log.warning(
                "%s does not exist: starting without the offers, pins and drains of an earlier run", file.path
            )
            return {}
        parsed = parse_state(text, services, wall_offset())
    except (StateFileError, StateTextError) as problem:
        moved_to = file.mark_damaged()
        _log.warning(
            "%s cannot be used, the offers, pins and drains of the last run are lost: %s; %s",
            *(file.path, problem, f"it is moved to {moved_to}" if moved_to else "it stays where it is"),
        )
        return {}
    if parsed.dropped:
        more = len(parsed.dropped) - MAX_NAMED
        entries = "; ".join(parsed.dropped[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")
        _log.warning("not restored from %s: %s", file.path, entries)
    return parsed.saved


@final
class StateKeeper:
    """Writes `Snapshot.saved` to the file when it changes, from `start` to `close`, on the running loop."""

    def __init__(
        self, file: StateFile, snapshot_holder: SnapshotHolder, *, retry_pause: float = RETRY_PAUSE
    ) -> None:
        self._file = file
        self._snapshot_holder = snapshot_holder
        self._retry_pause = retry_pause
        self._saved = snapshot_holder.current.saved()
        self._changes = 1
        """How often what should be in the file has changed; the start counts as a change."""
        self._attempted = 0
        """The value of `_changes` at the beginning of the last finished attempt to write."""
        self._failing = False
        self._closing = False
        self._wake = asyncio.Event()
        self._attempt_ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    async def start(self) -> None:
        """When this returns, the file holds the present state, or the log says why it does not."""
        self._unsubscribe = self._snapshot_holder.subscribe(self._on_change)
        # Owned by this object until `close`.
        self._task = asyncio.get_running_loop().create_task(self._write_on_change(), name="state")
        await self.written()

    async def written(self) -> bool:
        """Wait until all changes up to now are in the file. False: the write failed, or takes too long."""
        change = self._changes
        try:
            async with asyncio.timeout(MAX_WAIT):
                while self._attempted < change:
                    await self._attempt_ended.wait()
        except TimeoutError:
            return False
        return not self._failing

    async def close(self) -> None:
        """Write the last state if it is not in the file yet, and close the file."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._task is not None:
            self._closing = True
            self._wake.set()
            await self._task
            self._task = None
        self._file.close()

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        saved = after.saved()
        if saved != self._saved:
            self._saved = saved
            self._changes += 1
            self._wake.set()

    async def _write_on_change(self) -> None:
        """One attempt for all changes that came during the last one; further attempts while they fail."""
        while True:
            if self._failing or self._attempted < self._changes:
                await self._attempt()
            if self._attempted < self._changes and not self._failing:
                continue
            if self._closing:
                return
            try:
                async with asyncio.timeout(self._retry_pause if self._failing else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def _attempt(self) -> None:
        change, text = self._changes, format_state(self._snapshot_holder.current, wall_offset())
        try:
            await asyncio.to_thread(self._file.replace, text)
        except StateFileError as problem:
            if not self._failing:
                _log.error(
                    "%s cannot be written, offers, pins and drains would be lost at a restart: %s",
                    *(self._file.path, problem),
                )
            self._failing = True
        else:
            if self._failing:
                _log.info("%s can be written again", self._file.path)
            self._failing = False
        self._attempted = change
        # All waiting callers wake up, and each checks whether its own change is written.
        self._attempt_ended.set()
        self._attempt_ended.clear()
