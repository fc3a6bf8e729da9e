"""Own pace: a lower ceiling for named clients, so that they can move to new versions later than others.

What such a client is told is what it is served: its view of the service has the part of the offer up to its
own ceiling (`ServiceView.for_client`). Values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from math import inf
from typing import final

from gateway.core.days import end_of
from gateway.core.versions.version import Scheme, Version


@final
@dataclass(frozen=True, slots=True)
class Pace:
    """The ceiling of some named clients, up to and including a day (UTC)."""

    clients: tuple[str, ...]
    ceiling: Version
    until: date | None = None
    """Last day of the own ceiling; None: it has no end."""

    @property
    def ends_at(self) -> float:
        """End of the last day in seconds since the epoch; infinity: there is none."""
        return inf if self.until is None else end_of(self.until)

    def sentence(self, scheme: Scheme) -> str:
        """The own pace for people: `ceiling 1.72 for nova-cron until 2099-06-30`."""
        until = "" if self.until is None else f" until {self.until}"
        return f"ceiling {scheme.format(self.ceiling)} for {', '.join(self.clients)}{until}"
