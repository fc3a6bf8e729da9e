"""Access to a service: allowed networks, limits for each client, and the fixed answer in maintenance.

Values of the configuration, and the rule for which of two lists of networks covers an address.
`core.decision.decision` applies maintenance, `dataplane.limits.admission` the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from math import ceil
from typing import Final, TypeAlias, final

from gateway.keys.kinds import SHARED, Text, matching, reject, section
from gateway.keys.texts import DURATION, count, read_lines

Network: TypeAlias = IPv4Network | IPv6Network
IpAddress: TypeAlias = IPv4Address | IPv6Address

_BITS = {4: 32, 6: 128}


@final
class Access:
    """Allow and deny lists of networks. The longest prefix that holds an address decides. Without one, the
    address is refused if any network is allowed. An unknown address (on a Unix socket) is in no network."""

    def __init__(self, allow: Iterable[Network], deny: Iterable[Network]) -> None:
        self._lists = tuple(allow), tuple(deny)
        verdicts = dict.fromkeys(self._lists[0], True)
        self.else_allowed = not verdicts
        verdicts |= dict.fromkeys(self._lists[1], False)
        tables: dict[int, dict[int, dict[int, bool]]] = {4: {}, 6: {}}
        for network, allowed in verdicts.items():
            shift = _BITS[network.version] - network.prefixlen
            table = tables[network.version].setdefault(shift, {})
            table[int(network.network_address) >> shift] = allowed
        # The longest prefix first: the one with the fewest bits behind it.
        self._ipv4 = sorted(tables[4].items(), key=_shift)
        self._ipv6 = sorted(tables[6].items(), key=_shift)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only the networks of the access lists: the other process makes the tables anew."""
        return Access, self._lists

    def allows(self, address: IpAddress | None) -> bool:
        """Whether this client may use the service. Costs one lookup for each length of prefix."""
        if address is not None:
            number = int(address)
            for shift, verdicts in self._ipv4 if isinstance(address, IPv4Address) else self._ipv6:
                allowed = verdicts.get(number >> shift)
                if allowed is not None:
                    return allowed
        return self.else_allowed


def _shift(item: tuple[int, dict[int, bool]]) -> int:
    return item[0]


# --- how much one client may use ---------------------------------------------------------------------------

MIN_BURST: Final = 10
_BURST_SECONDS: Final = 2
_RATE: Final = r"[1-9][0-9]{0,6}/[smh]"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def read_rate(text: str) -> float:
    """Read `100/s`, `30/m`, `10/h` as requests per second."""
    if re.fullmatch(_RATE, text, re.ASCII) is None:
        reject("not a valid rate", "write a whole number and its unit: 100/s, 30/m or 10/h")
    number, _, unit = text.partition("/")
    return int(number) / _SECONDS[unit]


RATE: Final = Text(read_rate, matching(_RATE))


@final
@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits for one client of the service: one IPv4 address, or one /64 of IPv6."""

    rate: float | None = RATE.key(
        None,
        "Requests of one client: a number for each second (`100/s`), minute (`30/m`) or hour (`10/h`); then "
        "429 in the dialect's shape. Without this key: no limit.",
        reason="Many clients of an API are programs behind one address, so there is no useful default.",
        example="100/s",
        workers=f"{SHARED}. Workers share their counts every tenth of a second. What a client gets "
        "beyond the rate by then is subtracted afterwards",
    )
    burst: int | None = count(1, 1_000_000).key(
        None,
        "Requests at once, before the rate counts. Without this key: those of two seconds, at least 10.",
        reason="A client that starts reads several documents at once.",
        example=200,
        workers=f"{SHARED}, as `rate`: in the first tenth of a second each worker may let all of it through",
    )
    concurrency: int | None = count(1, 1_000_000).key(
        None,
        "Requests in flight of one client; then 429 in the dialect's shape. Without this key: no limit.",
        reason="Many clients of an API are programs behind one address.",
        example=50,
        workers=f"{SHARED}. Workers share their counts every tenth of a second. Within it, each worker may "
        "admit this many",
    )

    @property
    def effective_burst(self) -> int:
        """Number of requests that a client may send at once before its rate counts."""
        if self.burst is not None:
            return self.burst
        return max(MIN_BURST, ceil((self.rate or 0.0) * _BURST_SECONDS))


CLIENT_LIMITS: Final = section(
    ClientLimits, "Limits for one client of the service: one IPv4 address, or one /64 of IPv6."
)
NO_CLIENT_LIMITS: Final = ClientLimits()


# --- maintenance -------------------------------------------------------------------------------------------

MAX_BODY: Final = 64 * 1024


def read_body(text: str) -> str:
    """Read the configured body of the answer during maintenance."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BODY:
        message = f"the body is larger than {MAX_BODY // 1024}KiB"
        reject(message, "it is sent to every client as often as asked")
    return read_lines(text)


BODY: Final = Text(read_body, {"type": "string", "minLength": 1})


@final
@dataclass(frozen=True, slots=True)
class Maintenance:
    """A fixed answer to every request of the service, while this key is there. Probes go on."""

    status: int = count(400, 599).key(
        503,
        "The status of the answer.",
        reason="Clients treat 503 as temporary, and most of them try again.",
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
        "The value of `Retry-After`. The header is left out if `retry_after` of the service is false, by "
        "default for dialects whose clients break on it.",
        reason="There is no useful default.",
        example="10m",
    )


MAINTENANCE: Final = section(
    Maintenance, "A fixed answer to every request of the service, while this key is there. Probes go on."
)
