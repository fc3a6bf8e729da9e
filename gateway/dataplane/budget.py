"""The retry budget: how many requests of a service may be sent again although a backend had them already.

Sending again helps when one backend dies, and makes it worse when all of them have too much to do: then every
retry is more load. So only a share of the traffic may be sent again. Decides nothing about a single request:
whether it may be repeated at all is `failures`.
"""

from __future__ import annotations

from typing import Final, final

SHARE: Final = 5
"""One request in so many may be sent again (design section 2, Retrying: 20 %)."""

LEAST: Final = 3
"""At once, however little traffic there is."""

MOST_SAVED: Final = 100
"""What one backend may have in its hands when it dies. More at once is no death but a storm."""


@final
class RetryBudget:
    """Of one service: a fifth of the requests in flight, or of those that went by as long as it is not used
    up; at least 3."""

    __slots__ = ("_saved", "passed", "retrying")

    def __init__(self) -> None:
        self.passed = 0
        """Requests since this was last looked at; counted by the hot path."""
        self.retrying = 0
        """Requests under way that were sent again."""
        self._saved = 0.0

    def allows(self, in_flight: int) -> bool:
        """Whether one more may be sent again while so many are in flight."""
        self._saved = min(MOST_SAVED, self._saved + self.passed / SHARE)
        self.passed = 0
        return self.retrying < max(LEAST, in_flight // SHARE) or self._saved >= 1

    def begin(self) -> None:
        """One is sent again."""
        self.retrying += 1
        self._saved = max(0.0, self._saved - 1)

    def end(self) -> None:
        """It is over, however it went."""
        self.retrying -= 1
