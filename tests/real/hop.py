"""The recording hop: a TCP relay that writes down what each request asked for and what was answered.

What it does: listens on a loopback port of its own, relays every connection byte for byte to one target,
and keeps an `Exchange` for each request. A request is on record before its bytes go on, a reply before
its bytes go back, so whoever has seen a reply finds it recorded.

Rules: it never changes a byte. `stop` makes the address refuse connections and cuts those that are open,
which is what a server that is down looks like from outside; `refuse` only refuses, as a server does that is
about to end; `start` takes the same port again.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.real.processes import free_port
from tests.real.wire import Head, MessageReader

LOOPBACK = "127.0.0.1"
OWN_HEADER = "X-OpenStack-Ironic-API-Version"
STANDARD_HEADER = "OpenStack-API-Version"
MINIMUM_HEADER = "X-OpenStack-Ironic-API-Minimum-Version"
MAXIMUM_HEADER = "X-OpenStack-Ironic-API-Maximum-Version"


@dataclass(slots=True)
class Exchange:
    """One request as it passed, and its reply once there is one. `began` and `ended` are their moments
    (`time.monotonic`)."""

    request: Head
    reply: Head | None = None
    interim: list[Head] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def method(self) -> str:
        return self.request.start.split(" ")[0]

    @property
    def path(self) -> str:
        """The request target without its query."""
        return self.request.start.split(" ")[1].partition("?")[0]

    @property
    def asked(self) -> str | None:
        """The version in Ironic's own request header, as written."""
        return self.request.get(OWN_HEADER)

    @property
    def asked_standard(self) -> str | None:
        """The version that the standard header names for bare metal, if it does."""
        for item in (self.request.get(STANDARD_HEADER) or "").split(","):
            service, _, version = item.strip().partition(" ")
            if service == "baremetal":
                return version.strip()
        return None

    @property
    def status(self) -> int | None:
        return int(self.reply.start.split(" ")[1]) if self.reply else None

    @property
    def served(self) -> str | None:
        return self.reply.get(OWN_HEADER) if self.reply else None

    @property
    def offered(self) -> tuple[str | None, str | None]:
        """The range that the reply names: minimum and maximum."""
        if self.reply is None:
            return None, None
        return self.reply.get(MINIMUM_HEADER), self.reply.get(MAXIMUM_HEADER)

    @property
    def was_forwarded(self) -> bool:
        """True when a gateway sent it on for somebody: those carry `Via`, its own probes do not."""
        return self.request.get("Via") is not None

    def __str__(self) -> str:
        asked = self.asked or "no version"
        if self.asked_standard is not None and self.asked_standard != self.asked:
            asked += f", baremetal {self.asked_standard}"
        answer = f"{self.status} served {self.served}" if self.reply else "no reply"
        return f"{self.method} {self.request.start.split(' ')[1]} [{asked}] -> {answer}"


class Hop:
    """A relay from a port of its own to `target` (a port on loopback). Use as a context manager."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.target = target
        self.port = free_port()
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = []
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._door: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def __enter__(self) -> Hop:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen (again). Nothing happens when it listens already."""
        if self._listener is not None:
            return
        listener = socket.create_server((LOOPBACK, self.port), backlog=64)
        self._listener = listener
        self._door = self._spawn(self._accept, listener)

    def refuse(self) -> None:
        """Refuse connections from now on; those that are open go on. Returns when no more are taken."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        # shutdown wakes the thread that waits in accept; close alone would not.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        if self._door is not None:
            self._door.join(timeout=10)

    def stop(self) -> None:
        """Refuse connections from now on and cut those that are open. Returns when all is quiet."""
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
        """What has passed, oldest first, from number `since` on."""
        with self._lock:
            return self._exchanges[since:]

    def count(self) -> int:
        """How many requests have passed: the `since` of what comes next."""
        with self._lock:
            return len(self._exchanges)

    # -- the relay itself ------------------------------------------------------------------------

    def _spawn(self, run: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=run, args=arguments, name=f"hop-{self.name}", daemon=True)
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
                server = socket.create_connection((LOOPBACK, self.target), timeout=10)
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
        """Both directions of one connection, until one side has ended and the other has been told."""
        pending: deque[Exchange] = deque()
        requests = MessageReader(lambda head: False, until_close=False)
        replies = MessageReader(lambda head: _has_no_body(head, pending), until_close=True)
        upward = threading.Thread(
            target=self._pump, args=(client, server, requests, self._note_request, pending), daemon=True
        )
        upward.start()
        self._pump(server, client, replies, self._note_reply, pending)
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
        note: Callable[[Head, deque[Exchange]], None],
        pending: deque[Exchange],
    ) -> None:
        try:
            while data := source.recv(65536):
                for head in reader.feed(data):
                    note(head, pending)
                sink.sendall(data)
        except OSError:
            pass
        # Either side's end is the end of both: HTTP needs no half-open connections.
        for connection in (source, sink):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _note_request(self, head: Head, pending: deque[Exchange]) -> None:
        exchange = Exchange(head)
        with self._lock:
            self._exchanges.append(exchange)
            pending.append(exchange)

    def _note_reply(self, head: Head, pending: deque[Exchange]) -> None:
        with self._lock:
            if not pending:
                return
            if head.start.split(" ")[1].startswith("1"):
                pending[0].interim.append(head)
            else:
                exchange = pending.popleft()
                exchange.reply, exchange.ended = head, time.monotonic()


def _has_no_body(reply: Head, pending: Sequence[Exchange]) -> bool:
    status = reply.start.split(" ")[1]
    return (
        status.startswith("1") or status in ("204", "304") or (bool(pending) and pending[0].method == "HEAD")
    )
