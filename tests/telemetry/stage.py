"""A service with two backends of different age, a cell that knows them, and outcomes to count."""

from __future__ import annotations

from typing import Final

from gateway.controlplane.cell import Cell
from gateway.core.backend import Backend
from gateway.core.decision import Verdict
from gateway.core.dialect import Advert, AskKind
from gateway.core.fleet import Answered
from gateway.core.ranges import VersionSet
from gateway.core.service import Service
from gateway.core.snapshot import Snapshot
from gateway.core.version import Version
from gateway.dialects.ironic import Ironic
from gateway.telemetry.outcome import Outcome

OLD: Final = Backend("old", "10.0.0.1", 6385)
NEW: Final = Backend("new", "10.0.0.2", 6385)


def advert(highest: int) -> Advert:
    return Advert(VersionSet.between(Version(1, 1), Version(1, highest)))


def cell(*, known: bool = True) -> Cell:
    found = Cell(Snapshot.configured([Service("baremetal", Ironic(), (OLD, NEW))], now=0.0))
    if known:
        found.observe("baremetal", "old", Answered(advert(58), 1.0))
        found.observe("baremetal", "new", Answered(advert(90), 1.0))
    return found


class Told(Outcome):
    """An outcome whose derived fields are what a test says; the data plane's exchange derives them, too."""

    target = ""
    client = ""


def outcome(**differing: object) -> Outcome:
    """A served request; every field may differ."""
    found = Told()
    fields = {
        "service": "baremetal",
        "backend": "old",
        "method": "GET",
        "target": "/v1/nodes",
        "client": "192.0.2.7",
        "status": 200,
        "ask": AskKind.EXACT,
        "verdict": Verdict.SERVED,
        "version": "1.31",
        "attempts": 1,
        "seconds": 0.004,
        "backend_seconds": 0.003,
        "bytes_out": 532,
        "error": "",
    }
    for name, value in {**fields, **differing}.items():
        setattr(found, name, value)
    return found
