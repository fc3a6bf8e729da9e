"""From `admin` in the file to its settings: who can reach it, and by what they are known."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from gateway.settings.checks.tls import read_server_tls
from gateway.settings.model.document import Document
from gateway.settings.values import AdminSettings
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import MappingNode, child

LOOPBACK_NAME: Final = "localhost"


def read_admin(document: Document, root: MappingNode, findings: Findings) -> AdminSettings:
    """An admin listener that other machines can reach needs to know who its clients are: they can change the
    offer. Problems go to the findings."""
    written, node = document.admin, child(root, "admin")
    tls = read_server_tls(written.tls, child(node, "tls"), findings)
    known = written.token is not None or (tls is not None and tls.client_ca is not None)
    dropped = findings.is_dropped("admin", "token") or findings.is_dropped("admin", "tls")
    if not known and not dropped and not is_loopback(written.listen.host):
        findings.add(
            child(node, "listen"),
            "admin-exposed",
            "other machines could reach the admin listener without a token or a certificate",
            "set admin.token: ${SKEWGATE_ADMIN_TOKEN} or admin.tls.client_ca, or listen on 127.0.0.1",
        )
    metrics = written.metrics_listen
    return AdminSettings(
        written.listen.host,
        written.listen.port,
        written.token,
        tls,
        written.hosts,
        None if metrics is None else (metrics.host, metrics.port),
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name other than localhost may be any address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == LOOPBACK_NAME
