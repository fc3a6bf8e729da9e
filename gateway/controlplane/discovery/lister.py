"""Interface of the sources of backends: a lister returns the current list of its source, or why there is
none.

A lister keeps what it needs of its earlier answers. `discovery` decides when to poll again, and what happens
to backends that are listed no more.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from gateway.controlplane.name_lookup import Failed
from gateway.core.fleet.source import MAX_BACKENDS, Address


class Listed(NamedTuple):
    """List of backends from a source."""

    addresses: tuple[Address, ...]
    ttl: float
    """Seconds for which the list is valid."""


Answer: TypeAlias = Listed | Failed


class Lister:
    """Base class of the listers. `poll` reports failures of the source as values, not as exceptions."""

    pause_after_failure: float | None = None
    """Seconds until the poll after a failure. None: a growing pause, to spare a server that others use,
    too."""

    async def poll(self) -> Answer:
        """Get the list once. May take long, and may be cancelled."""
        raise NotImplementedError


def too_many(number: int) -> Failed:
    """Failure for a list that is too long. It is refused as a whole: a part of it would remove the other
    backends."""
    return Failed(f"it lists {number} backends, more than {MAX_BACKENDS}")
