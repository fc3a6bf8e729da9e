"""The one interface of a source of backends: asked for its list, it gives it, or says why not.

A lister keeps what it needs of its earlier answers and decides nothing: when it is asked again, and what
becomes of those that are listed no more, is up to `discovery`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from gateway.controlplane.name_lookup import Failed
from gateway.core.fleet.source import MAX_BACKENDS, Address


class Listed(NamedTuple):
    """What a source lists now."""

    addresses: tuple[Address, ...]
    ttl: float
    """Seconds for which it is valid."""


Answer: TypeAlias = Listed | Failed


class Lister:
    """A source of backends. `poll` never raises what is the source's fault."""

    pause_after_failure: float | None = None
    """Seconds. None: soon and then less often, so that a server that others ask, too, is spared."""

    async def poll(self) -> Answer:
        """Ask once. May take long; it is cancelled when nobody waits for it any more."""
        raise NotImplementedError


def too_many(number: int) -> Failed:
    """For a list that is refused as a whole: to take a part of it would drive out the others."""
    return Failed(f"it lists {number} backends, more than {MAX_BACKENDS}")
