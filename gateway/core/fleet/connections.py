"""Reuse of backend connections (`services.NAME.reuse`), and queues (`services.NAME.backends[].queue`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from gateway.keys.kinds import DIVIDED, section
from gateway.keys.texts import DURATION, count


@final
@dataclass(frozen=True, slots=True)
class Reuse:
    """Reuse of one backend connection. It is closed between two requests."""

    requests: int = count(1, 1_000_000).key(
        1000,
        "How many requests one connection carries; then it is closed. 1: each request has its own.",
        reason="A connection on which responses and requests have come apart serves wrong answers until it "
        "ends. A new one for a thousand requests costs nothing that can be measured.",
        example=100,
    )
    time: float = DURATION.key(
        "5m",
        "The age at which a connection carries no further request; then it is closed.",
        reason="As `requests`, for services with few of them.",
        example="1m",
    )


REUSE: Final = section(Reuse, "Reuse of one backend connection. It is closed between two requests.")
DEFAULT_REUSE: Final = Reuse()


@final
@dataclass(frozen=True, slots=True)
class Queue:
    """Queue of the requests that wait for a full backend."""

    length: int = count(0, 100_000).key(
        32,
        "How many requests may wait for this backend; further ones get 503. 0: none.",
        reason="Enough for a short burst. In a longer queue, requests wait longer than their clients.",
        example=100,
        workers=f"{DIVIDED}, rounded up. Beyond it a request waits a moment while another worker may have "
        "room",
    )
    timeout: float = DURATION.key(
        "1s",
        "How long a request may wait; then 503, or the error of its first attempt if it was sent before.",
        reason="Clients retry by themselves after a second or two.",
        example="500ms",
    )


QUEUE: Final = section(Queue, "Queue of the requests that wait for a full backend.")
NO_QUEUE: Final = Queue(length=0, timeout=0.0)
"""Queue of a backend without a bound, which is never full."""
