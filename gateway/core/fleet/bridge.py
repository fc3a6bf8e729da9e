"""Bridge: requests of named clients for a version that is not on offer are executed at the nearest one.

The one exception to "executed as asked". It is for clients that nobody can change, it ends with a day, and
each response names both versions. Values only; `decide` asks where it would refuse the version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Final, final

from gateway.core.days import end_of
from gateway.core.dialect import Refusal, RequestedKind
from gateway.core.versions.version import MajorMinor, Scheme, Semantic, Version
from gateway.keys.kinds import section
from gateway.keys.texts import CLIENT_NAMES, DAY, FLAG, member_of

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

    clients: tuple[str, ...] = field(
        metadata=CLIENT_NAMES.required(
            "Names of clients, from `clients`. A client may have one bridge in a service.",
            reason="Only the operator knows who cannot be changed.",
            example=["old-ci"],
        )
    )
    match: BridgeMatch = field(
        metadata=member_of(BridgeMatch).required(
            "The version on offer that counts. nearest_later lifts what is below the offer; nearest_earlier "
            "lowers what is above it; nearest does both. Never bridged: requests without a version, "
            "malformed and signed ones, and documents without a version in their path.",
            reason="Only the operator knows which differences these clients can bear.",
            example="nearest_later",
        )
    )
    until: date = field(
        metadata=DAY.required(
            "The last day (UTC). On the next day such requests are refused. The log warns 30 and 7 days "
            "before.",
            reason="A bridge without an end is never taken down.",
            example="2099-06-30",
        )
    )
    across_majors: bool = FLAG.key(
        default=False,
        meaning="Whether the version may have another number before its first dot.",
        reason="A new major is another API.",
        example=True,
    )

    @property
    def ends_at(self) -> float:
        """End of the last day in seconds since the epoch."""
        return end_of(self.until)

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


BRIDGE: Final = section(
    Bridge,
    "A bridge: clients whose requests for a version that is not on offer are executed at the nearest one.",
)
