"""The recorder: a TCP relay that records every request and its response.

What it does: it listens on its own port of loopback, relays every connection byte for byte to one target, and
keeps an `Exchange` for each request. It records a request before it forwards the bytes, and a response before
it returns them. So whoever has seen a response finds it recorded.

Rules: it never changes a byte. `stop` refuses connections and closes those that are open, as a server that is
down. `refuse` only refuses, as a server that is about to end. `start` listens on the same port again.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle

from tests.kit.messages import Message, body_end, head_of, read_fields
from tests.kit.networks import LOOPBACK, free_port

OWN_HEADER = "X-OpenStack-Ironic-API-Version"
STANDARD_HEADER = "OpenStack-API-Version"
MINIMUM_HEADER = "X-OpenStack-Ironic-API-Minimum-Version"
MAXIMUM_HEADER = "X-OpenStack-Ironic-API-Maximum-Version"


class Head(Message):
    """A message without its body, which is asked for its fields again and again."""

    @cached_property
    def fields(self) -> list[tuple[str, str]]:
        return read_fields(self.head)


@dataclass(slots=True)
class Exchange:
    """One request, and its response once there is one. `began` and `ended` are times of `time.monotonic`."""

    request: Message
    response: Message | None = None
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def path(self) -> str:
        return self.request.target.partition("?")[0]

    @property
    def requested(self) -> str | None:
        """The version in Ironic's own request field, as written."""
        return self.request.get(OWN_HEADER)

    @property
    def requested_standard(self) -> str | None:
        """The version for bare metal in the standard field, if there is one."""
        for item in (self.request.get(STANDARD_HEADER) or "").split(","):
            service, _, version = item.strip().partition(" ")
            if service == "baremetal":
                return version.strip()
        return None

    @property
    def status(self) -> int | None:
        return self.response.status if self.response else None

    @property
    def succeeded(self) -> bool:
        return self.status is not None and self.status < 300

    @property
    def served(self) -> str | None:
        return self.response.get(OWN_HEADER) if self.response else None

    @property
    def offered(self) -> tuple[str | None, str | None]:
        if self.response is None:
            return None, None
        return self.response.get(MINIMUM_HEADER), self.response.get(MAXIMUM_HEADER)

    @property
    def was_forwarded(self) -> bool:
        """True when a gateway forwarded it (`Via`), or HAProxy (`X-Forwarded-For`): probes have neither."""
        return any(self.request.get(name) is not None for name in ("Via", "X-Forwarded-For"))

    def __str__(self) -> str:
        versions = self.requested or "no version"
        if self.requested_standard is not None and self.requested_standard != self.requested:
            versions += f", baremetal {self.requested_standard}"
        response = f"{self.status} served {self.served}" if self.response else "no response"
        return f"{self.method} {self.request.target} [{versions}] -> {response}"


class MessageReader:
    """Finds the heads in one direction of one connection, and reads bodies only to skip them. It does not use
    the gateway's parser on purpose, because it must not share its mistakes.

    `bodiless`: whether no body follows a response, whatever its fields say; None: for requests.
    """

    def __init__(self, bodiless: Callable[[Message], bool] | None = None) -> None:
        self._bodiless = bodiless
        self._held = b""
        self._in_body = False
        self._ends_with_head = False

    def feed(self, data: bytes) -> Iterator[Message]:
        """Return the heads that these bytes complete."""
        self._held += data
        while head := head_of(self._held):
            if not self._in_body:
                self._in_body = True
                message = Head(head, b"", "")
                self._ends_with_head = self._bodiless is not None and self._bodiless(message)
                yield message
            end = body_end(self._held, len(head), bodiless=self._bodiless is None)
            if self._ends_with_head:
                end = len(head)
            if end < 0:
                return
            self._held, self._in_body = self._held[end:], False


class Recorder:
    """A relay from its own port to `target`, a port of loopback. Use it as a context manager. With other
    `targets`, connections go to each in turn."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.targets = cycle([target])
        self.port = free_port()
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = []
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._acceptor: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def __enter__(self) -> Recorder:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, also after `stop` or `refuse`. Nothing happens if it listens already."""
        if self._listener is not None:
            return
        listener = socket.create_server((LOOPBACK, self.port), backlog=64)
        self._listener = listener
        self._acceptor = self._spawn(self._accept, listener)

    def refuse(self) -> None:
        """Refuse new connections. Open ones continue. Return when no more are accepted."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        # shutdown wakes the thread that waits in accept; close alone would not.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        if self._acceptor is not None:
            self._acceptor.join(timeout=10)

    def stop(self) -> None:
        """Refuse new connections and close open ones. Return when all threads have ended."""
        self.refuse()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join(timeout=10)

    def exchanges(self, since: int = 0) -> list[Exchange]:
        """The exchanges from number `since` on, oldest first."""
        with self._lock:
            return self._exchanges[since:]

    def count(self) -> int:
        """The number of requests so far, which is the number of the next exchange."""
        with self._lock:
            return len(self._exchanges)

    # -- the relay itself ------------------------------------------------------------------------

    def _spawn(self, run: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=run, args=arguments, name=f"recorder-{self.name}", daemon=True)
        self._threads = [known for known in self._threads if known.is_alive()] + [thread]
        thread.start()
        return thread

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((LOOPBACK, next(self.targets)), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for connection in (client, server):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            self._spawn(self._relay, client, server)

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        """Relay both directions of one connection until both sides are closed."""
        pending: deque[Exchange] = deque()
        requests = MessageReader()
        responses = MessageReader(lambda head: _has_no_body(head, pending))
        upward = threading.Thread(
            target=self._pump, args=(client, server, requests, self._record_request, pending), daemon=True
        )
        upward.start()
        self._pump(server, client, responses, self._record_response, pending)
        upward.join(timeout=10)
        for connection in (client, server):
            connection.close()
        with self._lock:
            self._open -= {client, server}

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        reader: MessageReader,
        record: Callable[[Message, deque[Exchange]], None],
        pending: deque[Exchange],
    ) -> None:
        try:
            while data := source.recv(65536):
                for head in reader.feed(data):
                    record(head, pending)
                sink.sendall(data)
        except OSError:
            pass
        # The end of one side ends both: HTTP needs no half-closed connections.
        for connection in (source, sink):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _record_request(self, head: Message, pending: deque[Exchange]) -> None:
        exchange = Exchange(head)
        with self._lock:
            self._exchanges.append(exchange)
            pending.append(exchange)

    def _record_response(self, head: Message, pending: deque[Exchange]) -> None:
        with self._lock:
            if pending and head.status >= 200:
                exchange = pending.popleft()
                exchange.response, exchange.ended = head, time.monotonic()


def _has_no_body(response: Message, pending: Sequence[Exchange]) -> bool:
    to_head = bool(pending) and pending[0].method == "HEAD"
    return response.status < 200 or response.status in (204, 304) or to_head
