"""Own pace: a lower ceiling for named clients, so that they can move to new versions later than others.

What such a client is told is what it is served: its view of the service has the part of the offer up to its
own ceiling (`ServiceView.for_client`). Values only, and what responses of such a service depend on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from math import inf
from typing import Final, final

from gateway.core.clients import Client
from gateway.core.days import DAY, midnight
from gateway.core.http.message import Header, normalize_name
from gateway.core.versions.version import Scheme, Version

_PRIVATE: Final[tuple[Header, ...]] = (("Cache-Control", "private"),)


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
        return inf if self.until is None else float(midnight(self.until) + DAY)

    def sentence(self, scheme: Scheme) -> str:
        """The own pace for people: `ceiling 1.72 for nova-cron until 2099-06-30`."""
        until = "" if self.until is None else f" until {self.until}"
        return f"ceiling {scheme.format(self.ceiling)} for {', '.join(self.clients)}{until}"


@final
@dataclass(frozen=True, slots=True)
class Paces:
    """Own paces of a service. A client is named in at most one of them."""

    paces: tuple[Pace, ...] = ()
    rules: tuple[Client, ...] = ()
    """Rules of `clients` that decide whether a request has one of these names, in order."""

    def vary(self, listed: Iterable[str]) -> tuple[str, ...]:
        """Request headers that decide whose pace a request has, without those `listed` for other reasons."""
        names = [name for rule in self.rules for name in rule.header]
        if any(rule.products for rule in self.rules):
            names.append("User-Agent")
        known = {normalize_name(name) for name in listed}
        found = {normalize_name(name): name for name in names}
        return tuple(name for normalized, name in found.items() if normalized not in known)

    @property
    def private(self) -> tuple[Header, ...]:
        """The header of every response if an address or a certificate decides: no shared cache sees those."""
        return _PRIVATE if any(rule.networks or rule.identities for rule in self.rules) else ()


NO_PACES: Final = Paces()
