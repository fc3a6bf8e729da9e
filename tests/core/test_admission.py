"""Which addresses may use a service: the longest prefix decides, and what no network holds."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.fleet.admission import Access, IpAddress, Network


def access(allow: list[str], deny: list[str]) -> Access:
    return Access([ip_network(one) for one in allow], [ip_network(one) for one in deny])


@pytest.mark.parametrize(
    "allow, deny, address, allowed",
    [
        (["10.0.0.0/8"], [], "10.1.2.3", True),
        (["10.0.0.0/8"], [], "192.0.2.1", False),  # an allow list is the whole list
        (["10.0.0.0/8"], [], "2001:db8::1", False),
        ([], ["10.0.0.0/8"], "10.1.2.3", False),
        ([], ["10.0.0.0/8"], "192.0.2.1", True),
        (["10.0.0.0/8"], ["10.9.0.0/16"], "10.9.0.1", False),
        (["10.9.0.7"], ["10.9.0.0/16"], "10.9.0.7", True),
        (["10.0.0.0/8", "10.9.0.7"], ["10.9.0.0/16"], "10.9.0.7", True),
        (["0.0.0.0/0", "::/0"], ["10.0.0.0/8"], "2001:db8::1", True),
        (["2001:db8::/32"], ["2001:db8:1::/48"], "2001:db8:1::9", False),
        ([], ["0.0.0.0/0", "::/0"], "192.0.2.1", False),
    ],
)
def test_the_longest_prefix_decides(allow: list[str], deny: list[str], address: str, allowed: bool) -> None:
    assert access(allow, deny).allows(ip_address(address)) is allowed


def test_an_address_that_is_not_known_is_in_no_network() -> None:
    assert not access(["0.0.0.0/0", "::/0"], []).allows(None)
    assert access([], ["0.0.0.0/0", "::/0"]).allows(None)


ipv4_addresses = st.integers(0, 0xFFFF).map(lambda number: IPv4Address(0x0A000000 | number))
ipv6_addresses = st.integers(0, 0xFFFF).map(IPv6Address)
addresses = ipv4_addresses | ipv6_addresses
networks = st.builds(
    lambda address, length: (
        ip_network((int(address), length), strict=False)
        if isinstance(address, IPv4Address)
        else ip_network((address, length + 96), strict=False)
    ),
    addresses,
    st.integers(0, 32),
)


@given(st.lists(networks, max_size=12), st.lists(networks, max_size=12), st.lists(addresses, max_size=20))
def test_it_is_the_longest_of_all_networks(
    allow: list[Network], deny: list[Network], clients: list[IpAddress]
) -> None:
    allow = [one for one in allow if one not in deny]
    rules = Access(allow, deny)
    for client in clients:
        holding = [one for one in (*allow, *deny) if client in one]
        longest = max(holding, key=lambda one: one.prefixlen, default=None)
        mapped = isinstance(client, IPv6Address) and client.ipv4_mapped
        if not mapped and not any(_is_mapped(one) for one in (*allow, *deny)):
            assert rules.allows(client) is (longest in allow if longest else not allow)


def _is_mapped(network: Network) -> bool:
    if isinstance(network, IPv4Network):
        return False
    return network.prefixlen >= 96 and network.network_address.ipv4_mapped is not None
