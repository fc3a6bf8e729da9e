"""The shape of `access`, `client_limits` and `maintenance`: who is served, how much, and whether at all.

What concerns more than one of these keys is in `checks.admission`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final, final

from gateway.keys.addresses import NETWORK
from gateway.keys.kinds import SHARED, ListOf, Text, matching, reject, section
from gateway.keys.texts import DURATION, count, read_lines

MAX_BODY: Final = 64 * 1024
_RATE: Final = r"[1-9][0-9]{0,6}/[smh]"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def read_rate(text: str) -> float:
    """`100/s`, `30/m`, `10/h` as requests a second."""
    if re.fullmatch(_RATE, text, re.ASCII) is None:
        reject("not a valid rate", "write a whole number and its unit: 100/s, 30/m or 10/h")
    number, _, unit = text.partition("/")
    return int(number) / _SECONDS[unit]


def read_body(text: str) -> str:
    """A body that the operator has written."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BODY:
        reject(
            f"the body is larger than {MAX_BODY // 1024}KiB", "it is sent to every client as often as asked"
        )
    return read_lines(text)


RATE: Final = Text(read_rate, matching(_RATE))
BODY: Final = Text(read_body, {"type": "string", "minLength": 1})


@final
@dataclass(frozen=True, slots=True)
class Access:
    """From which addresses the service may be used."""

    allow: tuple[IPv4Network | IPv6Network, ...] | None = ListOf(NETWORK).key(
        None,
        "Networks that may use the service. If there are any, no other address may. Of all networks in both "
        "lists that hold an address the one with the longest prefix decides.",
        reason="Who may reach the listener may use its services.",
        example=["10.0.0.0/8", "fd00::/8"],
    )
    deny: tuple[IPv4Network | IPv6Network, ...] | None = ListOf(NETWORK).key(
        None,
        "Networks that may not use it. They get 403 in the dialect's shape. Behind `trusted_proxies` the "
        "address that they forward counts; a forwarded text that is no address gets 403, with `allow` as "
        "well.",
        reason="Who may reach the listener may use its services.",
        example=["10.9.0.0/16"],
    )


ACCESS: Final = section(Access)


@final
@dataclass(frozen=True, slots=True)
class ClientLimits:
    """How much of the service one client may use: one IPv4 address, or one /64 of IPv6."""

    rate: float | None = RATE.key(
        None,
        "Requests of one client: a number for each second (`100/s`), minute (`30/m`) or hour (`10/h`); then "
        "429 in the dialect's shape. Without this key: no limit.",
        reason="Many clients of an API are programs behind one address. Only operators know what is much.",
        example="100/s",
        workers=f"{SHARED}. Workers tell each other what was used after a tenth of a second. What a client "
        "gets too much by then is taken off afterwards",
    )
    burst: int | None = count(1, 1000000).key(
        None,
        "Requests at once, before the rate counts. Without this key: those of two seconds, at least 10.",
        reason="A client that starts reads several documents at once.",
        example=200,
        workers=f"{SHARED}, as `rate`: in the first tenth of a second each worker may let all of it through",
    )
    concurrency: int | None = count(1, 1000000).key(
        None,
        "Requests in flight of one client; then 429 in the dialect's shape. Without this key: no limit.",
        reason="Many clients of an API are programs behind one address.",
        example=50,
        workers=f"{SHARED}. Workers tell each other after a tenth of a second. Requests that come within it "
        "may get beyond, to so many at each worker",
    )


CLIENT_LIMITS: Final = section(ClientLimits)


@final
@dataclass(frozen=True, slots=True)
class Maintenance:
    """A fixed answer to every request of the service, while this key is there. Probes go on."""

    status: int = count(400, 599).key(
        503,
        "The status of the answer.",
        reason="Clients take 503 for a passing state, and most of them try again.",
        example=503,
    )
    body: str | None = BODY.key(
        None,
        "The body, as it is written; JSON, HTML and other text get their own Content-Type. Without this key: "
        "an error in the dialect's shape.",
        reason="Clients of the API can read their own kind of error.",
        example="Back at 14:00 UTC.",
    )
    retry_after: float | None = DURATION.key(
        None,
        "When clients may try again, for `Retry-After`. It is left out where `retry_after` of the service "
        "says so, by default where the dialect's clients break on it.",
        reason="Only the operator knows how long it will take.",
        example="10m",
    )


MAINTENANCE: Final = section(Maintenance)
