"""The shape of `access`: from which addresses a service may be used. `checks.admission` makes its tables."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final, final

from gateway.keys.addresses import NETWORK
from gateway.keys.kinds import ListOf, section


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
