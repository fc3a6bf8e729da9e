"""The limit for wrong admin tokens: one for the form of the operations page and for the field Authorization
(threats R3-T5).

The limit is asked about tokens that were compared already and are wrong. A right one never gets here, so
nobody can lock operators out. Every guess is still answered, so the limit makes none harder: what keeps
guesses out is the length of a token. The limit tells clients with an outdated token to slow down.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final, final

from gateway.dataplane.limits.rate_limiter import TokenBuckets

AT_ONCE: Final = 10
"""Wrong tokens one after the other that get 401: operators mistype, and paste the wrong line."""

PER_SECOND: Final = 5.0
"""Wrong tokens a second that get 401 after that; all others get 429."""

TOO_MANY: Final = "there were too many wrong tokens, and this one is wrong as well: try again in a moment"


@final
class WrongTokens:
    """Counts wrong tokens of all clients together: behind a proxy they have one address. `clock`: monotonic
    seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._bucket = TokenBuckets(PER_SECOND, AT_ONCE)

    def add(self) -> int:
        """Count one. Returns 0, or the seconds for `Retry-After` if it was one too many."""
        return ceil(self._bucket.take("", self._clock()))
