"""TLS to the admin listener: by what a verb knows the gateway, and by what the gateway knows the operator.

With `--ca` the gateway is known by a CA and its name, as everywhere. With `-c FILE` alone it is known by the
very certificate that the file names: no name and no CA matter then. Decides nothing else and prints nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from gateway.errors import AdminError, SettingsError

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPSConnection

CA_VARIABLE: Final = "SKEWGATE_ADMIN_CA"
CERTIFICATE_VARIABLE: Final = "SKEWGATE_ADMIN_CERT"
KEY_VARIABLE: Final = "SKEWGATE_ADMIN_KEY"

_CERTIFICATE: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.ASCII | re.DOTALL
)


@final
@dataclass(frozen=True, slots=True)
class AdminTls:
    """What a verb needs for https. Paths are those of PEM files."""

    ca: str | None = None
    """Whom to trust; None: the CAs of the system."""
    certificate: str | None = None
    key: str | None = None
    """None: it is in the file of the certificate."""
    pinned: frozenset[bytes] = frozenset()
    """The gateway must have one of these certificates (DER), and nothing else is looked at. Empty: it is
    verified."""

    def connection(self, host: str, port: int | None, timeout: float) -> HTTPSConnection:
        """One that is open, to the right gateway. Raises `OSError`, and `AdminError` for wrong files."""
        from http.client import HTTPSConnection  # noqa: PLC0415 - plain HTTP does without TLS

        connection = HTTPSConnection(host, port, timeout=timeout, context=self._context())
        connection.connect()
        if self.pinned and connection.sock.getpeercert(binary_form=True) not in self.pinned:
            connection.close()
            raise AdminError(
                "another certificate than the file names is shown there: "
                "is it another program, or has the file changed? give --ca to verify it by its name"
            )
        return connection

    def _context(self) -> ssl.SSLContext:
        import ssl  # noqa: PLC0415 - plain HTTP does without it

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        path = self.ca or ""
        try:
            if self.pinned:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE  # compared as a whole instead
            elif self.ca is None:
                context.load_default_certs()
            else:
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
                context.load_verify_locations(self.ca)
            if self.certificate is not None:
                path = self.certificate
                context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise AdminError(f"{path} cannot be used for TLS: {reason}") from error
        return context


PLAIN_TLS: Final = AdminTls()
"""The CAs of the system, and no certificate."""


FILES: Final = (
    ("--ca", "the CA of its certificate; default: that of -c FILE, or the CAs of the system", CA_VARIABLE),
    ("--cert", "the certificate of the operator, with its chain", CERTIFICATE_VARIABLE),
    ("--key", "the private key of --cert, unless it is in the same file", KEY_VARIABLE),
)
"""Option, meaning, and the environment variable that stands for it. All are for an https admin listener."""


def find(ca: str | None, cert: str | None, key: str | None, certificates: Iterable[str] | None) -> AdminTls:
    """What the options say. `certificates`: the files of those that the admin listener in `-c FILE` shows;
    None: it has no TLS. Raises `SettingsError`."""
    if key is not None and cert is None:
        raise SettingsError("--key needs --cert")
    pinned: frozenset[bytes] = frozenset()
    if certificates is not None and ca is None:
        pinned = frozenset(map(_first_certificate, certificates))
    return AdminTls(ca, cert, key, pinned)


def _first_certificate(path: str) -> bytes:
    """In DER."""
    try:
        text = Path(path).read_bytes().decode("ascii", "replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise SettingsError(
            f"the certificate of the admin listener, {path}, cannot be read: {reason}"
        ) from None
    import ssl  # noqa: PLC0415 - plain HTTP does without it

    found = _CERTIFICATE.search(text)
    try:
        return ssl.PEM_cert_to_DER_cert(found[0] if found else "")
    except ValueError:
        raise SettingsError(f"{path} has no certificate in PEM") from None
