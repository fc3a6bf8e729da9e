"""A TLS connection to the admin listener, from its acceptance to the end of the handshake.

    accepted -> the first byte: TLS, or plain HTTP -> handshake, a step in a turn -> `AdminConnection`

It counts as a connection from the first moment on: a thousand clients that never finish a handshake cannot
keep an operator out (threats R-B7). What OpenSSL is told is up to `gateway.tls.server`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, cast, final

from gateway.admin.connection import TLS_HANDSHAKE, AdminConnection, Connections
from gateway.admin.responses import error_bytes
from gateway.dataplane.edge.tls_transport import TlsTransport
from gateway.tls.server import ServerCertificates

MAX_HANDSHAKE: Final = 64 * 1024
"""Bytes of a handshake; one with a chain of certificates has some 10 KiB."""
PLAIN_HTTP: Final = "this port speaks TLS: use https"


@final
class HandshakeSteps:
    """Does the handshakes of a listener, one step in a turn of the event loop: a signature with RSA takes a
    millisecond, and the requests of the data plane come in between."""

    def __init__(self) -> None:
        self._waiting: deque[AdminOpening] = deque()

    def add(self, opening: AdminOpening) -> None:
        """Call its `step` soon."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
        self._waiting.append(opening)

    def _run(self) -> None:
        self._waiting.popleft().step()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._run)


@final
class AdminOpening(asyncio.Protocol):
    """One connection before its first request."""

    authorised = False
    idle = False

    def __init__(
        self,
        certificates: ServerCertificates,
        connections: Connections,
        steps: HandshakeSteps,
        new_connection: Callable[[], AdminConnection],
    ) -> None:
        self._certificates = certificates
        self._connections = connections
        self._steps = steps
        self._new_connection = new_connection
        self._raw: asyncio.Transport | None = None
        """None once it is closed, or belongs to the connection."""
        self._tls: TlsTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._data = b""
        """What has come for the next step. A context is made in the first one: it takes 0.4 ms."""
        self._received = 0
        self._is_refused = False
        """There are too many connections, which it is told after the handshake."""

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._connections.deadlines.head, self._fail, "timeout")
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        raw = self._raw
        if raw is None:
            return
        if not self._received and not data.startswith(TLS_HANDSHAKE):
            self._refuse_plain()
            return
        self._received += len(data)
        if self._received > MAX_HANDSHAKE:
            self._fail("tls")
            return
        self._data += data
        raw.pause_reading()
        self._steps.add(self)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._raw is not None and self._received:
            self._count("tls")
        self._end()

    # --- what `Connections` calls

    def turn_away(self) -> None:
        """Close it because there are too many."""
        self._fail("too_many_connections")

    def turn_away_later(self) -> None:
        """It is the one too many, and an operator may be behind it: say so once that can be understood."""
        self._is_refused = True

    def abort(self) -> None:
        """Close it at once."""
        raw = self._end()
        if raw is not None:
            raw.abort()

    # --- the handshake

    def step(self) -> None:
        """Go on with it."""
        raw, tls = self._raw, self._tls
        if raw is None:
            return
        if tls is None:
            loop, context = asyncio.get_running_loop(), self._certificates.context
            tls = self._tls = TlsTransport(raw, context, loop, lambda _: self._count("tls"))
        data, self._data = self._data, b""
        tls.feed(data)
        try:
            complete = tls.handshake()
        except ssl.SSLError:
            self._count("tls")
            self._end()
            raw.close()
            return
        raw.resume_reading()
        if complete:
            self._begin(tls)

    def _begin(self, tls: TlsTransport) -> None:
        """The handshake is complete. OpenSSL has verified the certificate; its end is compared here with the
        clock by which the connection will end."""
        is_refused = self._is_refused
        self._end()
        connection = self._new_connection()
        connection.is_one_too_many = is_refused
        certificate = self._certificates.client_certificate(tls.tls)
        if certificate is not None:
            connection.expires_at = certificate.not_after
            if connection.has_expired:
                self._count("tls")
                tls.close()
                return
        tls.begin(cast(asyncio.Protocol, connection))

    def _refuse_plain(self) -> None:
        self._count("tls")
        raw = self._end()
        if raw is not None:
            raw.write(error_bytes(400, PLAIN_HTTP))
            raw.close()

    def _fail(self, reason: str) -> None:
        self._count(reason)
        self.abort()

    def _count(self, reason: str) -> None:
        self._connections.errors.count(reason)

    def _end(self) -> asyncio.Transport | None:
        """From now on it does nothing."""
        raw, self._raw = self._raw, None
        if self._timer is not None:
            self._timer.cancel()
        self._connections.remove(self)
        return raw
