"""The admin listener in the file. Whether it is exposed is checked in `checks.admin`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

from gateway.keys.addresses import HOST, LISTEN_ADDRESS, Address
from gateway.keys.kinds import ListOf, section
from gateway.keys.secrets import Secret
from gateway.keys.texts import SECRET
from gateway.tls.values import SERVER_TLS, CertificateFiles, ServerTls


@final
@dataclass(frozen=True, slots=True)
class Admin:
    """The listener for the people and programs that operate the gateway."""

    listen: Address = LISTEN_ADDRESS.key(
        "127.0.0.1:9900",
        "HOST:PORT of the admin listener: health, metrics, status, pins.",
        reason="Everybody who reaches it can drain backends, so it is open to this machine only.",
        example="127.0.0.1:9900",
    )
    token: Secret | None = SECRET.key(
        None,
        "The token that clients of the admin listener send as `Authorization: Bearer TOKEN`. It or "
        "`tls.client_ca` is required unless `listen` is a loopback address.",
        reason="On loopback the users of the machine are trusted.",
        example="${SKEWGATE_ADMIN_TOKEN}",
    )
    tls: ServerTls | None = SERVER_TLS.key(
        None,
        "TLS on the admin listener. A client with a certificate of `client_ca` needs no token.",
        reason="On loopback nobody is on the way.",
        example={
            "certificates": [{"certificate": "/etc/skewgate/admin.crt", "key": "/etc/skewgate/admin.key"}],
            "client_ca": "/etc/skewgate/operators-ca.crt",
        },
    )
    hosts: tuple[str, ...] = ListOf(HOST).key(
        (),
        "Further names by which clients address it, as in `Host`; loopback, the host of `listen` and the "
        "address of the connection are always taken. `/livez` and `/readyz` need none of them.",
        reason="A web page whose name leads to this address could read it otherwise.",
        example=["gateway-1.example.org"],
    )
    metrics_listen: Address | None = LISTEN_ADDRESS.key(
        None,
        "HOST:PORT of another listener, without TLS, on which everybody gets `/metrics`, `/livez` and "
        "`/readyz`, and nothing else, whatever `Host` they send.",
        reason="Names of services and backends are for those who operate them.",
        example="10.0.0.5:9901",
    )

    @property
    def fixed(self) -> Admin:
        """What a reload cannot change: all but the certificates and the token itself."""
        tls = None if self.tls is None else ServerTls((CertificateFiles("", ""),))
        return replace(self, tls=tls, token=None if self.token is None else Secret(""))


ADMIN: Final = section(Admin)
