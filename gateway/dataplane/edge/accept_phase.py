"""Client connections before HTTP, in their accept phase: the PROXY header, then the TLS handshake.

    PROXY header (from trusted peers, if the listener has `proxy_protocol`)
      -> the first byte: TLS, or plain HTTP on a TLS port
        -> its first record is here: parked -> a slot is free: active -> steps, some in each loop iteration
          -> `ClientConnection` over `TlsTransport`

A failure here ends the connection, is counted, and leaves nothing behind. A handshake costs a thousand times
more than the bytes that begin it. So their number is bounded, no loop iteration spends more than `STEP_TIME`
on them, and slots and time are shared fairly between sources. A client that has not sent a whole first record
has no slot.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from ipaddress import ip_address
from itertools import islice
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol, cast, final

from gateway.dataplane.edge.balance import AcceptedConnection, Balance
from gateway.dataplane.edge.client_connection import TLS_HANDSHAKE, ClientConnection, ClientHome
from gateway.dataplane.edge.proxy_protocol import read_proxy_header
from gateway.dataplane.edge.tls_transport import TlsTransport
from gateway.dataplane.http1.forwarding import UNIX_PEER, Peer, plain_address
from gateway.dataplane.local_responses import answers
from gateway.errors import FramingError
from gateway.telemetry.series.process import OfProcess

if TYPE_CHECKING:
    from gateway.settings.sections.listen import Listen
    from gateway.tls.server import ServerCertificates
    from gateway.tls.values import ClientCertificate

STEP_TIME: Final = 0.002
"""Maximum seconds of TLS handshakes in one loop iteration: so long a flood delays other connections. A
signature takes 0.05 (ECDSA) to 1 ms (RSA)."""
MAX_PAUSE: Final = 1.0
"""Seconds after which a silent connection in its TLS handshake is closed while others wait for a slot."""
MAX_COMPARED: Final = 32
"""Maximum number of client sources that are compared when a handshake slot is free."""


class _Turns:
    """Round-robin queue of client connections by source (address or network): each source gets its turn."""

    def __init__(self) -> None:
        self.by_source: dict[str, deque[PendingConnection]] = {}
        """Waiting client connections by source, each source in its turn; empty if none waits."""

    def add(self, one: PendingConnection) -> None:
        """Append a connection to the queue of its client's address or network (the source)."""
        self.by_source.setdefault(one.source, deque()).append(one)

    def next(self, having: Callable[[str], int] | None = None) -> PendingConnection:
        """Take the next source's first connection; with `having`, that of the one with least of a few."""
        sources = iter(self.by_source)
        source = next(sources) if having is None else min(islice(sources, MAX_COMPARED), key=having)
        waiting = self.by_source.pop(source)
        one = waiting.popleft()
        if waiting:
            self.by_source[source] = waiting
        return one


@final
class AcceptPhase:
    """All connections of a worker that have not reached HTTP yet. `bound`: the number of handshake slots."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._loop = asyncio.get_running_loop()
        self._all: dict[PendingConnection, None] = {}
        self._active: dict[str, dict[PendingConnection, None]] = {}
        self.active = 0
        """Number of client connections that have a slot for their TLS handshake."""
        self._parked = _Turns()
        self._queue = _Turns()
        self._filling = False

    def __len__(self) -> int:
        return len(self._all)

    @property
    def oldest_deadline(self) -> float:
        """Deadline of the oldest connection before HTTP; infinite if there is none."""
        return next((one.deadline for one in self._all), inf)

    def add(self, one: PendingConnection) -> None:
        """Add a client connection that was just accepted."""
        self._all[one] = None

    def enter(self, one: PendingConnection) -> None:
        """Queue a connection whose TLS handshake can begin, and activate it if a slot is free."""
        if self.active < self._bound and not self._parked.by_source:
            self._activate(one)
            return
        self._parked.add(one)
        if self.active >= self._bound:
            self._make_room(one.source)
        self._fill()

    def removed(self, one: PendingConnection) -> None:
        """Forget a client connection that has reached HTTP or is closed."""
        if self._all.pop(one, self) is self:
            return
        if one.active:
            one.active = False
            self.active -= 1
            same_source = self._active[one.source]
            del same_source[one]
            if not same_source:
                del self._active[one.source]
        self._fill()

    def queue(self, one: PendingConnection) -> None:
        """Schedule the next step of a connection's TLS handshake."""
        if one.queued:
            return
        one.queued = True
        if not self._queue.by_source:
            self._loop.call_soon(self._run_steps)
        self._queue.add(one)

    def yield_one(self) -> bool:
        """Close the oldest connection before HTTP, of the source that has most; False if there is none."""
        of_source: dict[str, int] = {}
        for one in self._all:
            of_source[one.source] = of_source.get(one.source, 0) + 1
        if not of_source:
            return False
        greediest = max(of_source, key=lambda source: of_source[source])
        next(one for one in self._all if one.source == greediest).refuse("displaced")
        return True

    def on_tick(self, now: float) -> None:
        """Close connections before HTTP past their deadline and, while others want a slot, silent ones."""
        for one in [one for one in self._all if one.deadline <= now]:
            one.refuse("timeout")
        if not self._parked.by_source:
            return
        for one in [one for one in self._all if one.active and not one.queued]:
            if one.heard_at <= now - MAX_PAUSE:
                one.refuse("displaced")

    def close(self) -> None:
        """Close all client connections that have not reached HTTP yet."""
        for one in tuple(self._all):
            one.refuse("closed")

    # -- slots

    def _slots_of(self, source: str) -> int:
        return len(self._active.get(source, ()))

    def _make_room(self, source: str) -> None:
        """Close the oldest waiting handshake of the source with most slots, if `source` has two fewer."""
        mine = self._slots_of(source)
        greediest = max(self._active.values(), key=len)
        if len(greediest) > mine + 1:
            victim = next((one for one in greediest if not one.queued), None)
            if victim is not None:
                victim.refuse("displaced")

    def _fill(self) -> None:
        """Give free handshake slots to parked connections. Does nothing if called from within itself."""
        if self._filling or not self._parked.by_source:
            return
        self._filling = True
        try:
            while self._parked.by_source and self.active < self._bound:
                one = self._parked.next(self._slots_of)
                if one in self._all:
                    self._activate(one)
        finally:
            self._filling = False

    def _activate(self, one: PendingConnection) -> None:
        one.active = True
        self._active.setdefault(one.source, {})[one] = None
        self.active += 1
        one.activated()

    # -- steps

    def _run_steps(self) -> None:
        end = perf_counter() + STEP_TIME
        try:
            while self._queue.by_source:
                one = self._queue.next()
                one.queued = False
                if one in self._all:
                    self._run_step(one)
                    if perf_counter() >= end:
                        break
        finally:
            if self._queue.by_source:  # also after a failed step
                self._loop.call_soon(self._run_steps)

    def _run_step(self, one: PendingConnection) -> None:
        try:
            one.step()
        except Exception:
            one.refuse("other")
            raise  # the loop reports it, as for any callback


MAX_HANDSHAKE: Final = 128 * 1024
"""Maximum bytes of a client's TLS handshake, as in OpenSSL. Real ones have two or three KiB."""
MAX_PARKED: Final = 16 * 1024
"""Maximum bytes that are read from a client before its connection has a handshake slot."""
LINGER: Final = 2.0
"""Seconds for a refused client to read the reason: an immediate close, with bytes unread, is a reset."""

_PROXY_HEADER: Final = 0
_FIRST_BYTE: Final = 1
_PARKED: Final = 2
_HANDSHAKE: Final = 3
_ENDING: Final = 4
_RECORD_HEAD: Final = 5
"""Bytes of a TLS record before its content; the last two of them are its length."""

_RESULTS: Final = {
    "UNSUPPORTED_PROTOCOL": "version",
    "UNKNOWN_PROTOCOL": "version",
    "WRONG_VERSION_NUMBER": "version",
    "WRONG_SSL_VERSION": "version",
    "VERSION_TOO_LOW": "version",
    "NO_SHARED_CIPHER": "cipher",
    "NO_SUITABLE_KEY_SHARE": "cipher",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "cipher",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "client_certificate",
    "CERTIFICATE_VERIFY_FAILED": "client_certificate",
    "CERT_LENGTH_MISMATCH": "client_certificate",
}
"""TLS handshake results by OpenSSL's reason. Other alerts are `client_refused`, all else `protocol`."""


class AcceptPhaseHome(ClientHome, Protocol):
    """Interface of the worker for client connections that have not reached HTTP."""

    accept_phase: AcceptPhase

    def accept_phase_began(self, pending: PendingConnection, /) -> None:
        """Register a new client connection that is not at HTTP yet."""

    def accept_phase_ended(self, pending: PendingConnection, /) -> None:
        """Forget a client connection that has reached HTTP or is closed."""


@final
class ListenerFilter:
    """Steps before HTTP for the connections of one listener: balance, PROXY header, TLS."""

    def __init__(
        self, home: AcceptPhaseHome, listen: Listen, certificates: ServerCertificates | None = None
    ) -> None:
        self.home = home
        self.listen = listen
        self.certificates = certificates
        self.balance: Balance | None = None
        """Balance of client connections over the workers; None: every accepted connection is kept."""
        self.position = 0
        """Index of this listener's address in `listen`."""

    def connect(self) -> asyncio.Protocol:
        """Make the asyncio protocol for a new client connection, which may go to another worker."""
        if self.balance is not None:
            return cast(asyncio.Protocol, AcceptedConnection(self.balance, self.protocol, self.position))
        return self.protocol()

    def protocol(self) -> asyncio.Protocol:
        """Make the asyncio protocol for a client connection that this worker serves."""
        if self.certificates is not None or self.listen.proxy_protocol:  # with an accept phase
            return cast(asyncio.Protocol, PendingConnection(self))
        peer = self.peer(UNIX_PEER, "http") if self.listen.path else None
        return cast(asyncio.Protocol, ClientConnection(self.home, peer))

    def peer(self, address: str, scheme: str, certificate: ClientCertificate | None = None) -> Peer:
        """Describe the client at the other end of a connection from `address`."""
        context = self.home.context
        trusted_socket = self.listen.trusted and address == UNIX_PEER
        return Peer(
            address,
            scheme,
            context.trusted,
            context.forwarding_lines,
            trusted_socket=trusted_socket,
            certificate=certificate,
        )


@final
class PendingConnection:
    """A client connection before HTTP. Has `asyncio.Protocol`'s methods; not derived, so that it compiles."""

    def __init__(self, listener: ListenerFilter) -> None:
        self.source = ""
        """Source for which the connection counts: the client's address or network (`source_of`)."""
        self.active = False
        """Whether the client connection has a slot for its TLS handshake."""
        self.queued = False
        """Whether the next handshake step is scheduled: the gateway and not the client is waited for."""
        self.deadline = 0.0
        self.heard_at = 0.0
        self._listener = listener
        self._home = listener.home
        self._raw: asyncio.Transport
        self._stage = _FIRST_BYTE
        self._buffer = b""
        self._paused = False
        self._ended = False
        """Whether the client has closed its sending side while a handshake step was due."""
        self._address = ""
        self._scheme = "http"
        self._tls: TlsTransport | None = None
        self._received = 0

    # -- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)  # uvloop's transport has all its methods
        listener, context = self._listener, self._home.context
        peername = transport.get_extra_info("peername")
        self._address = plain_address(str(peername[0])) if peername else UNIX_PEER
        self.source = source_of(self._address)
        self.heard_at = context.now
        self.deadline = context.now + context.timeouts.handshake
        if listener.listen.proxy_protocol and listener.peer(self._address, "http").is_trusted:
            self._stage = _PROXY_HEADER
        elif listener.certificates is None:
            self._begin_http()
            return
        self._home.accept_phase_began(self)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._home.context.now
        if self._stage == _ENDING:
            return
        self._buffer = self._buffer + data if self._buffer else data
        self._go_on()

    def eof_received(self) -> bool:
        """Let the transport close: a client that ends before HTTP gets no answer. But a step that is due may
        reach HTTP: in TLS 1.3 requests may come together with the last message of the handshake."""
        self._ended = self._stage == _HANDSHAKE and self.queued
        return self._ended

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stage != _ENDING:
            if self._received or self._buffer:
                self._count("closed")
            self._end()
        self._home.accept_phase_ended(self)

    def pause_writing(self) -> None:
        """Do nothing: a client that does not take the handshake is closed at the deadline."""

    def resume_writing(self) -> None:
        """Do nothing, like `pause_writing`: the handshake does not wait for the client to read."""

    # -- what `AcceptPhase` calls

    def activated(self) -> None:
        """Begin the TLS handshake: the connection has a slot."""
        certificates = self._listener.certificates
        assert certificates is not None
        self.heard_at = self._home.context.now
        self._stage = _HANDSHAKE
        loop = asyncio.get_running_loop()
        self._tls = TlsTransport(self._raw, certificates.context, loop, self._count_error)
        self._feed(self._tls)

    def refuse(self, reason: str) -> None:
        """Close the client connection at once, and count `reason`."""
        if self._stage != _ENDING:
            self._count(reason)
            self._end()
        self._home.accept_phase_ended(self)
        self._raw.abort()

    # -- from byte to byte

    def _go_on(self) -> None:
        if self._stage == _PROXY_HEADER and not self._read_proxy_header():
            return
        if not self._buffer:
            return
        if self._stage == _FIRST_BYTE:
            self._await_first_record()
        elif self._stage == _PARKED and len(self._buffer) > MAX_PARKED:
            self._pause()
        elif self._stage == _HANDSHAKE and self._tls is not None:
            self._feed(self._tls)

    def _await_first_record(self) -> None:
        """Ask for a handshake slot once the first TLS record is complete. Half a record costs nothing."""
        if self._buffer[0] != TLS_HANDSHAKE:
            self._refuse_plain()
        elif (
            len(self._buffer) >= _RECORD_HEAD
            and len(self._buffer) >= _RECORD_HEAD + int.from_bytes(self._buffer[3:5], "big")
        ) or len(self._buffer) > MAX_PARKED:  # OpenSSL reports what is wrong with a longer one
            self._stage = _PARKED
            self._home.accept_phase.enter(self)

    def _feed(self, tls: TlsTransport) -> None:
        self._received += len(self._buffer)
        tls.feed(self._buffer)
        self._buffer = b""
        if self._received > MAX_HANDSHAKE:  # perhaps with data after it: read no more before the next step
            self._pause()
        self._home.accept_phase.queue(self)

    def _read_proxy_header(self) -> bool:
        """Read the PROXY header; whether TLS bytes follow it."""
        try:
            header = read_proxy_header(self._buffer)
        except FramingError as error:
            self._count_error(error.reason)
            self._close()
            return False
        if header is None:
            return False
        self._buffer = self._buffer[header.size :]
        if header.tls:
            self._scheme = "https"
        if header.address:
            self._address = header.address
            self.source = source_of(header.address)
        self._stage = _FIRST_BYTE
        if self._listener.certificates is None:
            self._begin_http()
            return False
        return True

    def step(self) -> None:
        """Do the next part of the TLS handshake."""
        tls = self._tls
        if tls is None or self._stage != _HANDSHAKE:
            return
        try:
            complete = tls.handshake()
        except ssl.SSLError as error:
            self._count(failure_of(error))
            self._close()
            return
        if complete:
            self._begin_https(tls)
        elif self._ended or self._received > MAX_HANDSHAKE:
            self._count("closed" if self._ended else "oversized")
            self._close()
        else:
            self._read_more()

    # -- the end: HTTP, or nothing

    def _begin_https(self, tls: TlsTransport) -> None:
        certificates = self._listener.certificates
        assert certificates is not None
        certificate = certificates.client_certificate(tls.tls)
        if certificate is not None and certificate.not_after <= self._home.context.wall_clock():
            self._count("client_certificate")  # OpenSSL does not check this in a resumed session
            self._close(tls)
            return
        self._count("resumed" if tls.tls.session_reused else "full")
        peer = self._listener.peer(self._address, "https", certificate)
        self._stage = _ENDING
        self._tls = None
        client = ClientConnection(self._home, peer)
        self._read_more()
        self._home.accept_phase_ended(self)
        tls.begin(cast(asyncio.Protocol, client))
        if self._ended:
            tls.eof_received()

    def _begin_http(self) -> None:
        rest, self._buffer = self._buffer, b""
        self._stage = _ENDING
        client = ClientConnection(self._home, self._listener.peer(self._address, self._scheme))
        self._raw.set_protocol(cast(asyncio.Protocol, client))
        self._read_more()
        self._home.accept_phase_ended(self)
        client.connection_made(self._raw)
        if rest:
            client.data_received(rest)

    def _refuse_plain(self) -> None:
        """Answer plain HTTP on a TLS port with 400. Anything else that is not TLS gets no answer."""
        first = self._buffer[:1]
        if not first.isalpha() and first not in b"\r\n":
            self._count("not_tls")
            self._close()
            return
        self._count("plain_http")
        self._count_error("plain_http")
        response = answers.encode(
            answers.plain_error(400, "plain_http"),
            "plain_http",
            is_head_request=False,
            connection=answers.CLOSE_LINE,
        )
        self._raw.write(response)
        self._end()
        self.deadline = min(self.deadline, self._home.context.now + LINGER)
        if self._raw.can_write_eof():
            self._raw.write_eof()

    def _close(self, tls: TlsTransport | None = None) -> None:
        """Close the client connection after OpenSSL's last bytes. `tls`: set if the handshake is complete."""
        self._end()
        self._home.accept_phase_ended(self)
        if tls is not None:
            tls.close()
        else:
            self._raw.close()

    def _end(self) -> None:
        self._stage = _ENDING
        self._buffer = b""
        self._tls = None

    def _pause(self) -> None:
        if not self._paused and not self._raw.is_closing():
            self._paused = True
            self._raw.pause_reading()

    def _read_more(self) -> None:
        if self._paused and not self._raw.is_closing():
            self._paused = False
            self._raw.resume_reading()

    def _count_error(self, reason: str) -> None:
        self._home.context.metrics.count(OfProcess.client_errors, reason)

    def _count(self, result: str) -> None:
        """Count the result of PROXY header and TLS handshake. Without TLS only failures are counted."""
        if self._listener.certificates is not None:
            self._home.context.metrics.count(OfProcess.tls_handshakes, result)
        elif result != "closed":
            self._count_error("proxy_header")


def source_of(address: str) -> str:
    """Source of an address: itself, or its /64 network in IPv6, all of which one machine may have."""
    if ":" not in address:
        return address
    try:
        return str(int(ip_address(address)) >> 64)
    except ValueError:  # a Unix socket
        return address


def failure_of(error: ssl.SSLError) -> str:
    """Result, as a metric label, of a TLS handshake that OpenSSL has ended with an error."""
    reason = error.reason or ""
    return _RESULTS.get(reason) or ("client_refused" if "ALERT" in reason else "protocol")
