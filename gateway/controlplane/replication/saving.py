"""Saves the record of a replica before it acknowledges it, or joins with it.

A replica that restarts with an older record than it had acknowledged would serve what it had agreed to give
up. So a round checks `is_saved` without waiting, and `written` is called after each write. The file also says
when this replica was attached last: one that restarts without it, or longer than `forget` ago, answers
nothing while the store is away. Knows no store and no disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, final

from gateway.controlplane.replication.clocks import Clocks
from gateway.controlplane.replication.membership import NEVER, Membership
from gateway.controlplane.state.text import MAX_IDS
from gateway.core.agreement.attachment import LastAttached, Registered
from gateway.core.agreement.record import AgreedRecord
from gateway.runtime.process import end_tasks

SAVE_WAIT: Final = 2.0
"""Seconds that an acknowledgement waits for the state file."""
_RECORDED: Final = 60.0
"""Seconds between two writes of the moment at which this replica was last attached."""
_RECORDED_SHARE: Final = 0.25
"""Upper bound of the pause between writes of the last attachment, as a share of `forget`."""

_log = logging.getLogger("skewgate.agreement")


@final
@dataclass(slots=True)
class _Filed:
    """Content of the state file about one membership, written or being written."""

    wanted: tuple[object, ...] = ()
    """Agreed record and registration ids in the file; empty: nothing of this run."""
    last: LastAttached | None = None
    """Last moment at which this replica was attached, in the form of the state file."""
    recorded_at: float = NEVER
    """Last attached moment, by the clock of deadlines; `NEVER`: an earlier process wrote it."""


@final
class Saving:
    """Writer of one replica's agreed records to the state file, for the services of `members`."""

    def __init__(
        self,
        replica: str,
        members: Mapping[str, Membership],
        save: Callable[[], Awaitable[bool]] | None,
        clocks: Clocks,
        written: Callable[[], None],
        forget: float | None,
    ) -> None:
        self._replica = replica
        self._members = members
        self._save = save
        self._clocks = clocks
        self._written = written
        self._filed: dict[Membership, _Filed] = {}
        self._task: asyncio.Task[None] | None = None
        self._unsaved = False
        """Whether the last write to the file failed or was slow: acknowledgements are sent without it."""
        self._ended = False
        self._period = _RECORDED if forget is None else min(_RECORDED, _RECORDED_SHARE * forget)

    def is_saved(self, me: Membership) -> bool:
        """Whether the state file has the record that this replica will acknowledge, or join with."""
        return self._save is None or self._filed_of(me).wanted == self._wanted(me)

    def save_what_is_new(self) -> None:
        """Begin to write the state file if something is new, unless a write is under way."""
        if self._save is None or self._task is not None:
            return
        if any(not self.is_saved(me) or self._is_to_be_recorded(me) for me in self._members.values()):
            # Owned by this object until `close`.
            self._task = asyncio.get_running_loop().create_task(self._write(), name="replication-state")

    async def close(self) -> None:
        """Cancel the write of the state file that is under way."""
        await end_tasks(self._task)

    async def end(self) -> None:
        """Note in the file that this replica was not attached, because its registrations end: others may then
        refuse what is on offer here. A process that reads the file answers nothing before it has joined."""
        self._ended = True
        if self._save is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAVE_WAIT / 2):
                    await self._save()

    def records(self) -> Mapping[str, AgreedRecord]:
        """Agreed records that the state file must hold, by service."""
        found = {name: me.to_save for name, me in self._members.items()}
        return {name: record for name, record in found.items() if record is not None}

    def registrations(self) -> Mapping[str, Registered]:
        """Registrations that the state file must hold, by service."""
        return {
            name: Registered(self._ids(me), None if self._ended else self._filed_of(me).last)
            for name, me in self._members.items()
        }

    def _filed_of(self, me: Membership) -> _Filed:
        filed = self._filed.get(me)
        if filed is None:
            filed = self._filed[me] = _Filed(last=me.last_before)
        return filed

    def _ids(self, me: Membership) -> tuple[str, ...]:
        # The oldest: those after them never reached the store, or they would have ended theirs.
        return (self._replica, *me.predecessors[1 - MAX_IDS :])

    def _wanted(self, me: Membership) -> tuple[object, ...]:
        return me.to_save, self._ids(me)

    def _is_to_be_recorded(self, me: Membership) -> bool:
        """Whether the moment of attachment in the file is of before this attachment, or too old."""
        if me.held is None or not me.beats or not me.joined:
            return False
        return self._filed_of(me).recorded_at < max(me.attached_at, me.sent_at - self._period)

    async def _write(self) -> None:
        """Write the state file. A slow or full disk delays acknowledgements only for `SAVE_WAIT`."""
        assert self._save is not None
        self._filed = {me: self._filed_of(me) for me in self._members.values()}
        for me, filed in self._filed.items():
            if me.beats and me.joined:  # else it was attached before this process began
                filed.last, filed.recorded_at = self._clocks.last_attached(me.sent_at), me.sent_at
        begun = {me: self._wanted(me) for me in self._filed}
        saved = False
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAVE_WAIT):
                    saved = await self._save()
            self._report(saved=saved)
        finally:
            self._task = None
        for me, wanted in begun.items():
            self._filed_of(me).wanted = wanted
        self._written()

    def _report(self, *, saved: bool) -> None:
        if self._unsaved and saved:
            _log.info("the acknowledgements of this replica can be saved again")
        elif not self._unsaved and not saved:
            _log.warning(
                "the state file was not written in time: this replica acknowledges without it; if it is "
                "killed now, remove the file before you start it again"
            )
        self._unsaved = not saved
