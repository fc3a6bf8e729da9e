"""Which discovered addresses are used.

Sources of backends are often kept by somebody else than the gateway: a name server, a registry, a file. An
address such as 169.254.169.254 would send probes, with their headers, to the metadata service of a cloud
(threats R3-T9).
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address

from gateway.core.fleet.admission import Network


def why_refused(host: str, networks: Sequence[Network] | None) -> str | None:
    """Why a backend at `host` is not taken, as part of a sentence; None: it is, or `host` is a name.

    `networks`: those of its source, which decide alone; empty: it has none, and special addresses are
    refused; None: the configuration names the backend itself.
    """
    if networks is None:
        return None
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    if networks:
        # One with a zone is in no network of another address.
        return None if any(address in network for network in networks) else "it is in none of its `networks`"
    kinds = (
        ("a link-local", address.is_link_local),
        ("a multicast", address.is_multicast),
        ("an unspecified", address.is_unspecified),
    )
    kind = next((name for name, applies in kinds if applies), None)
    return None if kind is None else f"it is {kind} address, which only `networks` of the source can allow"
