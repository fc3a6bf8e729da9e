"""The interface to whatever agrees on offers: a lone gateway, its workers, or several replicas.

    Agreement  <-  WorkerAgreement  this gateway alone decides, and its workers follow
               <-  Replication      several replicas decide together, over a store

Whoever assembles a gateway chooses one of them. An interface: nothing runs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gateway.core.agreement.record import AgreedRecord


class Agreement(Protocol):
    """It follows and moves the record of each service from `start` to `close`, on the running loop. Call
    `start` before the state file is written and before any worker serves."""

    def start(self) -> None:
        """Give every view what it has to have before anybody is served, and before anything is saved."""

    async def close(self) -> None:
        """Move no record any more."""

    def acknowledged(self) -> None:
        """A worker has acknowledged, joined or ended, or the last worker of an earlier process is gone."""

    def hold(self, *, everything: bool = True) -> None:
        """No record moves from now on, because another process serves by it, too. `everything` False: only
        those by which the other one serves."""

    def release(self) -> None:
        """Go on: no other process serves any more, or it has not begun."""

    async def in_force(self, service: str | None = None) -> bool:
        """Wait until every record (or that of `service`) is where it is to be, and everybody holds it.
        False: it takes too long, or waits for another process."""

    def awaited(self) -> Mapping[str, str]:
        """For whom the record of a service waits, by service. Empty: all are where they are to be."""

    def to_save(self) -> Mapping[str, AgreedRecord]:
        """What the state file has to hold before anybody serves by it: the records by service."""
