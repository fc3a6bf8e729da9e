"""The TLS settings of listeners, as frozen values. `settings` makes them. Nothing here opens a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import time
from typing import Final, final

from gateway.core.days import DAY
from gateway.keys.kinds import ListOf, section, without
from gateway.keys.texts import FILE_PATH, FLAG, one_of

WARN_BEFORE: Final = 14.0 * DAY
"""Seconds before the expiry of a certificate during which a warning says so."""


wall_clock: Final[Callable[[], float]] = time
"""The time by which certificates expire: seconds since the epoch, not by a clock of this process."""


@final
@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate and its private key, both in PEM."""

    certificate: str = field(
        metadata=FILE_PATH.required(
            "The server's certificate and after it the chain: each certificate issued by the next one. The "
            "root is not needed.",
            reason="There is no useful default.",
            example="/etc/skewgate/tls.crt",
        )
    )
    key: str = field(
        metadata=FILE_PATH.required(
            "Its private key, not encrypted.",
            reason="There is no useful default.",
            example="/etc/skewgate/tls.key",
        )
    )


CERTIFICATE: Final = section(CertificateFiles, title="Certificate")


ABOUT_SERVER_TLS: Final = "TLS on a listener: TLS 1.2 and 1.3 with Mozilla's intermediate profile."


@final
@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS on a listener. The first certificate is shown to clients that name no server, or an unknown one."""

    certificates: tuple[CertificateFiles, ...] = field(
        metadata=ListOf(CERTIFICATE, least=1).required(
            "One or more. A client gets the one for the name that it asks for (SNI), else the first. Two "
            "with the same names may have different kinds of keys (RSA and ECDSA). Changed files are "
            "reloaded.",
            reason="TLS needs one.",
            example=[{"certificate": "/etc/skewgate/tls.crt", "key": "/etc/skewgate/tls.key"}],
        )
    )
    client_ca: str | None = FILE_PATH.key(
        None,
        "CA certificates that verify the certificates of clients (mutual TLS).",
        reason="Most clients have no certificate.",
        example="/etc/skewgate/clients-ca.crt",
    )
    client: str = one_of("required", "optional").key(
        "required",
        "With `client_ca`: whether a client must have a certificate. One that is given is always verified.",
        reason="If you set a CA, clients must have a certificate by default.",
        example="optional",
    )
    forward_client_cert: bool = FLAG.key(
        default=False,
        meaning="Whether backends get the client's certificate in the header `Client-Cert` (RFC 9440).",
        reason="Backends that do not read it should not get it: it takes one or two KiB of every head.",
        example=True,
    )

    @property
    def client_required(self) -> bool:
        """Whether a client without a certificate is refused. It has a meaning with `client_ca` only."""
        return self.client == "required"

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all certificate, key and CA files of a listener."""
        files = [path for pair in self.certificates for path in (pair.certificate, pair.key)]
        return tuple(files) if self.client_ca is None else (*files, self.client_ca)


LISTENER_TLS: Final = section(ServerTls, "TLS on a listener for clients.", title="ListenerTls")
SERVER_TLS: Final = without(LISTENER_TLS, "forward_client_cert", ABOUT_SERVER_TLS, "ServerTls")
"""The keys of `tls` for a listener that forwards no request, such as the admin listener."""


@final
@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The certificate of a client, which was verified in the handshake."""

    subject: str
    """The certificate's subject in the form of RFC 4514."""
    fingerprint: str
    """SHA-256 fingerprint of the certificate, hexadecimal."""
    line: bytes = b""
    """The header line `Client-Cert` for backends (RFC 9440); empty where they get none."""
    not_after: float = inf
    """Wall-clock seconds at which the certificate expires, or one of its chain if that is sooner."""
    names: tuple[str, ...] = ()
    """Alternative names of the certificate's subject; those of hosts in lower case."""
