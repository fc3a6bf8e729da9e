"""What operators say, in the store and here: a pin, and the names of drained backends.

The store has the truth. A replica that joins a store without any writes its own there.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.controlplane.replication.reading import DRAINED, GONE, PIN, Reading
from gateway.controlplane.replication.texts import write_names
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.controlplane.stores.store import Transaction, Unchanged
from gateway.core.fleet.fleet import Drain, OperatorCommand, Pin
from gateway.core.fleet.pool import Pool
from gateway.core.versions.version import Scheme


def written_command(
    reading: Reading, command: OperatorCommand, pool: Pool, replica: str
) -> Transaction | None:
    """What says it to all; None: it stands there already. Where the names of drained backends cannot be read,
    those that are drained here take their place."""
    if isinstance(command, Pin):
        key, scheme = reading.key(PIN), reading.service.dialect.scheme
        text = None if command.ceiling is None else scheme.format(command.ceiling)
    else:
        key, one = reading.key(DRAINED), {command.backend}
        before = _drained(pool) if DRAINED in reading.unclear else reading.drained
        names = before | one if command.drained else before - one
        text = write_names(names) if names else None
    guard = Unchanged(key, reading.revision_of(key))
    if text is not None:
        return Transaction((guard,), {key: text})
    return Transaction((guard,), {reading.key(GONE): replica}, (key,)) if key in reading else None


def own_words(pool: Pool, scheme: Scheme) -> Mapping[str, str]:
    """What is in force here, as texts."""
    words = {} if pool.pin is None else {PIN: scheme.format(pool.pin)}
    if drained := _drained(pool):
        words[DRAINED] = write_names(drained)
    return words


def take_words(snapshot_holder: SnapshotHolder, reading: Reading) -> None:
    """What the store says is in force here, too; what cannot be read there changes nothing."""
    name = reading.service.name
    pool = snapshot_holder.current.fleet.pools[name]
    if PIN not in reading.unclear and pool.pin != reading.pin:
        snapshot_holder.apply(name, Pin(reading.pin))
    if DRAINED in reading.unclear:
        return
    for member in pool.members:
        drained = member.backend.name in reading.drained
        if member.drained is not drained:
            snapshot_holder.apply(name, Drain(member.backend.name, drained))


def _drained(pool: Pool) -> frozenset[str]:
    return frozenset(member.backend.name for member in pool.members if member.drained)
