"""Interface of the agreement on offers. The assembly chooses an implementation; nothing runs here.

Agreement  <-  WorkerAgreement  this gateway alone decides, and its workers follow
           <-  Replication      several replicas decide together, over a store
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gateway.core.agreement.record import AgreedRecord


class Agreement(Protocol):
    """Agreement that advances the agreed record of each service from `start` to `close`, on the running loop.
    Call `start` before the state file is written and before any worker serves."""

    def start(self) -> None:
        """Give every service's view the agreed record that it needs before anything is served or saved."""

    async def close(self) -> None:
        """Stop advancing the agreed records."""

    def acknowledged(self) -> None:
        """Note that a worker acknowledged a record, joined or ended, or that all earlier workers ended."""

    def hold(self, *, everything: bool = True) -> None:
        """Stop advancing all agreed records; not `everything`: only those by which another process serves."""

    def release(self) -> None:
        """Advance agreed records again: no other process serves any more, or it has not begun to serve."""

    async def in_force(self, service: str | None = None) -> bool:
        """Wait until every agreed record (or that of `service`) has reached its target, and all workers hold
        it. False: it takes too long, or another process must end first."""

    def awaited(self) -> Mapping[str, str]:
        """Reasons why agreed records wait, by service. Empty: all have reached their targets."""

    def to_save(self) -> Mapping[str, AgreedRecord]:
        """Agreed records that must be in the state file before anybody serves by them, by service."""
