"""The stand-in acceptor: accepts connections in the main process for slots whose worker is dead, as long as
other workers serve.

    a slot's listening sockets  ->  accept, read nothing  ->  inbox of the worker with the fewest connections

The kernel goes on choosing the sockets of such a slot for its share of new connections. Without a stand-in
they would wait for the next worker: for a second, or for as long as none can start. It serves nobody itself
and loses no connection: one that no worker takes at the moment is kept and offered again, and meanwhile none
is accepted. The supervisor decides which slots are vacant.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Collection
from typing import Final, final

from gateway.dataplane.edge.balance import ConnectionCounts
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.runtime.timer import Timer

BATCH: Final = 32
"""Maximum connections of one socket that are accepted in one iteration of the event loop: about 2 ms."""
INBOXES_FULL: Final = 0.02
"""Seconds until a connection that no worker has taken is offered to the workers again."""
CANNOT_ACCEPT: Final = 1.0
"""Seconds of pause in accepting after the system had no descriptor or memory for it, as in asyncio."""

_log = logging.getLogger("skewgate.workers")


@final
class StandInAcceptor:
    """Accepts connections in place of dead workers. `sockets` and `connection_counts` stay the caller's."""

    def __init__(self, sockets: ListeningSockets, connection_counts: ConnectionCounts) -> None:
        self._sockets = sockets
        self._connection_counts = connection_counts
        self._receivers: Collection[int] = ()
        self._wanted: dict[int, tuple[int, socket.socket]] = {}
        """Listening sockets to accept from, by descriptor: (position of the listener, socket)."""
        self._watched: set[int] = set()
        self._untaken: list[tuple[int, socket.socket]] = []
        """Accepted connections that no worker has taken yet: (position of the listener, socket)."""
        self._pause_timer = Timer()
        """Timer for the end of a pause in which nothing is accepted; None: there is no pause."""
        self._failing = False
        """Whether the last attempt to accept connections for a dead worker has failed, which was logged."""

    def cover(self, slots: Collection[int], receivers: Collection[int]) -> None:
        """Accept connections for exactly these slots from now on. `receivers`: slots of workers that take
        them. A socket that one of these workers shares is left to it."""
        self._receivers = receivers
        served = {sock.fileno() for slot in receivers for _, sock in self._sockets.of_slot(slot)}
        self._wanted = {
            sock.fileno(): (position, sock)
            for slot in slots
            for position, sock in self._sockets.of_slot(slot)
            if sock.fileno() not in served
        }
        self._watch()

    def close(self) -> None:
        """Stop accepting connections, and close those that no worker has taken."""
        self.cover((), ())
        self._pause_timer.cancel()
        for _, sock in self._untaken:
            sock.close()
        self._untaken.clear()

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        wanted = {} if self._pause_timer.is_set else self._wanted
        for number in self._watched - wanted.keys():
            loop.remove_reader(number)
        for number in wanted.keys() - self._watched:
            loop.add_reader(number, self._accept, *wanted[number])
        self._watched = set(wanted)

    def _accept(self, position: int, listening: socket.socket) -> None:
        for _ in range(BATCH):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:  # it has ended while it waited
                continue
            except OSError as error:
                if not self._failing:
                    reason = error.strerror or error
                    _log.error("cannot accept connections for a dead worker: %s", reason)
                self._failing = True
                self._pause(CANNOT_ACCEPT)
                return
            self._failing = False
            if not self._hand(position, sock):
                self._untaken.append((position, sock))
                self._pause(INBOXES_FULL)
                return

    def _hand(self, position: int, sock: socket.socket) -> bool:
        """Give an accepted connection to a worker. Returns whether one has taken it."""
        for slot in sorted(self._receivers, key=self._connection_counts.count):
            if self._connection_counts.give(slot, position, sock):
                sock.close()
                return True
        return False

    def _pause(self, seconds: float) -> None:
        if not self._pause_timer.is_set:
            self._pause_timer.set(seconds, self._go_on)
        self._watch()

    def _go_on(self) -> None:
        self._untaken = [
            (position, sock) for position, sock in self._untaken if not self._hand(position, sock)
        ]
        if self._untaken:
            self._pause(INBOXES_FULL)
        else:
            self._watch()
