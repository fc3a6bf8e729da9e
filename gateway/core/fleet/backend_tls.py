"""How a backend is spoken to over TLS, as configured. Nothing here opens a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

ContextKey: TypeAlias = tuple[str | None, str | None, str | None, bool, str]


@final
@dataclass(frozen=True, slots=True)
class BackendTls:
    """TLS to one backend. Paths are those of PEM files."""

    server_name: str
    """The name or IP address that its certificate must have; a name is also sent (SNI)."""
    ca: str | None = None
    """The certificates that are trusted; None: those of the system."""
    certificate: str | None = None
    """The certificate that the gateway shows, with its chain; None: it shows none."""
    key: str | None = None
    verify: bool = True
    """Whether the certificate of the backend must be valid. If not, anyone on the way can take its place."""
    digest: str = ""
    """Of the contents of the files. New contents make another backend: its connections are made anew."""

    @property
    def context_key(self) -> ContextKey:
        """Backends with the same one can share a context of OpenSSL."""
        return self.ca, self.certificate, self.key, self.verify, self.digest
