"""Deadlines until which this replica may refuse versions, checked when a refusal is about to be written.

    Replication  ->  DataPlane.deadlines  ->  Refusals, one in each worker  ->  the exchange

Services without an agreement of replicas have none. `core.decision.decision` decides what is refused, and
`core.agreement.attachment` computes the deadlines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from gateway.core.decision.decision import Refuse, Resolution, as_detached
from gateway.runtime.process import boot_time


@final
class Refusals:
    """Deadlines until which one worker may refuse versions, by service. `clock`: that of the deadlines."""

    def __init__(self, clock: Callable[[], float] = boot_time) -> None:
        self._clock = clock
        self.deadlines: Mapping[str, float] = {}
        """Time until which this replica may refuse versions, by service. Without an entry it may not."""

    def in_time(self, refuse: Refuse) -> Refuse:
        """Return `refuse`, the refusal of a version, or its replacement after the deadline: then a replica
        refuses no version, because the others may offer it."""
        return refuse if self.may_refuse(refuse.resolution) else as_detached(refuse)

    def may_refuse(self, resolution: Resolution) -> bool:
        """Return whether this replica may refuse versions of the service now: its deadline is ahead."""
        agreed = resolution.view.agreed
        return (
            agreed is None
            or not agreed.voting
            or self._clock() < self.deadlines.get(resolution.service, float("-inf"))
        )
