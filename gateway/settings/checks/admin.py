"""Checks of `admin`: who can reach the listener, and by what they are known."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from gateway.settings.checks.tls import check_server_tls
from gateway.settings.model.document import Document
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, child

LOOPBACK_NAME: Final = "localhost"


def check_admin(document: Document, root: MappingNode, findings: Findings) -> None:
    """An admin listener that other machines can reach needs to know who its clients are: they can change the
    offer. Problems go to the findings."""
    admin, node = document.admin, child(root, "admin")
    check_server_tls(admin.tls, child(node, "tls"), findings)
    known = admin.token is not None or (admin.tls is not None and admin.tls.client_ca is not None)
    dropped = findings.is_dropped("admin", "token") or findings.is_dropped("admin", "tls")
    if not known and not dropped and not is_loopback(admin.listen.host):
        findings.add(
            child(node, "listen"),
            "admin-exposed",
            "other machines could reach the admin listener without a token or a certificate",
            "set admin.token: ${SKEWGATE_ADMIN_TOKEN} or admin.tls.client_ca, or listen on 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name other than localhost may be any address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == LOOPBACK_NAME
