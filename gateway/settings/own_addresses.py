"""Addresses of the gateway itself. A backend there would get its own requests again and again.

Only certain matches count, because another address of this machine looks like any other. No socket is opened.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from gateway.core.fleet.backend import Backend
from gateway.core.fleet.service import Service
from gateway.keys.addresses import addresses_of
from gateway.settings.sections.admin import Admin
from gateway.settings.sections.backend import url_nodes
from gateway.settings.sections.listen import Listen
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, child

HINT: Final = "name the API's own address"


class OwnAddress(NamedTuple):
    """An address on which the gateway listens."""

    name: str
    hosts: tuple[str, ...]
    port: int
    path: str = ""


def own_addresses(listen: Sequence[Listen], admin: Admin) -> tuple[OwnAddress, ...]:
    """The addresses on which a gateway with this configuration listens."""
    return (
        *(
            OwnAddress(
                "where the gateway itself serves clients",
                (*addresses_of(one.host), "0.0.0.0") if one.dual_stack else addresses_of(one.host),  # noqa: S104
                one.port,
                one.path,
            )
            for one in listen
        ),
        OwnAddress("the gateway's own admin listener", addresses_of(admin.listen.host), admin.listen.port),
    )


def own_address_of(backend: Backend, own: Sequence[OwnAddress]) -> OwnAddress | None:
    """The gateway's own listen address that a backend has; None: it has none, as far as can be seen."""
    return next((each for each in own if _is_at(backend, each)), None)


def _is_at(backend: Backend, own: OwnAddress) -> bool:
    if backend.socket_path or own.path:
        return bool(own.path) and os.path.normpath(backend.socket_path) == os.path.normpath(own.path)
    if backend.port != own.port:
        return False
    return any(_reaches(mine, theirs) for mine in own.hosts for theirs in addresses_of(backend.host))


def _reaches(own: str, host: str) -> bool:
    """Whether connections to `host` certainly reach a listener of the gateway on the address `own`."""
    if own == host:
        return True
    try:
        mine, theirs = ip_address(own), ip_address(host)
    except ValueError:
        return False
    local = theirs.is_loopback or theirs.is_unspecified
    return mine.is_unspecified and local and mine.version == theirs.version


def check_own_addresses(
    listen: Sequence[Listen],
    admin: Admin,
    services: Sequence[Service],
    root: MappingNode,
    findings: Findings,
) -> None:
    """Report backends whose address is one of the gateway itself."""
    if findings.is_dropped("listen") or findings.is_dropped("admin", "listen"):
        return
    own = own_addresses(listen, admin)
    for service in services:
        nodes = url_nodes(child(root, "services", service.name, "backends"))
        for backend, node in zip(service.backends, nodes, strict=False):
            found = own_address_of(backend, own)
            if found is not None:
                findings.add(node, "own-address", f"this is {found.name}", HINT)
