"""Who may use a service, how much of it one client may use, and the answer while it is in maintenance.

Values that an operator has written, and the one rule that they need: which of two lists of networks has an
address. They are applied by `core.decision.decision` (maintenance) and `dataplane.admission` (the rest).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias, final

Network: TypeAlias = IPv4Network | IPv6Network
IpAddress: TypeAlias = IPv4Address | IPv6Address

_BITS = {4: 32, 6: 128}


@final
class Access:
    """Which addresses may use a service.

    Of all networks that hold an address the one with the longest prefix decides. Without one, the address is
    refused if any network is allowed, and allowed if networks are only denied. An address that is not known
    (the peer of a unix socket has none) is in no network.
    """

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
        """In another process the tables are made anew: a compiled class cannot be filled in."""
        return Access, self._lists

    def allows(self, address: IpAddress | None) -> bool:
        """Whether this client may use the service. It costs one look for each length of prefix."""
        if address is not None:
            number = int(address)
            for shift, verdicts in self._ipv4 if isinstance(address, IPv4Address) else self._ipv6:
                allowed = verdicts.get(number >> shift)
                if allowed is not None:
                    return allowed
        return self.else_allowed


def _shift(item: tuple[int, dict[int, bool]]) -> int:
    return item[0]


@final
@dataclass(frozen=True, slots=True)
class ClientLimits:
    """How much of a service one client may use."""

    rate: float | None = None
    """Requests a second; None: no limit."""
    burst: int = 1
    """Requests at once, before the rate counts."""
    concurrency: int | None = None
    """Requests in flight; None: no limit."""


NO_CLIENT_LIMITS = ClientLimits()


@final
@dataclass(frozen=True, slots=True)
class Maintenance:
    """The fixed answer to every request of a service."""

    status: int = 503
    body: str | None = None
    """None: an error in the dialect's shape."""
    retry_after: int | None = None
    """Seconds for `Retry-After`, where the dialect's clients take it."""
