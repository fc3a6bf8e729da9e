"""The shape of what a service says about backends that fail or are full: ejection, queues, health checks.

What needs more than one key is checked in `checks.balancing`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, final

from gateway.keys.addresses import PATH
from gateway.keys.kinds import DIVIDED, SHARED, Either, ListOf, Text, reject, section
from gateway.keys.texts import DURATION, count, one_of


def read_percentage(text: str) -> int:
    """`50%` as 50."""
    if re.fullmatch("(?:[1-9][0-9]?|100)%", text, re.ASCII) is None:
        reject("not a valid percentage", "write a percentage from 1% to 100%")
    return int(text.removesuffix("%"))


PERCENTAGE: Final = Text(read_percentage, {"type": "string", "pattern": "^(?:[1-9][0-9]?|100)%$"})

OFF: Final = "off"


@final
@dataclass(frozen=True, slots=True)
class Ejection:
    """When a backend that fails gets no requests for a while."""

    failures: int = count(1, 1000).key(
        5,
        "So many failures in a row, without a complete response between them, eject a backend. One that has "
        "just come back is ejected again by the first.",
        reason="The value of Envoy. One failure may be the request's own fault, five of several are not.",
        example=3,
        workers=f"{SHARED}: failures are counted, and ejections decided, for all workers together",
    )
    time: float = DURATION.key(
        "10s",
        "How long the first ejection lasts; the second in a row lasts twice as long, the third three times. "
        "One of them is forgotten for each `time` that passes without a failure. After it the backend's "
        "share of the requests grows for as long as `time`, from a tenth of its usual one to all of it.",
        reason="Two intervals of probes: a process that restarts is back by then.",
        example="30s",
        workers=SHARED,
    )
    max_time: float = DURATION.key(
        "300s",
        "The longest ejection.",
        reason="A backend that is repaired is used again within five minutes, without anybody's command.",
        example="1m",
        workers=SHARED,
    )
    max_share: int = PERCENTAGE.key(
        "50%",
        "How many of the service's backends in service are ejected at the same time at most, rounded down. "
        "The only one is never ejected.",
        reason="When more of them fail, the fault is likely elsewhere, and half of them still serve.",
        example="30%",
        workers=SHARED,
    )
    on: tuple[str, ...] = ListOf(one_of("connect", "bad_gateway", "timeout", "server_error")).key(
        ("connect", "bad_gateway", "timeout"),
        "Which failures count. connect: no connection. bad_gateway: the connection broke, or no valid HTTP "
        "came. timeout: no response, or no more of it, in time. server_error: the API itself answered with a "
        "status from 500 on.",
        reason="These the gateway sees itself. An API answers 500 to what one request asks of it, too.",
        example=["connect", "timeout", "server_error"],
    )


EJECTION: Final = section(Ejection)


EJECTION_OR_OFF: Final = Either(one_of(OFF), EJECTION)


@final
@dataclass(frozen=True, slots=True)
class Queue:
    """How requests wait for a backend that is full."""

    length: int = count(0, 100000).key(
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


QUEUE: Final = section(Queue)


@final
@dataclass(frozen=True, slots=True)
class Health:
    """What a backend is asked beside its versions: whether it wants requests."""

    path: str = field(
        metadata=PATH.required(
            "The path that is asked with GET after each probe, below the base path of the backend.",
            reason="APIs have it in different places.",
            example="/healthcheck",
        )
    )
    status: int = count(200, 299).key(
        200,
        "The status that means yes. 404, 405 and 501 mean that there is no such check, redirects nothing. "
        "Any other status means no: the backend gets no new requests while another one that serves the "
        "version is usable.",
        reason="What oslo.middleware and all others answer while all is well.",
        example=204,
    )


HEALTH: Final = section(Health)
