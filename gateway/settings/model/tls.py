"""TLS in the file: certificates of listeners, and how backends are verified.

The texts are read into values here. Whether the files are good is checked in `checks.tls`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from gateway.keys.addresses import HOST
from gateway.keys.kinds import ListOf, section
from gateway.keys.texts import FILE_PATH, FLAG, one_of


@final
@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, both in PEM."""

    certificate: str = field(
        metadata=FILE_PATH.required(
            "The server's certificate and after it the chain: each certificate issued by the next one. The "
            "root is not needed.",
            reason="Only the operator knows where it is.",
            example="/etc/skewgate/tls.crt",
        )
    )
    key: str = field(
        metadata=FILE_PATH.required(
            "Its private key, not encrypted.",
            reason="Only the operator knows where it is.",
            example="/etc/skewgate/tls.key",
        )
    )


CERTIFICATE: Final = section(Certificate)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS on a listener: TLS 1.2 and 1.3 with Mozilla's intermediate profile."""

    certificates: tuple[Certificate, ...] = field(
        metadata=ListOf(CERTIFICATE, least=1).required(
            "One or more. A client is shown the one for the name that it asks for (SNI), else the first. Two "
            "with the same names may have different kinds of keys (RSA and ECDSA). Files that change are "
            "read again.",
            reason="TLS needs one.",
            example=[{"certificate": "/etc/skewgate/tls.crt", "key": "/etc/skewgate/tls.key"}],
        )
    )
    client_ca: str | None = FILE_PATH.key(
        None,
        "CA certificates, with which certificates of clients are verified (mutual TLS).",
        reason="Most clients have no certificate.",
        example="/etc/skewgate/clients-ca.crt",
    )
    client: str = one_of("required", "optional").key(
        "required",
        "With `client_ca`: whether a client must have a certificate. One that is given is always verified.",
        reason="Who names a CA wants to know every client.",
        example="optional",
    )


SERVER_TLS: Final = section(ServerTls)


@final
@dataclass(frozen=True, slots=True)
class ListenerTls(ServerTls):
    """TLS on a listener for clients."""

    forward_client_cert: bool = FLAG.key(
        default=False,
        meaning="Whether backends get the client's certificate in the header `Client-Cert` (RFC 9440).",
        reason="Backends that do not read it should not get it: it takes one or two KiB of every head.",
        example=True,
    )


LISTENER_TLS: Final = section(ListenerTls)


@final
@dataclass(frozen=True, slots=True)
class BackendTls:
    """TLS to a backend."""

    ca: str | None = FILE_PATH.key(
        None,
        "CA certificates (PEM), by which the certificate of the backend is verified. The backend's own "
        "certificate may be one of them. The file is read at the start and with every reload.",
        reason="Without it those that the system trusts.",
        example="/etc/skewgate/backends-ca.crt",
    )
    server_name: str | None = HOST.key(
        None,
        "The name that the certificate must have, which is also sent (SNI).",
        reason="Without it the host of the URL.",
        example="ironic.example.org",
    )
    certificate: str | None = FILE_PATH.key(
        None,
        "The certificate that the gateway shows to the backend, with its chain (PEM). It and its key are "
        "read at the start and with every reload.",
        reason="Few backends ask for one.",
        example="/etc/skewgate/gateway.crt",
    )
    verify: str = one_of("on", "off").key(
        "on",
        "off: any certificate is accepted. A warning says so at each start.",
        reason="Without verification anyone on the way can take the place of the backend.",
        example="off",
    )
    key: str | None = FILE_PATH.key(
        None,
        "The private key of `certificate`, not encrypted.",
        reason="Few backends ask for a certificate.",
        example="/etc/skewgate/gateway.key",
    )


BACKEND_TLS: Final = section(BackendTls)
