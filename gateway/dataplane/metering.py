"""How often the gateway makes an answer of its own that costs more than a refusal: a token bucket a service.

What is metered the dialect says (`Place.metered`), what is said instead `core.decision`. Reads no clock: the
worker's coarse one fills it.
"""

from __future__ import annotations

from typing import Final, final

BURST: Final = 20
"""Answers at once: clients that are interested ask when they start, and this many may start together."""

PER_SECOND: Final = 5.0
"""Answers a second after that. With a hundred operations configured one takes a millisecond, as much as some
forty proxied requests: half a hundredth of a core is what anybody may have of it unasked."""


@final
class Meter:
    """The services that have answered too often, as `decide` asks for them: `service in meter`."""

    def __init__(self) -> None:
        self._left: dict[str, float] = {}  # full ones are left out

    def __contains__(self, service: object) -> bool:
        return isinstance(service, str) and self._left.get(service, BURST) < 1

    def take(self, service: str) -> None:
        """Count one answer. What is said when nothing is left costs nothing."""
        if service not in self:
            self._left[service] = self._left.get(service, BURST) - 1

    def refill(self, seconds: float) -> None:
        """`seconds` have gone by; services that are configured no more are forgotten on the way."""
        if self._left:
            more = seconds * PER_SECOND
            self._left = {name: left + more for name, left in self._left.items() if left + more < BURST}
