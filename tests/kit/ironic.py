"""Versions of Ironic as values, services of it, and what a gateway knows of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend, Member
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import Ironic
from tests.kit.waiting import Changes

NEW: Final = "1.1-1.90"
OLD: Final = "1.1-1.58"


def versions(text: str) -> VersionSet:
    """A set of Ironic versions: `1.1-1.58`."""
    return VersionSet.read(text, Ironic().scheme)


def highest_version(text: str = NEW) -> Version:
    return versions(text).highest


def upto(highest: int, lowest: int = 1) -> Advertisement:
    """An advertisement of 1.`lowest` to 1.`highest`."""
    return Advertisement(VersionSet.between(Version(1, lowest), Version(1, highest)))


def service(*backends: Backend, name: str = "baremetal", **options: Any) -> Service:
    return Service(name, Ironic(), backends, **options)


def holder_of(*services: Service) -> SnapshotHolder:
    """A holder that has just started: nothing is known of their backends but what they declare."""
    return SnapshotHolder(Snapshot.configured(services, now=0.0))


def learn(
    holder: SnapshotHolder, backend: str, found: Advertisement, at: float = 1.0, *, service: str = "baremetal"
) -> None:
    """Observe a successful probe that found this."""
    holder.observe(service, backend, ProbeSucceeded(found, at))


def reconfigure(holder: SnapshotHolder, services: Sequence[Service]) -> None:
    """Put another configuration in force, and notify everybody of it before this returns."""
    holder.apply_batch()
    holder.update(holder.configured(services).snapshot)


def member(holder: SnapshotHolder, backend: str = "api-1") -> Member:
    member = holder.current.fleet.member_sets["baremetal"].member(backend)
    assert member is not None
    return member


async def until_snapshot(holder: SnapshotHolder, holds: Callable[[Snapshot], bool]) -> None:
    """Wait until `holds` is true of the current snapshot; woken by its changes, not by a clock."""
    changes = Changes()
    unsubscribe = holder.subscribe(lambda before, after: changes.notify())
    try:
        await changes.until(lambda: holds(holder.current))
    finally:
        unsubscribe()
