"""A client connection before HTTP: the PROXY header, then TLS; and how many of them go on at once.

    PROXY header (from trusted peers, where the listener says so)
      -> the first byte: TLS, or plain HTTP on a TLS port
        -> its first record is here: parked -> a slot is free: active -> steps, some each turn
          -> `ClientConnection` over `TlsTransport`

Only listeners with one of the two have it. Whatever goes wrong here ends the connection, is counted, and
leaves nothing behind.

A handshake costs a thousand times more than the bytes that begin it. So their number is bounded, no turn of
the event loop spends more than `STEP_TIME` on them, and all is shared by source: one that floods takes slots
and time from itself, not from others. Who has sent nothing whole takes no slot.
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
"""Seconds of one turn of the loop. A signature takes 0.05 (ECDSA) to 1 ms (RSA): those who are connected wait
no longer than that for a flood."""
MAX_PAUSE: Final = 1.0
"""Seconds after which an active one that owes the next bytes yields, while others wait for a slot."""
MAX_COMPARED: Final = 32
"""Sources that are compared when a slot is free."""


class _Turns:
    """Connections that wait, by source; each source in turn has one of its own."""

    def __init__(self) -> None:
        self._by_source: dict[str, deque[PendingConnection]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_source)

    def add(self, one: PendingConnection) -> None:
        """To the end of those of its source."""
        self._by_source.setdefault(one.source, deque()).append(one)

    def next(self, having: Callable[[str], int] | None = None) -> PendingConnection:
        """The first of the source whose turn it is; of a few sources the one that has least already."""
        sources = iter(self._by_source)
        source = next(sources) if having is None else min(islice(sources, MAX_COMPARED), key=having)
        waiting = self._by_source.pop(source)
        one = waiting.popleft()
        if waiting:
            self._by_source[source] = waiting
        return one


@final
class AcceptPhase:
    """All connections of a worker that have not come to HTTP yet. `bound`: how many may be active."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._loop = asyncio.get_running_loop()
        self._all: dict[PendingConnection, None] = {}
        """The oldest first."""
        self._active: dict[str, dict[PendingConnection, None]] = {}
        """By source."""
        self.active = 0
        """How many are active."""
        self._parked = _Turns()
        self._queue = _Turns()
        self._filling = False

    def __len__(self) -> int:
        return len(self._all)

    @property
    def oldest_deadline(self) -> float:
        """The deadline of the one that came first; infinite where there is none."""
        return next((one.deadline for one in self._all), inf)

    def add(self, one: PendingConnection) -> None:
        """A connection has come."""
        self._all[one] = None

    def enter(self, one: PendingConnection) -> None:
        """It has sent what a handshake begins with, and waits for a slot: it is activated now or later."""
        self._parked.add(one)
        if self.active >= self._bound:
            self._make_room(one.source)
        self._fill()

    def removed(self, one: PendingConnection) -> None:
        """It has come to HTTP, or is closed."""
        if self._all.pop(one, self) is self:
            return
        if one.active:
            self._take_slot_from(one)
        self._fill()

    def queue(self, one: PendingConnection) -> None:
        """Call its `step` soon."""
        if one.queued:
            return
        one.queued = True
        if not self._queue:
            self._loop.call_soon(self._run_steps)
        self._queue.add(one)

    def yield_one(self) -> bool:
        """Close the oldest connection of the source that has most; False if there is none."""
        of_source: dict[str, int] = {}
        for one in self._all:
            of_source[one.source] = of_source.get(one.source, 0) + 1
        if not of_source:
            return False
        greediest = max(of_source, key=lambda source: of_source[source])
        next(one for one in self._all if one.source == greediest).refuse("displaced")
        return True

    def on_tick(self, now: float) -> None:
        """Close those whose time is over, and silent ones while others wait for a slot."""
        for one in [one for one in self._all if one.deadline <= now]:
            one.refuse("timeout")
        if not self._parked:
            return
        for one in [one for one in self._all if one.active and not one.queued]:
            if one.heard_at <= now - MAX_PAUSE:
                one.refuse("displaced")

    def close(self) -> None:
        """Close all of them."""
        for one in tuple(self._all):
            one.refuse("closed")

    # -- slots

    def _slots_of(self, source: str) -> int:
        return len(self._active.get(source, ()))

    def _give_slot_to(self, one: PendingConnection) -> None:
        one.active = True
        self._active.setdefault(one.source, {})[one] = None
        self.active += 1

    def _take_slot_from(self, one: PendingConnection) -> None:
        one.active = False
        self.active -= 1
        same_source = self._active[one.source]
        del same_source[one]
        if not same_source:
            del self._active[one.source]

    def _make_room(self, source: str) -> None:
        """A source that has two slots more than that of a newcomer gives one back: the oldest that waits for
        its peer."""
        mine = self._slots_of(source)
        greediest = max(self._active.values(), key=len)
        if len(greediest) > mine + 1:
            victim = next((one for one in greediest if not one.queued), None)
            if victim is not None:
                victim.refuse("displaced")

    def _fill(self) -> None:
        """Activate those who wait, while slots are free. Not from within itself: what is activated may end at
        once."""
        if self._filling:
            return
        self._filling = True
        try:
            while self._parked and self.active < self._bound:
                one = self._parked.next(self._slots_of)
                if one in self._all:
                    self._give_slot_to(one)
                    one.activated()
        finally:
            self._filling = False

    # -- steps

    def _run_steps(self) -> None:
        end = perf_counter() + STEP_TIME
        try:
            while self._queue:
                one = self._queue.next()
                one.queued = False
                if one in self._all:
                    self._run_step(one)
                    if perf_counter() >= end:
                        break
        finally:
            if self._queue:  # also after a step that has failed: it is no reason to forget the others
                self._loop.call_soon(self._run_steps)

    def _run_step(self, one: PendingConnection) -> None:
        try:
            one.step()
        except Exception:
            one.refuse("other")
            raise  # the loop reports it, as for any callback


MAX_HANDSHAKE: Final = 128 * 1024
"""Bytes that may come before a handshake is complete: OpenSSL's bound for a client's first message, and for
its certificates. Real handshakes have two or three KiB."""
MAX_PARKED: Final = 16 * 1024
"""Bytes that are read before a slot is free."""
LINGER: Final = 2.0
"""Seconds in which a client may read why it was refused. Closed at once, with bytes unread, it would get a
reset in place of the answer."""

_PROXY_HEADER: Final = 0
_FIRST_BYTE: Final = 1
_PARKED: Final = 2
_HANDSHAKE: Final = 3
_ENDING: Final = 4
_RECORD_HEAD: Final = 5
"""Bytes before the content of a TLS record; the last two of them are its length."""

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
"""Results of handshakes by what OpenSSL says. All other alerts are the client's, all else breaks TLS."""


class AcceptPhaseHome(ClientHome, Protocol):
    """The worker, as its pending connections see it."""

    accept_phase: AcceptPhase

    def accept_phase_began(self, pending: PendingConnection, /) -> None:
        """A connection has come that has something before HTTP."""

    def accept_phase_ended(self, pending: PendingConnection, /) -> None:
        """It has come to HTTP, or is closed."""


@final
class ListenerFilter:
    """One listener, as its connections see it."""

    def __init__(
        self, home: AcceptPhaseHome, listen: Listen, certificates: ServerCertificates | None = None
    ) -> None:
        self.home = home
        self.listen = listen
        self.certificates = certificates
        self.balance: Balance | None = None
        """None: every connection that comes is kept."""
        self.position = 0
        """Of the address in the configuration's list."""

    def connect(self) -> asyncio.Protocol:
        """The protocol for a new connection."""
        if self.balance is not None:
            return cast(asyncio.Protocol, AcceptedConnection(self.balance, self.protocol, self.position))
        return self.protocol()

    def protocol(self) -> asyncio.Protocol:
        """The protocol for a connection that is served here."""
        if self.certificates is not None or self.listen.proxy_protocol:  # it comes before HTTP
            return cast(asyncio.Protocol, PendingConnection(self))
        peer = self.peer(UNIX_PEER, "http") if self.listen.path else None
        return cast(asyncio.Protocol, ClientConnection(self.home, peer))

    def peer(self, address: str, scheme: str, certificate: ClientCertificate | None = None) -> Peer:
        """The other end of a connection from `address`."""
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
    """One connection on its way to HTTP: an `asyncio.Protocol` by its methods. It does not derive from that
    class, so that it can be compiled."""

    def __init__(self, listener: ListenerFilter) -> None:
        self.source = ""
        """Whose it is, for sharing: an IPv4 address, or a network of IPv6."""
        self.active = False
        """It has a slot."""
        self.queued = False
        """It waits for the gateway, not for its peer."""
        self.deadline = 0.0
        self.heard_at = 0.0
        self._listener = listener
        self._home = listener.home
        self._raw: asyncio.Transport
        self._stage = _FIRST_BYTE
        self._buffer = b""
        self._paused = False
        self._address = ""
        self._scheme = "http"
        self._tls: TlsTransport | None = None
        self._received = 0

    # -- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)  # uvloop's has all its methods
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
        """Nobody who stops here gets an answer."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._stage != _ENDING:
            if self._received or self._buffer:
                self._count("closed")
            self._end()
        self._home.accept_phase_ended(self)

    def pause_writing(self) -> None:
        """The peer does not take the handshake: the deadline ends it."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    # -- what `AcceptPhase` calls

    def activated(self) -> None:
        """It has a slot now: go on."""
        certificates = self._listener.certificates
        assert certificates is not None
        self.heard_at = self._home.context.now
        self._stage = _HANDSHAKE
        loop = asyncio.get_running_loop()
        self._tls = TlsTransport(self._raw, certificates.context, loop, self._count_broken)
        self._feed(self._tls)

    def refuse(self, reason: str) -> None:
        """Close it: the deadline has passed, or it has to yield."""
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
        """Only a client that has sent one takes a slot: half of it costs nothing."""
        if self._buffer[0] != TLS_HANDSHAKE:
            self._refuse_plain()
        elif (
            len(self._buffer) >= _RECORD_HEAD
            and len(self._buffer) >= _RECORD_HEAD + int.from_bytes(self._buffer[3:5], "big")
        ) or len(self._buffer) > MAX_PARKED:  # OpenSSL says what is wrong with a longer one
            self._stage = _PARKED
            self._home.accept_phase.enter(self)

    def _feed(self, tls: TlsTransport) -> None:
        self._received += len(self._buffer)
        tls.feed(self._buffer)
        self._buffer = b""
        if self._received > MAX_HANDSHAKE:  # perhaps with what comes after it: no more until it was its turn
            self._pause()
        self._home.accept_phase.queue(self)

    def _read_proxy_header(self) -> bool:
        """Whether it was read and something comes after it here."""
        try:
            header = read_proxy_header(self._buffer)
        except FramingError as error:
            self._home.context.metrics.count(OfProcess.client_errors, error.reason)
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
        """Do the next part of the handshake."""
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
        elif self._received > MAX_HANDSHAKE:
            self._count("oversized")
            self._close()
        else:
            self._read_more()

    # -- the end: HTTP, or nothing

    def _begin_https(self, tls: TlsTransport) -> None:
        certificates = self._listener.certificates
        assert certificates is not None
        certificate = certificates.client_certificate(tls.tls)
        if certificate is not None and certificate.not_after <= self._home.context.wall_clock():
            self._count("client_certificate")  # in a session that was resumed OpenSSL does not look
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

    def _begin_http(self) -> None:
        """Without TLS: the connection has no more to do with this object."""
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
        """Plain HTTP gets a plain answer that says so; what is neither that nor TLS gets none."""
        first = self._buffer[:1]
        if not first.isalpha() and first not in b"\r\n":
            self._count("not_tls")
            self._close()
            return
        self._count("plain_http")
        self._home.context.metrics.count(OfProcess.client_errors, "plain_http")
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
        """After what OpenSSL has to say was sent. `tls`: its handshake is complete."""
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

    def _count_broken(self, reason: str) -> None:
        self._home.context.metrics.count(OfProcess.client_errors, reason)

    def _count(self, result: str) -> None:
        """How it ended. Without TLS only what went wrong is counted."""
        metrics = self._home.context.metrics
        if self._listener.certificates is not None:
            metrics.count(OfProcess.tls_handshakes, result)
        elif result != "closed":
            metrics.count(OfProcess.client_errors, "proxy_header")


def source_of(address: str) -> str:
    """Whose a connection is. One machine may have all addresses of an IPv6 network of 64 bits."""
    if ":" not in address:
        return address
    try:
        return str(int(ip_address(address)) >> 64)
    except ValueError:  # a Unix socket
        return address


def failure_of(error: ssl.SSLError) -> str:
    """The result of a handshake that OpenSSL has ended."""
    reason = error.reason or ""
    return _RESULTS.get(reason) or ("client_refused" if "ALERT" in reason else "protocol")
