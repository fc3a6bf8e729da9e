"""TLS to backends in the file: how they are verified.

The texts are read into values here. Whether the files are good is checked in `checks.tls`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from gateway.keys.addresses import HOST
from gateway.keys.kinds import section
from gateway.keys.texts import FILE_PATH, one_of


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
