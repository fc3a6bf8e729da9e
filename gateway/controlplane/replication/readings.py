"""What was read of the store last: of each service what stands there, and of each replica its last beat.

Everything is one read, however many services there are. What has not changed since the last one is the same
`Reading`, and is not read by anybody again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, final

from gateway.controlplane.replication.following import Beat
from gateway.controlplane.replication.membership import NEVER
from gateway.controlplane.replication.reading import Reading, read_service
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.stores.store import Entry, Store

_SHARE_OF_READS: Final = 4.0
"""Between two reads of everything passes so many times what one has taken."""

_SHARE_OF_RESYNCS: Final = 50.0
"""The same while nothing seems to have changed."""

_MAX_NAMED: Final = 10
"""Foreign keys, or replicas, that one log line names."""

_log = logging.getLogger("skewgate.agreement")


@final
class Readings:
    """Of the services of `snapshot_holder`, under `prefix`. `boot_time`: the clock of deadlines."""

    def __init__(
        self, store: Store, prefix: str, snapshot_holder: SnapshotHolder, boot_time: Callable[[], float]
    ) -> None:
        self.prefix = prefix
        self.beats_prefix = f"{prefix.removesuffix('/')}:beats/"
        """Outside of `prefix`, so that a beat is no change there."""
        self.services: dict[str, Reading] = {}
        self.beats: dict[str, Beat] = {}
        self.revision = 0
        """Of the last read of everything."""
        self.stale = True
        """Something has changed since, as far as is known."""
        self.pause_until = NEVER
        """When everything may be read again, by the clock of the loop."""
        self._store = store
        self._snapshot_holder = snapshot_holder
        self._boot_time = boot_time
        self._read_at = NEVER
        self._seconds = 0.0

    def resync_at(self, ttl: float) -> float:
        """When everything is read again, even if nothing seems to have changed: somebody may have deleted
        keys by hand, which leaves no revision behind."""
        return self._read_at + max(ttl, _SHARE_OF_RESYNCS * self._seconds)

    async def read(self, names: Iterable[str]) -> set[str]:
        """Read everything. Returns those of these services about which something is new. Raises
        `StoreError`."""
        loop = asyncio.get_running_loop()
        began, self.stale = loop.time(), False
        contents = await self._store.read(self.prefix)
        changed = await self.read_beats()
        by_service: dict[str, dict[str, Entry]] = {name: {} for name in names}
        for key, entry in contents.entries.items():
            name, _, rest = key.removeprefix(self.prefix).partition("/")
            if name in by_service:
                by_service[name][rest] = entry
        for name, entries in by_service.items():
            known = self.services.get(name)
            # A store that was restored counts its revisions from an earlier one: no guard may use the later.
            if known is None or known.entries != entries or contents.revision < known.revision:
                self.services[name] = reading = self._reading(name, contents.revision, entries)
                changed.add(name)
                _warn(known, reading)
        self.revision, self._read_at = contents.revision, loop.time()
        self._seconds = self._read_at - began
        self.pause_until = self._read_at + _SHARE_OF_READS * self._seconds
        return changed

    async def read_beats(self) -> set[str]:
        """Whoever has a new beat is alive. Returns the services about which time alone may decide. Raises
        `StoreError`."""
        entries = (await self._store.read(self.beats_prefix)).entries
        now = self._boot_time()
        found = {key.removeprefix(self.beats_prefix): entry.revision for key, entry in entries.items()}
        for reading in self.services.values():
            for each in (*reading.live, *reading.unreadable):
                found.setdefault(each, 0)
        quiet = set()
        for each, revision in found.items():
            known = self.beats.get(each)
            if known is None or known.revision != revision:
                self.beats[each] = Beat(revision, now)
            else:
                quiet.add(each)
        self.beats = {each: beat for each, beat in self.beats.items() if each in found}
        return {
            name
            for name, reading in self.services.items()
            if reading.unreadable
            or reading.drained
            or len(reading.known) > len(reading.live)
            or not quiet.isdisjoint(reading.live)
        }

    def configured_anew(self, name: str) -> None:
        """The service is another object: what stands there may mean something else."""
        if (reading := self.services.get(name)) is not None:
            self.services[name] = self._reading(name, reading.revision, reading.entries)

    def _reading(self, name: str, revision: int, entries: Mapping[str, Entry]) -> Reading:
        service = self._snapshot_holder.current.views[name].service
        return read_service(service, f"{self.prefix}{name}/", self.beats_prefix, revision, entries)


def _warn(before: Reading | None, reading: Reading) -> None:
    if reading.foreign and (before is None or before.foreign != reading.foreign):
        _log.warning("foreign keys in the store are passed over: %s", ", ".join(reading.foreign[:_MAX_NAMED]))
    if reading.unclear and (before is None or before.unclear != reading.unclear):
        _log.warning(
            "%s: what stands here cannot be read; what was in force stays so, and this replica takes no step "
            "until an operator writes it anew: %s",
            *(reading.service.name, ", ".join(map(reading.key, reading.unclear))),
        )
    if reading.unreadable and (before is None or before.unreadable != reading.unreadable):
        _log.warning(
            "%s: what these replicas say cannot be read, and counts as no vote: %s",
            *(reading.service.name, ", ".join(reading.unreadable[:_MAX_NAMED])),
        )
