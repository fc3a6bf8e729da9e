"""Logs an error once when the announced end of a service's old versions comes. Nothing is refused then.

If the day has come before the start, or before a reload, that is a warning of the configuration instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from gateway.core.fleet.lifecycle import Line
from gateway.core.fleet.snapshot import Snapshot, SnapshotSource
from gateway.telemetry.process_log import about

INTERVAL: Final = 60.0
"""Seconds between two looks at the clock."""

_log = logging.getLogger("skewgate.offer")


async def watch_sunsets(snapshots: SnapshotSource) -> None:
    """Compare the sunsets of all services with the clock, until cancelled."""
    ahead: set[tuple[str, Line]] = set()
    while True:
        ahead = log_sunsets(snapshots.current, ahead, time.time())
        await asyncio.sleep(INTERVAL)


def log_sunsets(snapshot: Snapshot, ahead: set[tuple[str, Line]], now: float) -> set[tuple[str, Line]]:
    """Log sunsets that have come since the last call, which returned those that were `ahead`; likewise."""
    configured = {(name, view.service.sunset) for name, view in snapshot.views.items()}
    sunsets = {(name, sunset) for name, sunset in configured if sunset is not None}
    for name, sunset in sunsets & ahead:
        if sunset.timestamp <= now:
            below = snapshot.views[name].service.dialect.scheme.format(sunset.below)
            text = f"the sunset of the versions below {below} has come; they are still served"
            _log.error("%s: %s", name, text, extra=about(name))
    return {(name, sunset) for name, sunset in sunsets if now < sunset.timestamp}
