"""What survives a restart: read from the state file at the start, written whenever it changes.

    file -> recall -> Snapshot.configured(kept=…)        cell -> state_text -> a thread -> file

One write at a time, changes meanwhile make one more; the event loop never waits for the disk, and no request
does. A file that cannot be used is said in the log and never stops the gateway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from gateway.controlplane.cell import Cell
from gateway.controlplane.state_file import FileTroubleError, StateFile
from gateway.controlplane.state_text import StateTextError, recall, state_text
from gateway.core.memory import Kept
from gateway.core.service import Service
from gateway.core.snapshot import Snapshot

RETRY: Final = 10.0
"""Seconds until a write that failed is tried again when nothing changes: a full disk is emptied by people."""

PATIENCE: Final = 5.0
"""Seconds for which an order waits for the disk before it is answered."""

MOST_NAMED: Final = 20
"""Of what a file holds in vain, in one line of the log: it may be another gateway's."""

_log = logging.getLogger("skewgate.state")


def say_that_nothing_is_kept() -> None:
    """For a gateway without a state file."""
    _log.info("nothing is kept across a restart: offers, pins and drains need a `state` file")


def recalled(file: StateFile, services: Sequence[Service]) -> Mapping[str, Kept]:
    """What the last run kept of `services`, as far as it can be believed; one warning says what is lost.
    Blocks."""
    try:
        text = file.read()
        if text is None:
            _log.warning(
                "%s does not exist: starting without offers, pins and drains of an earlier run", file.path
            )
            return {}
        found = recall(text, services)
    except (FileTroubleError, StateTextError) as problem:
        aside = file.put_aside()
        _log.warning(
            "%s cannot be used, offers, pins and drains of the last run are lost: %s; %s",
            *(file.path, problem, f"it is moved to {aside}" if aside else "it stays where it is"),
        )
        return {}
    if found.lost:
        named, more = found.lost[:MOST_NAMED], len(found.lost) - MOST_NAMED
        told = "; ".join(named) + (f"; and {more} more" if more > 0 else "")
        _log.warning("not taken over from %s: %s", file.path, told)
    return found.kept


@final
class StateKeeper:
    """Writes what should be kept of the cell's snapshots, from `start` to `close`, on the running loop."""

    def __init__(self, file: StateFile, cell: Cell, *, retry: float = RETRY) -> None:
        self._file = file
        self._cell = cell
        self._retry = retry
        self._kept = cell.current.kept()
        self._changes = 1
        """How often what should be in the file has changed; the first time is the start."""
        self._tried = 0
        """Up to which change an attempt to write has ended."""
        self._failing = False
        self._closing = False
        self._wake = asyncio.Event()
        self._attempt_ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None

    async def start(self) -> None:
        """The file holds the present state when this returns, or the log says why it does not."""
        self._unsubscribe = self._cell.subscribe(self._changed)
        # Owned by this object until `close`.
        self._task = asyncio.get_running_loop().create_task(self._write_on_change(), name="state")
        await self.written()

    async def written(self) -> bool:
        """Wait until all changes up to now are in the file; False: they cannot be written, or not soon."""
        upto = self._changes
        try:
            async with asyncio.timeout(PATIENCE):
                while self._tried < upto:
                    await self._attempt_ended.wait()
        except TimeoutError:
            return False
        return not self._failing

    async def close(self) -> None:
        """Writes the last state, if it is not there yet."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._task is not None:
            self._closing = True
            self._wake.set()
            await self._task
            self._task = None
        self._file.close()

    def _changed(self, before: Snapshot, after: Snapshot) -> None:
        kept = after.kept()
        if kept != self._kept:
            self._kept = kept
            self._changes += 1
            self._wake.set()

    async def _write_on_change(self) -> None:
        """One attempt for every change, or for all that came during the last one; again and again while it
        fails."""
        while True:
            if self._failing or self._tried < self._changes:
                await self._attempt()
            if self._tried < self._changes and not self._failing:
                continue
            if self._closing:
                return
            try:
                async with asyncio.timeout(self._retry if self._failing else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def _attempt(self) -> None:
        upto, text = self._changes, state_text(self._cell.current)
        try:
            await asyncio.to_thread(self._file.replace, text)
        except FileTroubleError as problem:
            if not self._failing:
                _log.error(
                    "%s cannot be written, offers, pins and drains would be lost at a restart: %s",
                    *(self._file.path, problem),
                )
            self._failing = True
        else:
            if self._failing:
                _log.info("%s is written again", self._file.path)
            self._failing = False
        self._tried = upto
        # Whoever waits is woken, and looks for himself whether it was his change.
        self._attempt_ended.set()
        self._attempt_ended.clear()
