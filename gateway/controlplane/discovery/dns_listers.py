"""Sources `dns` and `srv`: the addresses of a name, and those of the targets of SRV records (RFC 2782).

    NameLookup -> Found or Services -> Listed

A headless service of Kubernetes is such a name. A family of addresses, or a target, that a lookup did not
learn keeps its last answer. Names of targets come from others: they are never shown as they are, and a
backend is named by its address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import reduce
from ipaddress import ip_address
from math import gcd
from typing import Final, final

from gateway.controlplane.discovery.lister import Answer, Listed, Lister, too_many
from gateway.controlplane.name_lookup import Addresses, Failed, NameLookup, Services, SrvRecord
from gateway.core.fleet.source import MAX_BACKENDS, MAX_WEIGHT, Address

LOOKUPS_AT_ONCE: Final = 16
"""SRV targets that are looked up at the same time."""


class _Families:
    """Last known IPv4 and IPv6 addresses of a name."""

    __slots__ = ("ipv4", "ipv6")

    def __init__(self) -> None:
        self.ipv6: Addresses = ()
        self.ipv4: Addresses = ()

    @property
    def all(self) -> Addresses:
        return self.ipv6 + self.ipv4

    async def look_up(self, lookup: NameLookup, name: str, *, absolute: bool = False) -> float | Failed:
        """Look the name up and return the TTL. A family that was not learned keeps its addresses."""
        found = await (lookup.absolute(name) if absolute else lookup(name))
        if isinstance(found, Failed):
            return found
        self.ipv6 = self.ipv6 if found.ipv6 is None else found.ipv6
        self.ipv4 = self.ipv4 if found.ipv4 is None else found.ipv4
        return found.ttl


@final
class DnsLister(Lister):
    """Lister of the addresses of a name, all at the same port."""

    def __init__(self, lookup: NameLookup, name: str, port: int) -> None:
        self._lookup = lookup
        self._name = name
        self._port = port
        self._known = _Families()

    async def poll(self) -> Answer:
        """Look the name up once."""
        ttl = await self._known.look_up(self._lookup, self._name)
        if isinstance(ttl, Failed):
            return ttl
        hosts = _in_order(self._known.all)
        if len(hosts) > MAX_BACKENDS:
            return too_many(len(hosts))
        return Listed(tuple(Address(host, self._port) for host in hosts), ttl)


@final
class SrvLister(Lister):
    """Lister of the targets of SRV records: each address is a backend at its record's port, and a backup
    unless it has the lowest priority value."""

    def __init__(self, lookup: NameLookup, name: str) -> None:
        self._lookup = lookup
        self._name = name
        self._known: dict[str, _Families] = {}
        """Addresses by target."""

    async def poll(self) -> Answer:
        """Look up the records once, and then each target."""
        found = await self._lookup.services(self._name)
        if isinstance(found, Failed):
            return found
        if len(found.records) > MAX_BACKENDS:
            return too_many(len(found.records))
        return await self._with_addresses(found)

    async def _with_addresses(self, found: Services) -> Answer:
        targets = dict.fromkeys(record.target for record in found.records)
        known = {target: self._known.get(target) or _Families() for target in targets}
        at_once = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def look_up(target: str) -> float | Failed:
            async with at_once:
                return await known[target].look_up(self._lookup, target, absolute=True)

        results = await asyncio.gather(*map(look_up, known))
        self._known = known
        ttl = min([found.ttl, *(each for each in results if not isinstance(each, Failed))])
        addresses = _addresses(found.records, known)
        problems = [each for each in results if isinstance(each, Failed)]
        if not addresses and problems:
            return Failed(f"no address of any of its {len(known)} targets: {problems[0].reason}")
        return too_many(len(addresses)) if len(addresses) > MAX_BACKENDS else Listed(addresses, ttl)


def _addresses(records: Sequence[SrvRecord], known: dict[str, _Families]) -> tuple[Address, ...]:
    """List every address once, with its best priority and its largest weight."""
    if not records:
        return ()
    best = min(record.priority for record in records)
    weights = _weights([record.weight for record in records])
    found: dict[tuple[str, int], Address] = {}
    for record, weight in sorted(zip(records, weights, strict=True), key=lambda both: (both[0], both[1])):
        for host in _in_order(known[record.target].all):
            address = Address(host, record.port, weight, record.priority > best)
            found.setdefault((host, record.port), address)
    return tuple(found.values())


def _weights(weights: Sequence[int]) -> list[int]:
    """Scale weights to whole numbers from 1 to `MAX_WEIGHT`, as small as possible: equal replicas thus keep
    their weight when their number changes, unlike those of Kubernetes. 0 becomes 1."""
    divisor = reduce(gcd, weights) or 1
    small = [weight // divisor for weight in weights]
    largest = max(small)
    if largest > MAX_WEIGHT:
        small = [weight * MAX_WEIGHT // largest for weight in small]
    return [max(1, weight) for weight in small]


def _in_order(hosts: Addresses) -> list[str]:
    """IPv6 before IPv4, each by number: name servers turn the order with every answer."""
    parsed = {ip_address(host) for host in hosts}
    return [str(each) for each in sorted(parsed, key=lambda address: (-address.version, int(address)))]
