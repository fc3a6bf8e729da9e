"""How long one connection to a backend is used: `services.NAME.reuse`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from gateway.keys.kinds import section
from gateway.keys.texts import DURATION, count


@final
@dataclass(frozen=True, slots=True)
class Reuse:
    """How long one connection to a backend is used. It ends between two requests."""

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


REUSE: Final = section(Reuse, "How long one connection to a backend is used. It ends between two requests.")
DEFAULT_REUSE: Final = Reuse()
