"""Bridge: requests of named clients for a version that is not on offer are executed at the nearest one.

The one exception to "executed as asked". It is for clients that nobody can change, it ends with a day, and
each response names both versions. Values only; `decide` asks where it would refuse the version.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Final, final

from gateway.core.days import DAY, midnight
from gateway.core.dialect import Refusal, RequestedKind
from gateway.core.versions.version import MajorMinor, Scheme, Semantic, Version

WARNED: Final = 30
"""Days before the end of a bridge from which the operator is warned."""


class BridgeMatch(StrEnum):
    """Rule by which a bridge finds the version on offer for a requested one. The nearest one is the next
    earlier version, or if there is none, the next later one."""

    NEAREST_LATER = "nearest_later"
    NEAREST_EARLIER = "nearest_earlier"
    NEAREST = "nearest"


@final
@dataclass(frozen=True, slots=True)
class Bridge:
    """The bridge of some named clients, up to and including a day (UTC)."""

    clients: tuple[str, ...]
    match: BridgeMatch
    until: date
    across_majors: bool = False
    """Whether the version may have another number before its first dot."""

    @property
    def ends_at(self) -> float:
        """End of the last day in seconds since the epoch."""
        return float(midnight(self.until) + DAY)

    def version_for(self, refusal: Refusal, scheme: Scheme) -> Version | None:
        """Version on offer at which a request is executed in place of its refusal; None: it is refused. A
        signed version stays, and only a request for exactly one version is bridged."""
        wanted = refusal.version
        if wanted is None or refusal.requested.kind is not RequestedKind.EXACT or refusal.requested.signed:
            return None
        earlier, later = refusal.offered.up_to(wanted), refusal.offered.down_to(wanted)
        found = []
        if earlier and self.match is not BridgeMatch.NEAREST_LATER:
            found.append(earlier.highest)
        if later and self.match is not BridgeMatch.NEAREST_EARLIER:
            found.append(later.lowest)
        # Other schemes have no majors: whole numbers, dates and names.
        anywhere = self.across_majors or not isinstance(scheme, MajorMinor | Semantic)
        return next((one for one in found if anywhere or one[0] == wanted[0]), None)

    def sentence(self) -> str:
        """The bridge in words: `cron and nova are bridged to the nearest later version until 2099-06-30`."""
        *others, last = self.clients
        names = f"{', '.join(others)} and {last} are" if others else f"{last} is"
        where = ", also in another major" if self.across_majors else ""
        return f"{names} bridged to the {self.match.replace('_', ' ')} version{where} until {self.until}"
