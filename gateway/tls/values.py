"""What an operator says about TLS, as frozen values. `settings` makes them. Nothing here opens a file."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, final

WARN_BEFORE: Final = 14 * 86_400.0
"""Seconds before a certificate expires from which on a warning says so."""


@final
@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The paths of one certificate with its chain, and of its private key. Both are PEM."""

    certificate: str
    key: str


@final
@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS on a listener."""

    certificates: tuple[CertificateFiles, ...]
    """At least one. The first is shown to clients that name no server, or an unknown one."""
    client_ca: str | None = None
    """The path of the CA certificates (PEM) that clients' certificates are verified with. None: clients are
    not asked for one."""
    client_required: bool = True
    """With `client_ca`: a client without a certificate is refused."""
    forward_client_cert: bool = False
    """Backends get the client's certificate in `Client-Cert` (RFC 9440)."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file that is read."""
        files = [path for pair in self.certificates for path in (pair.certificate, pair.key)]
        return tuple(files) if self.client_ca is None else (*files, self.client_ca)


@final
@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The certificate of a client, which was verified in the handshake."""

    subject: str
    """As in RFC 4514."""
    fingerprint: str
    """SHA-256, hexadecimal."""
    line: bytes = b""
    """The header line `Client-Cert` for backends (RFC 9440); empty where they get none."""
    not_after: float = inf
    """Wall-clock seconds at which it expires, or a certificate of its chain does before."""
