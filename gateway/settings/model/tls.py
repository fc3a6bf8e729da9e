"""TLS in the file: certificates of listeners, and how backends are verified.

The texts are read into values here. Whether the files are good is checked in `checks.tls`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gateway.settings.model.addresses import Host
from gateway.settings.model.fields import FilePath, Flag, Section, key, one_of, required


class Certificate(Section):
    """A certificate and its private key, both in PEM."""

    certificate: FilePath = required(
        "The server's certificate and after it the chain: each certificate issued by the next one. The root "
        "is not needed.",
        reason="Only the operator knows where it is.",
        example="/etc/skewgate/tls.crt",
    )
    key: FilePath = required(
        "Its private key, not encrypted.",
        reason="Only the operator knows where it is.",
        example="/etc/skewgate/tls.key",
    )


class ServerTls(Section):
    """TLS on a listener: TLS 1.2 and 1.3 with Mozilla's intermediate profile."""

    certificates: Annotated[tuple[Certificate, ...], Field(min_length=1)] = required(
        "One or more. A client is shown the one for the name that it asks for (SNI), else the first. Two "
        "with the same names may have different kinds of keys (RSA and ECDSA). Files that change are read "
        "again.",
        reason="TLS needs one.",
        example=[{"certificate": "/etc/skewgate/tls.crt", "key": "/etc/skewgate/tls.key"}],
    )
    client_ca: FilePath | None = key(
        None,
        "CA certificates, with which certificates of clients are verified (mutual TLS).",
        reason="Most clients have no certificate.",
        example="/etc/skewgate/clients-ca.crt",
    )
    client: Annotated[str, one_of("required", "optional")] = key(
        "required",
        "With `client_ca`: whether a client must have a certificate. One that is given is always verified.",
        reason="Who names a CA wants to know every client.",
        example="optional",
    )


class ListenerTls(ServerTls):
    """TLS on a listener for clients."""

    forward_client_cert: Flag = key(
        default=False,
        description="Whether backends get the client's certificate in the header `Client-Cert` (RFC 9440).",
        reason="Backends that do not read it should not get it: it takes one or two KiB of every head.",
        example=True,
    )


class BackendTls(Section):
    """TLS to a backend."""

    ca: FilePath | None = key(
        None,
        "CA certificates (PEM), by which the certificate of the backend is verified. The backend's own "
        "certificate may be one of them. The file is read at the start and with every reload.",
        reason="Without it those that the system trusts.",
        example="/etc/skewgate/backends-ca.crt",
    )
    server_name: Host | None = key(
        None,
        "The name that the certificate must have, which is also sent (SNI).",
        reason="Without it the host of the URL.",
        example="ironic.example.org",
    )
    certificate: FilePath | None = key(
        None,
        "The certificate that the gateway shows to the backend, with its chain (PEM). It and its key are "
        "read at the start and with every reload.",
        reason="Few backends ask for one.",
        example="/etc/skewgate/gateway.crt",
    )
    verify: Annotated[str, one_of("on", "off")] = key(
        "on",
        "off: any certificate is accepted. A warning says so at each start.",
        reason="Without verification anyone on the way can take the place of the backend.",
        example="off",
    )
    key: FilePath | None = key(
        None,
        "The private key of `certificate`, not encrypted.",
        reason="Few backends ask for a certificate.",
        example="/etc/skewgate/gateway.key",
    )
