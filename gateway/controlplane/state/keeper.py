"""Loads the state file at the start, and writes it whenever the state changes.

    file -> load_state -> Snapshot.configured(saved=…)
    SnapshotHolder -> StateKeeper -> a thread -> file

One write at a time. Changes that come together, or during a write, are written together. The text is made in
the thread, too, from an immutable snapshot: neither the event loop nor a request waits for it. A file that
cannot be used is reported in the log and never stops the gateway.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.state.file import StateFile, StateFileError
from gateway.controlplane.state.text import StateTextError, format_state, parse_state
from gateway.core.agreement.attachment import Registered
from gateway.core.agreement.record import AgreedRecord
from gateway.core.fleet.offer_state import SavedState
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.telemetry.status import StateWrites

RETRY_PAUSE: Final = 10.0
"""Seconds until a failed write is repeated if nothing changes: people need time to empty a full disk."""
PAUSE: Final = 0.25
"""Seconds that a change of the state waits for others before it is written, unless somebody waits for the
file: the first probes of a thousand backends are a few writes."""
MAX_WAIT: Final = 5.0
"""Seconds that the response to an operator's command waits for the disk."""
MAX_NAMED: Final = 20
"""Largest number of entries that one log line names as not restored: the file may be another gateway's."""

_Saved: TypeAlias = tuple[Mapping[str, SavedState], Mapping[str, AgreedRecord], Mapping[str, Registered]]

_log = logging.getLogger("skewgate.state")


def wall_offset() -> float:
    """Difference between Unix time and the clock that dates facts, which means nothing to other processes."""
    return time.time() - time.monotonic()


def report_no_state_file() -> None:
    """Log that this gateway has no state file."""
    _log.info("no `state` file is configured: offers, pins and drains do not survive a restart")


def load_state(file: StateFile, services: Sequence[Service]) -> Mapping[str, SavedState]:
    """Load what the last run saved of `services`, as far as it fits. The rest is logged. Blocks."""
    try:
        text = file.read()
        if text is None:
            if file.was_used:
                _log.warning(
                    "%s is missing: starting without the offers, pins and drains of the last run", file.path
                )
            else:
                _log.info("%s does not exist yet: this is the first start", file.path)
            return {}
        parsed = parse_state(text, services, wall_offset())
    except (StateFileError, StateTextError) as problem:
        moved_to = file.mark_damaged()
        _log.warning(
            "%s is ignored, so the offers, pins and drains of the last run are lost: %s; %s",
            *(file.path, problem, f"it will be moved to {moved_to}" if moved_to else "it stays where it is"),
        )
        return {}
    if parsed.dropped:
        more = len(parsed.dropped) - MAX_NAMED
        entries = "; ".join(parsed.dropped[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")
        _log.warning("not restored from %s: %s", file.path, entries)
    return parsed.saved


@final
class StateKeeper:
    """Writer of the state file, from `start` to `close`, on the running loop.

    It writes `Snapshot.saved` when that changes, and with it what `records` returns (what workers hold of the
    offers, or are about to) and `registrations` (those of one of several replicas)."""

    def __init__(
        self,
        file: StateFile,
        snapshot_holder: SnapshotHolder,
        *,
        records: Callable[[], Mapping[str, AgreedRecord]] = dict,
        registrations: Callable[[], Mapping[str, Registered]] = dict,
        paused: bool = False,
    ) -> None:
        self._file = file
        self._snapshot_holder = snapshot_holder
        self._records = records
        self._registrations = registrations
        self._saved: _Saved | None = None
        """State that was last written to the state file; None: nothing of this run."""
        self._changes = 1
        """Number of changes of the state to save; the start counts as one."""
        self._attempted = 0
        """Value of `_changes` when the last finished attempt to write the state file began."""
        self._failing = False
        self._written_at = 0.0
        """Unix time of the last write of the state file; 0: none."""
        self._writes = 0
        self._failures = 0
        self._closing = False
        self._paused = paused
        """Whether another process writes the state file."""
        self._writing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        """Event that is set when somebody waits for the state file to be written."""
        self._attempt_ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    def writes(self) -> StateWrites:
        """Statistics of the writes of the state file, for the metrics."""
        return StateWrites(not self._failing, self._written_at, self._writes, self._failures)

    async def start(self) -> None:
        """Begin to write the state file. The first write has ended when this returns."""
        self._unsubscribe = self._snapshot_holder.subscribe(self._on_change)
        # Owned by this object until `close`.
        self._task = asyncio.get_running_loop().create_task(self._write_on_change(), name="state")
        await self.written()

    async def written(self) -> bool:
        """Wait until the state file has all changes. False: the write failed, or takes too long."""
        change = self._changes
        if self._attempted < change:
            self._hurry.set()
        try:
            async with asyncio.timeout(MAX_WAIT):
                while self._attempted < change:
                    await self._attempt_ended.wait()
        except TimeoutError:
            return False
        return not self._failing

    async def write(self) -> bool:
        """Write the state file even without a change of the snapshot, and wait as `written` does."""
        self._changes += 1
        self._wake.set()
        return await self.written()

    async def pause(self) -> None:
        """Stop writing the state file for another process. Afterwards no write is under way."""
        await self.written()
        self._paused = True
        async with self._writing:
            return

    def resume(self) -> None:
        """Begin to write the state file again, as no other process writes it."""
        self._paused = False
        self._saved = None
        self._changes += 1
        self._wake.set()

    async def close(self) -> None:
        """Write the last state if it is not in the file yet, and close the file."""
        self._snapshot_holder.notify_now()
        self._unsubscribe()
        if self._task is not None:
            self._closing = True
            self._wake.set()
            self._hurry.set()
            await self._task
            self._task = None
        self._file.close()

    def _on_change(self, before: Snapshot, after: Snapshot) -> None:
        self._changes += 1
        self._wake.set()

    async def _write_on_change(self) -> None:
        """Write the state file after each change, several changes together. A failed write is repeated."""
        while True:
            self._wake.clear()
            self._hurry.clear()
            await self._attempt()
            while not self._failing and self._attempted == self._changes and not self._closing:
                await self._wake.wait()
                self._wake.clear()
            if self._closing and (self._failing or self._attempted == self._changes):
                return
            wanted, pause = (self._wake, RETRY_PAUSE) if self._failing else (self._hurry, PAUSE)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await wanted.wait()

    async def _attempt(self) -> None:
        change, snapshot = self._changes, self._snapshot_holder.current
        records, registrations = self._records(), self._registrations()
        try:
            async with self._writing:
                if not self._paused and await asyncio.to_thread(
                    self._write, snapshot, records, registrations, wall_offset()
                ):
                    self._writes += 1
                    self._written_at = time.time()
        except StateFileError as problem:
            if not self._failing:
                _log.error(
                    "%s cannot be written, offers, pins and drains would be lost at a restart: %s",
                    *(self._file.path, problem),
                )
            self._failing = True
            self._failures += 1
        else:
            if self._failing:
                _log.info("%s is written again", self._file.path)
            self._failing = False
        self._attempted = change
        # All waiting callers wake up, and each checks whether its own change is written.
        self._attempt_ended.set()
        self._attempt_ended.clear()

    def _write(
        self,
        snapshot: Snapshot,
        records: Mapping[str, AgreedRecord],
        registrations: Mapping[str, Registered],
        offset: float,
    ) -> bool:
        """Write the state file, in a thread. False: it has this state already. Raises `StateFileError`."""
        saved = snapshot.saved(), records, registrations
        if not self._failing and saved == self._saved:
            return False
        self._file.replace(format_state(snapshot, offset, records, registrations))
        self._saved = saved
        return True
