"""Keeps what was read last from the store: the keys of each service, and the last beat of each replica.

Everything is one read, however many services there are. A service without changes keeps its `Reading`, so
nobody reads it again. Unknown keys are logged and ignored.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

from gateway.controlplane.replication.entries import (
    DRAINED,
    DRAINED_BY,
    LiveEntry,
    ReplicaInfo,
    raised_of,
    read_drains,
    read_json,
    read_live,
    read_replica_info,
)
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.stores.store import Entry, Store
from gateway.core.agreement.ladder import LiveReplica, next_record
from gateway.core.agreement.raised import NOT_RAISED, Raised
from gateway.core.agreement.record import (
    FLOOR_FORM,
    FORM,
    AgreedRecord,
    UnreadableRecord,
    form_for_all,
    read_record,
    write_record,
)
from gateway.core.fleet.service import Service
from gateway.core.versions.version import Scheme, Version

DOC: Final = "doc"
PIN: Final = "pin"
RAISED: Final = "raised"
GONE: Final = "gone"
PROBE: Final = "probe"
"""Key that is written to ask all replicas for probes of the service; its revision is the question."""
LIVE: Final = "live/"
KNOWN: Final = "known/"

_SHARE_OF_READS: Final = 4.0
"""Pause between two reads of the whole store, in multiples of the time that one takes."""
_SHARE_OF_RESYNCS: Final = 50.0
"""Pause between reads of the whole store without known changes, in multiples of the time of one."""
_MAX_NAMED: Final = 10
"""Largest number of unknown keys, or replicas, that one log line names."""

_log = logging.getLogger("skewgate.agreement")


class Beat(NamedTuple):
    """Last beat of a replica, its sign of life, that was seen in the store."""

    revision: int
    """Revision of the replica's beat in the store; 0: none."""
    seen_at: float
    """Time at which the replica's beat was seen, by the local clock of deadlines."""
    text: str = ""


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reading:
    """Contents of all keys of one service, at one revision of the store."""

    service: Service
    prefix: str
    beats: str
    """Key prefix of the beats of all replicas, which are not under `prefix`."""
    revision: int
    """Revision of the store when it was read."""
    entries: Mapping[str, Entry]
    """The service's entries in the store, by the part of the key after `prefix`."""
    record: AgreedRecord | None
    problem: str
    """Reason why the agreed record cannot be followed, a sentence; empty: it can."""
    pin: Version | None
    raised: Raised
    drained: Mapping[str, str]
    """Names of the drained backends, each with the name that was given for that, if any."""
    unclear: tuple[str, ...]
    """Unreadable keys among `pin`, `raised` and `drained`: a replica that cannot read them takes no step."""
    live: Mapping[str, LiveEntry]
    """Live replicas by id."""
    unreadable: tuple[str, ...]
    """Ids of live replicas whose entry cannot be read: it may be a vote against everything."""
    known: Mapping[str, ReplicaInfo]
    """Registered replicas by id."""
    foreign: tuple[str, ...]

    @property
    def replicas(self) -> Mapping[str, LiveReplica]:
        """Live replicas by id, in the form that `core.agreement.ladder` takes."""
        return {each: entry.replica for each, entry in self.live.items()}

    @property
    def form(self) -> int | None:
        """Format in which a record can be written that all live replicas read; None: there is none."""
        votes = (each.replica.vote for each in self.live.values())
        floor = self.raised.floor is not None or any(vote and vote.least is not None for vote in votes)
        return form_for_all([each.forms for each in self.live.values()], FLOOR_FORM if floor else FORM)

    @property
    def knows_floors(self) -> bool:
        """Whether every live replica can read a record while a floor holds."""
        return not self.unreadable and all(FLOOR_FORM in each.forms for each in self.live.values())

    def next_record(
        self, live: Mapping[str, LiveReplica], registered: Collection[str]
    ) -> AgreedRecord | None:
        """Agreed record after the present one, with the operator's commands (`ladder.next_record`)."""
        floor, scheme = self.raised.floor, self.service.dialect.scheme
        return next_record(self.record, live, registered, self.pin, scheme, floor)

    def __contains__(self, key: str) -> bool:
        return key.removeprefix(self.prefix) in self.entries

    def revision_of(self, key: str) -> int:
        """Revision of the last change of a key of the service; 0: it does not exist."""
        entry = self.entries.get(key.removeprefix(self.prefix))
        return 0 if entry is None else entry.revision

    def key(self, name: str) -> str:
        return self.prefix + name

    def live_key(self, replica: str) -> str:
        """Key of the entry of a live replica."""
        return f"{self.prefix}{LIVE}{replica}"

    def known_key(self, replica: str) -> str:
        """Key of a replica's registration."""
        return f"{self.prefix}{KNOWN}{replica}"

    def written(self, record: AgreedRecord, form: int = FORM) -> str:
        """Text of an agreed record, as it is written to the store."""
        dialect = self.service.dialect
        return json.dumps(write_record(record, dialect.name, dialect.scheme, form), separators=(",", ":"))


_COMMANDS: Final[Mapping[str, Callable[[str, Scheme], object]]] = {
    PIN: lambda text, scheme: scheme.parse(text),
    RAISED: raised_of,
}
"""Readers of operators' commands, by key. None: the text is not one that this release can read."""


def read_service(
    service: Service, prefix: str, beats: str, revision: int, entries: Mapping[str, Entry]
) -> Reading:
    """Interpret the store's entries about a service."""
    scheme = service.dialect.scheme
    problem = ""
    live, known, unreadable, foreign, record = {}, {}, [], [], None
    commands: dict[str, Any] = {}
    for name, entry in entries.items():
        if name == DOC:
            try:
                record = read_record(read_json(entry.text), service.dialect.name, scheme)
            except UnreadableRecord as error:
                problem = f"the record under {prefix}{DOC} cannot be followed: {error}"
        elif name == DRAINED:
            commands[name] = read_drains(entry, entries.get(DRAINED_BY))
        elif name in _COMMANDS:
            commands[name] = _COMMANDS[name](entry.text, scheme)
        elif name.startswith(LIVE):
            try:
                live[name.removeprefix(LIVE)] = read_live(entry.text, scheme)
            except UnreadableRecord:
                unreadable.append(name.removeprefix(LIVE))
        elif name.startswith(KNOWN):
            known[name.removeprefix(KNOWN)] = read_replica_info(entry.text)
        elif name not in {GONE, PROBE, DRAINED_BY}:
            foreign.append(prefix + name)
    return Reading(
        service=service,
        prefix=prefix,
        beats=beats,
        revision=revision,
        entries=entries,
        record=record,
        problem=problem,
        pin=commands.get(PIN),
        raised=commands.get(RAISED) or NOT_RAISED,
        drained=commands.get(DRAINED) or {},
        unclear=tuple(sorted(name for name, command in commands.items() if command is None)),
        live=live,
        unreadable=tuple(unreadable),
        known=known,
        foreign=tuple(foreign),
    )


@final
class Readings:
    """Last readings of all services, under `prefix`. `boot_time`: the clock of deadlines."""

    def __init__(
        self, store: Store, prefix: str, snapshot_holder: SnapshotHolder, boot_time: Callable[[], float]
    ) -> None:
        self.prefix = prefix
        self.beats_prefix = f"{prefix.removesuffix('/')}:beats/"
        """Prefix of the beats. It is outside of `prefix`, so that a beat is no change there."""
        self.services: dict[str, Reading] = {}
        self.beats: dict[str, Beat] = {}
        self.revision = 0
        """Revision of the store at the last read of everything."""
        self.stale = True
        """Whether the store has changed since the last read, as far as is known."""
        self.pause_until = float("-inf")
        """Earliest time of the next read, by the clock of the loop."""
        self._store = store
        self._snapshot_holder = snapshot_holder
        self._boot_time = boot_time
        self._read_at = float("-inf")
        self._seconds = 0.0

    def resync_at(self, ttl: float) -> float:
        """Time of the next read without a known change: a key deleted by hand leaves no revision behind."""
        return self._read_at + max(ttl, _SHARE_OF_RESYNCS * self._seconds)

    async def read(self, names: Iterable[str]) -> set[str]:
        """Read all keys and beats from the store. Returns the services with news. Raises `StoreError`."""
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
        """Read replicas' beats. Returns the services in which time alone may decide. Raises `StoreError`."""
        entries = (await self._store.read(self.beats_prefix)).entries
        now = self._boot_time()
        found = {key.removeprefix(self.beats_prefix): entry for key, entry in entries.items()}
        for reading in self.services.values():
            for each in (*reading.live, *reading.unreadable):
                found.setdefault(each, Entry("", 0))
        quiet = set()
        for each, (text, revision) in found.items():
            known = self.beats.get(each)
            if known is None or known.revision != revision:
                self.beats[each] = Beat(revision, now, text)
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
        """Interpret the store's entries about a service again, by its new configuration."""
        if (reading := self.services.get(name)) is not None:
            self.services[name] = self._reading(name, reading.revision, reading.entries)

    def _reading(self, name: str, revision: int, entries: Mapping[str, Entry]) -> Reading:
        service = self._snapshot_holder.current.views[name].service
        return read_service(service, f"{self.prefix}{name}/", self.beats_prefix, revision, entries)


def _warn(before: Reading | None, reading: Reading) -> None:
    if reading.foreign and (before is None or before.foreign != reading.foreign):
        _log.warning("unknown keys in the store are ignored: %s", ", ".join(reading.foreign[:_MAX_NAMED]))
    if reading.unclear and (before is None or before.unclear != reading.unclear):
        _log.warning(
            "%s: this replica keeps its pin, floor and drains and takes no step, because these keys of the "
            "store cannot be read; pin, raise or drain again to write them: %s",
            *(reading.service.name, ", ".join(map(reading.key, reading.unclear))),
        )
    if reading.unreadable and (before is None or before.unreadable != reading.unreadable):
        _log.warning(
            "%s: the entries of these replicas cannot be read, and count as no vote: %s",
            *(reading.service.name, ", ".join(reading.unreadable[:_MAX_NAMED])),
        )
