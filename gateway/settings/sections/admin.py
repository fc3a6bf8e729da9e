"""`admin`: the listener for operators and their programs, and how its clients are authenticated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import final

from gateway.keys.addresses import HOST, LISTEN_ADDRESS, LOCALHOST, Address
from gateway.keys.kinds import ListOf
from gateway.keys.secrets import Secret
from gateway.keys.texts import SECRET
from gateway.settings.sections.tls import check_server_tls
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node, child
from gateway.tls.values import SERVER_TLS, CertificateFiles, ServerTls


@final
@dataclass(frozen=True, slots=True)
class Admin:
    """The listener for the people and programs that operate the gateway."""

    listen: Address = LISTEN_ADDRESS.key(
        "127.0.0.1:9900",
        "HOST:PORT of the admin listener: health, metrics, status, pins.",
        reason="Everybody who reaches it can drain backends, so by default only this machine can.",
        example="127.0.0.1:9900",
    )
    token: Secret | None = SECRET.key(
        None,
        "The token that clients of the admin listener send as `Authorization: Bearer TOKEN`. It or "
        "`tls.client_ca` is required unless `listen` is a loopback address.",
        reason="On loopback, the users of the machine are trusted.",
        example="${SKEWGATE_ADMIN_TOKEN}",
    )
    tls: ServerTls | None = SERVER_TLS.key(
        None,
        "TLS on the admin listener. A client with a certificate of `client_ca` needs no token.",
        reason="Loopback traffic does not leave the machine.",
        example={
            "certificates": [{"certificate": "/etc/skewgate/admin.crt", "key": "/etc/skewgate/admin.key"}],
            "client_ca": "/etc/skewgate/operators-ca.crt",
        },
    )
    hosts: tuple[str, ...] = ListOf(HOST).key(
        (),
        "Further allowed values of `Host`. Loopback names, the host of `listen` and the address of the "
        "connection are always allowed. `/livez` and `/readyz` allow any.",
        reason="Otherwise a web page could read it through DNS rebinding.",
        example=["gateway-1.example.org"],
    )
    metrics_listen: Address | None = LISTEN_ADDRESS.key(
        None,
        "HOST:PORT of another listener, without TLS, token or check of `Host`, that serves only `/metrics`, "
        "`/livez` and `/readyz`.",
        reason="Metrics contain the names of services and backends.",
        example="10.0.0.5:9901",
    )

    @property
    def fixed(self) -> Admin:
        """The admin settings that a reload cannot change: all but the certificates and the token itself."""
        tls = None if self.tls is None else ServerTls((CertificateFiles("", ""),))
        return replace(self, tls=tls, token=None if self.token is None else Secret(""))


def check_admin(admin: Admin, node: Node | None, findings: Findings) -> None:
    """Report an admin listener that other machines can reach without a token or a certificate."""
    check_server_tls(admin.tls, child(node, "tls"), findings)
    known = admin.token is not None or (admin.tls is not None and admin.tls.client_ca is not None)
    dropped = findings.is_dropped("admin", "token") or findings.is_dropped("admin", "tls")
    if not known and not dropped and not is_loopback(admin.listen.host):
        message = "other machines could reach the admin listener without a token or a certificate"
        hint = "set admin.token: ${SKEWGATE_ADMIN_TOKEN} or admin.tls.client_ca, or listen on 127.0.0.1"
        findings.add(child(node, "listen"), "admin-exposed", message, hint)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name other than localhost may be any address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == LOCALHOST
