"""A service with two backends of different releases, a snapshot holder, and request records to count."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.decision.decision import NegotiationResult
from gateway.core.dialect import Advertisement, RequestedKind
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import Ironic
from gateway.telemetry.request_record import ReceivedHead, RequestRecord

OLD: Final = Backend("old", "10.0.0.1", 6385)
NEW: Final = Backend("new", "10.0.0.2", 6385)


def advertisement(highest: int) -> Advertisement:
    return Advertisement(VersionSet.between(Version(1, 1), Version(1, highest)))


def snapshot_holder(*, known: bool = True) -> SnapshotHolder:
    """What the gateway knows about both backends; nothing if not `known`."""
    holder = SnapshotHolder(Snapshot.configured([Service("baremetal", Ironic(), (OLD, NEW))], now=0.0))
    if known:
        holder.observe("baremetal", "old", ProbeSucceeded(advertisement(58), 1.0))
        holder.observe("baremetal", "new", ProbeSucceeded(advertisement(90), 1.0))
    return holder


class SampleRecord(RequestRecord):
    """A record whose derived fields a test can set."""

    target = ""
    client = ""


class Received(NamedTuple):
    """A request head, and the peer that sent it."""

    method: str = "GET"
    target: bytes = b"/v1/nodes"
    forwarded: tuple[tuple[str, bytes], ...] = ()

    def client_address(self, request: ReceivedHead) -> str:
        return "192.0.2.7"


def record(**differing: object) -> RequestRecord:
    """A served request; every field may differ."""
    sample = SampleRecord(Received(), Received())
    fields = {
        "service": "baremetal",
        "backend": "old",
        "method": "GET",
        "target": "/v1/nodes",
        "client": "192.0.2.7",
        "status": 200,
        "requested": RequestedKind.EXACT,
        "result": NegotiationResult.SERVED,
        "version": "1.31",
        "attempts": 1,
        "seconds": 0.004,
        "backend_seconds": 0.003,
        "bytes_out": 532,
        "reason": "",
        "request_id": "",
    }
    for name, value in {**fields, **differing}.items():
        setattr(sample, name, value)
    return sample
