"""How one replica, or one worker, stands to the document of a service: what its requests are decided by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

from gateway.core.agreement.document import Document, Level, document_anew, level
from gateway.core.versions.ranges import NO_VERSIONS, VersionSet
from gateway.core.versions.version import Scheme, Version


@final
@dataclass(frozen=True, slots=True)
class Agreed:
    """The document that it holds, and what else it knows from the others."""

    document: Document | None
    attached: bool = True
    """False: its deadline has passed. Whoever is about to refuse a version looks at the clock, too."""
    transparent: bool = False
    """True: nothing is negotiated, because every live replica sees legacy backends only."""
    voting: bool = False
    """True: this is one of several replicas. The offer state of its view is what it remembers for its vote
    (`votes.remember`), and it refuses a version only before its deadline. False: nobody votes, because the
    workers of one gateway hold the document."""
    legacy_only: bool = False
    """True: nothing is on offer, and a live replica sees legacy backends only. Until all see others, requests
    pass without negotiation, and only to legacy backends."""

    @property
    def unnegotiated(self) -> bool:
        """Whether requests pass without negotiation."""
        return self.transparent or self.legacy_only

    @property
    def offered(self) -> VersionSet:
        """What clients are told."""
        return NO_VERSIONS if self.document is None else self.document.offered

    def level(self, version: Version) -> Level:
        """Where `version` stands."""
        return level(self.document, version)

    def read_anew(self, before: Scheme, scheme: Scheme) -> Agreed:
        """The same in a scheme that has only gained versions since `before`."""
        if self.document is None or before.key == scheme.key:
            return self
        return replace(self, document=document_anew(self.document, before, scheme))


NOTHING_AGREED: Final = Agreed(None)
"""Of a service that is new: nothing is on offer before all have agreed."""

NOT_JOINED: Final = Agreed(None, attached=False, voting=True)
"""Of one of several replicas that has not joined the others, or has been away too long: it answers 503."""
