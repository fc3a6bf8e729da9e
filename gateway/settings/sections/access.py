"""`access` of a service: from which addresses it may be used."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import final

from gateway.core.fleet.admission import Access
from gateway.keys.addresses import NETWORK
from gateway.keys.kinds import ListOf
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node, SequenceNode, child


@final
@dataclass(frozen=True, slots=True)
class WrittenAccess:
    """Networks from which the service may be used."""

    allow: tuple[IPv4Network | IPv6Network, ...] | None = ListOf(NETWORK).key(
        None,
        "Networks that may use the service; if there are any, all others may not. If networks of both lists "
        "contain an address, the longest prefix decides.",
        reason="Without rules, every client that reaches the listener may use its services.",
        example=["10.0.0.0/8", "fd00::/8"],
    )
    deny: tuple[IPv4Network | IPv6Network, ...] | None = ListOf(NETWORK).key(
        None,
        "Networks that may not use the service: they get 403 in the API's own format. Behind "
        "`trusted_proxies` the forwarded address counts; a forwarded text that is no address gets 403, with "
        "`allow` as well.",
        reason="Without rules, every client that reaches the listener may use its services.",
        example=["10.9.0.0/16"],
    )


def read_access(service: str, written: WrittenAccess, node: Node | None, findings: Findings) -> Access | None:
    """The access rules of a service; None: there are none. `node`: the key `access`."""
    for name in ("allow", "deny"):
        listed, dropped = child(node, name), findings.is_dropped("services", service, "access", name)
        if isinstance(listed, SequenceNode) and not listed.items and not dropped:
            hint = 'name networks, or remove the key; `deny: [0.0.0.0/0, "::/0"]` allows nobody'
            findings.bad_value(listed, "the list is empty, which would change nothing", hint)
    allow, deny = written.allow or (), written.deny or ()
    for index, network in enumerate(deny):
        if network in allow:
            message = "this network is allowed and denied"
            findings.contradiction(child(node, "deny", index), message, "remove it from one of the lists")
    return Access(allow, deny) if allow or deny else None
