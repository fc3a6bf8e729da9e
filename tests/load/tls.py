"""TLS of a fault run: its certificates, and a client's side of TLS without a connection.

What it does: one CA signs the certificates of the gateway and of the backends. `TlsLayer` turns plain bytes
into records and back, so that a slow client decides itself when it reads and writes how many bytes.

Rules: a file of a certificate stands for TLS; without one, everything is plain.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, NamedTuple, final

from tests.kit.certificates import Authority

READ: Final = 64 * 1024


class Files(NamedTuple):
    """The files of a run: the CA, and certificate and key of a server, of the gateway or of a backend."""

    ca: Path
    certificate: Path
    key: Path


def write_files(folder: Path, *names: str) -> Files:
    """A CA, and one certificate for all these names."""
    authority = Authority("fault run")
    return Files(authority.write(folder), *authority.server(*names).write(folder))


def client_context(ca: str) -> ssl.SSLContext | None:
    """What a client needs to know the gateway by this CA; empty: no TLS."""
    return ssl.create_default_context(cafile=ca) if ca else None


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@final
class TlsLayer:
    """A client's TLS over a connection that somebody else reads and writes."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._received = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._received, self._outgoing, server_hostname=host)

    def handshake(self) -> bool:
        """One step. Return whether it is done. What is to be sent is in `outgoing`."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, data: bytes) -> None:
        """Bytes of the connection."""
        self._received.write(data)

    def opened(self, data: bytes) -> bytes:
        """The plain bytes of the records that are complete with these bytes of the connection."""
        self.feed(data)
        found = []
        try:
            while plain := self._object.read(READ):
                found.append(plain)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(found)

    def sealed(self, data: bytes) -> bytes:
        """The records with these plain bytes."""
        self._object.write(data)
        return self.outgoing()

    def outgoing(self) -> bytes:
        return self._outgoing.read()
