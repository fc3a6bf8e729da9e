"""How requests wait for a backend that is full: `services.NAME.backends[].queue`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from gateway.keys.kinds import DIVIDED, section
from gateway.keys.texts import DURATION, count


@final
@dataclass(frozen=True, slots=True)
class Queue:
    """How requests wait for a backend that is full."""

    length: int = count(0, 100_000).key(
        32,
        "How many requests may wait for this backend; more get 503. 0: none waits.",
        reason="A short burst passes. In a longer queue clients would wait for what they have given up.",
        example=100,
        workers=f"{DIVIDED}, rounded up. Beyond it a request waits a moment while another worker may have "
        "room",
    )
    timeout: float = DURATION.key(
        "1s",
        "How long a request waits; then 503.",
        reason="Clients retry after a second or two themselves.",
        example="500ms",
    )


QUEUE: Final = section(Queue, "How requests wait for a backend that is full.")
NO_QUEUE: Final = Queue(length=0, timeout=0.0)
"""For a backend without a bound, which is never full."""
