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

BATCH: Final = 32
"""Connections of one socket that are accepted in one turn of the event loop: about 2 ms."""
INBOXES_FULL: Final = 0.02
"""Seconds until a connection that no worker has taken is offered again."""
CANNOT_ACCEPT: Final = 1.0
"""Seconds in which nothing is accepted when the system has no descriptors or no memory for it, as in event
loops. To try at once would keep the main process busy and change nothing."""

_log = logging.getLogger("skewgate.workers")


@final
class StandInAcceptor:
    """`sockets` and `connection_counts` stay the caller's, and are open until `close`. In one event loop."""

    def __init__(self, sockets: ListeningSockets, connection_counts: ConnectionCounts) -> None:
        self._sockets = sockets
        self._connection_counts = connection_counts
        self._receivers: Collection[int] = ()
        self._wanted: dict[int, tuple[int, socket.socket]] = {}
        """What connections are to be accepted from, by descriptor: (position of the listener, socket)."""
        self._watched: set[int] = set()
        self._untaken: list[tuple[int, socket.socket]] = []
        """Accepted, and taken by nobody yet: (position of the listener, socket)."""
        self._rest: asyncio.TimerHandle | None = None
        """Nothing is accepted until it fires."""
        self._failing = False
        """The last attempt to accept has failed, and the log says so."""

    def cover(self, slots: Collection[int], receivers: Collection[int]) -> None:
        """Accept for exactly these slots from now on. `receivers`: slots of workers that take what they are
        given. A socket that one of them has, too, is left to it."""
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
        """Accept nothing any more. A connection that is still kept is closed: nobody serves it."""
        self.cover((), ())
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        for _, sock in self._untaken:
            sock.close()
        self._untaken.clear()

    def _watch(self) -> None:
        """Wait for connections where some are wanted, and nowhere else."""
        loop = asyncio.get_running_loop()
        wanted = self._wanted if self._rest is None else {}
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
                    _log.error("cannot accept connections in place of a worker that is dead: %s", reason)
                self._failing = True
                self._pause(CANNOT_ACCEPT)
                return
            self._failing = False
            if not self._hand(position, sock):
                self._untaken.append((position, sock))
                self._pause(INBOXES_FULL)
                return

    def _hand(self, position: int, sock: socket.socket) -> bool:
        """Whether a worker has got it: then it is no longer ours."""
        for slot in sorted(self._receivers, key=self._connection_counts.count):
            if self._connection_counts.give(slot, position, sock):
                sock.close()
                return True
        return False

    def _pause(self, seconds: float) -> None:
        if self._rest is None:
            self._rest = asyncio.get_running_loop().call_later(seconds, self._go_on)
        self._watch()

    def _go_on(self) -> None:
        self._rest = None
        self._untaken = [
            (position, sock) for position, sock in self._untaken if not self._hand(position, sock)
        ]
        if self._untaken:
            self._pause(INBOXES_FULL)
        else:
            self._watch()
