"""The hand-overs of a gateway: to it from the gateway before it, and from it to the one after it.

    before it   sockets of systemd, or of the gateway that it takes over  ->  bind
                TakenOver  ->  when it may accept, and when the old one is gone
    after it    Predecessor  ->  HandoverServer

Gateways find each other by the state file: without one there is neither predecessor nor successor. This
module starts no other part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, final

from gateway.controlplane.state.file import StateFile
from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.errors import AddressTakenError
from gateway.handover.connection import path_of
from gateway.handover.inheritance import Inheritance
from gateway.handover.predecessor import HandoverServer, Predecessor
from gateway.handover.take_over import TakenOver
from gateway.runtime.file_trust import require_all_own, trusted_users
from gateway.runtime.process import end_tasks
from gateway.runtime.timer import Timer
from gateway.settings.sections.listen import Listen

ADDRESS_TIME: Final = 2.0
"""Seconds in which the workers of a killed gateway free its addresses."""
_RETRY: Final = 0.05
"""Seconds between two attempts to bind an address that is taken."""
OFFER_RETRY: Final = 5.0
"""Seconds between two attempts to open the hand-over socket: a gateway that still drains may have it."""

log = logging.getLogger("skewgate.handover")


@final
class Handover:
    """Hand-overs of this gateway: sockets, state and lock come from the one before, and go to the next one.

    `state`: path of the state file. `passed`: the sockets of systemd. `taken`: what the running gateway hands
    over. `handed_over`: called when another process has taken over, so that this one ends. Raises
    `ForeignFileError` if the file at the path of the socket belongs to another user.
    """

    def __init__(
        self,
        state: str | None,
        *,
        taken: TakenOver | None = None,
        passed: Inheritance | None = None,
        handed_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._state = state
        self.taken = taken
        self.inheritance = passed or Inheritance() if taken is None else taken.inheritance
        """Listening sockets that this gateway inherits. Unused ones are closed at the end."""
        self._users = trusted_users() if taken is None else trusted_users(taken.user)
        """Ids of the users whose files are trusted."""
        self._server: HandoverServer | None = None
        if state is not None:
            path = path_of(state, self._users)
            require_all_own((path,), self._users)
            self._server = HandoverServer(path)
        self.orphans_ended: Callable[[], None] = lambda: None
        """Function that is called when the workers of a killed gateway have ended."""
        self._orphans = Timer()
        """Timer for the end of a killed gateway's workers; None: there are none, or they have ended."""
        self._alone = asyncio.Event()
        if taken is None:
            self._alone.set()
        self.handed_over = handed_over
        self._predecessor: Predecessor | None = None
        self._offering = Timer()
        """Timer for the next attempt to open the hand-over socket."""
        self._not_offered = ""
        """Reason why the hand-over socket could not be opened; empty: it is open, or was not tried."""
        self._waiting: asyncio.Task[None] | None = None
        self._sockets: ListeningSockets | None = None

    def state_file(self) -> StateFile | None:
        """The state file, with lock and state of a gateway that is taken over. Raises `ForeignFileError`."""
        if self._state is None:
            return None
        lock, text = (None, None) if self.taken is None else (self.taken.lock, self.taken.state)
        return StateFile(self._state, lock, text, self._users)

    async def bind(self, listen: Sequence[Listen], slots: int, drain: float) -> ListeningSockets:
        """Bind the sockets for clients: inherited where possible, the others new. `drain`: seconds in which
        workers of a killed gateway finish their requests. Raises `StartupError`."""
        # A killed gateway leaves its socket behind. Its workers may live for a while.
        killed = self.taken is None and self._server is not None and self._server.path.is_socket()
        found = await self._bound(listen, slots, ADDRESS_TIME if killed else 0.0)
        if killed:
            # Its workers do not accept any more, or these addresses would be taken. They finish their
            # requests.
            self._alone.clear()
            self._orphans.set(drain, self._orphans_have_ended)
        if self.taken is None:
            found.own()
        for address in found.surplus:
            log.warning("%s is no longer in `listen`: the address is closed", address)
        for url in found.shared:
            log.warning(
                "%s has fewer sockets than there are workers: they share them, and get unequal numbers of "
                "connections; write ReusePort=yes and one ListenStream= for each worker",
                url,
            )
        self._sockets = found
        return found

    async def _bound(self, listen: Sequence[Listen], slots: int, seconds: float) -> ListeningSockets:
        """Bind the sockets for clients, and retry for `seconds` while an address is taken."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            try:
                return await ListeningSockets.bind(listen, slots, self.inheritance.clients)
            except AddressTakenError:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(_RETRY)

    def _orphans_have_ended(self) -> None:
        self._alone.set()
        self.orphans_ended()

    def orphans_left(self) -> bool:
        """Whether workers of a killed gateway may still finish requests."""
        return self._orphans.is_set

    def clients_wait(self) -> bool:
        """Whether no process serves clients yet: they wait in sockets that systemd holds."""
        return self.taken is None and bool(self.inheritance.clients)

    async def serving(self, gone: Callable[[], None]) -> None:
        """Tell the gateway that was taken over that clients are accepted here. `gone` is called when it has
        ended. Raises `StartupError` if it has given up waiting, and goes on."""
        if self.taken is None:
            return
        await self.taken.serving()
        if self._sockets is not None:
            self._sockets.own()
        # Owned by this object until `close`.
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_task(self._until_gone(self.taken, gone), name="taken over")

    async def _until_gone(self, taken: TakenOver, gone: Callable[[], None]) -> None:
        await taken.ended()
        log.info("the old gateway (process %d) has ended", taken.pid)
        taken.close()
        self._alone.set()
        gone()

    async def alone(self) -> None:
        """Wait until no earlier gateway, and no worker of one, finishes requests any more."""
        await self._alone.wait()

    def offer(self, predecessor: Predecessor) -> None:
        """Let this gateway be taken over from now on. If the socket cannot be opened, because the gateway
        before it still drains or for another reason, a warning is logged, and it is tried again."""
        if self._server is None:
            return
        try:
            self._server.start(predecessor, replace=self.taken is not None)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            if reason != self._not_offered:
                why = f"{self._server.path}: {reason}"
                log.warning(
                    "this gateway cannot be taken over, only restarted: %s; tried every %g s",
                    why,
                    OFFER_RETRY,
                )
            self._not_offered = reason
            self._offering.set(OFFER_RETRY, lambda: self.offer(predecessor))
            return
        if self._not_offered:
            log.info("this gateway can be taken over now: %s is its own", self._server.path)
        self._not_offered = ""
        self._predecessor = predecessor

    def frozen(self) -> str:
        """The reason why commands and reloads are refused at this moment, a sentence; empty: they are not."""
        return "" if self._predecessor is None else self._predecessor.frozen

    @property
    def is_handed_over(self) -> bool:
        """Whether another gateway serves in place of this one."""
        return self._predecessor is not None and self._predecessor.is_handed_over

    async def give_up(self) -> None:
        """Refuse hand-overs from now on, because this gateway ends."""
        self._offering.cancel()
        if self._server is not None:
            await self._server.give_up()

    async def close(self) -> None:
        """Close the connections to other gateways, last of all: so they learn that this one has ended."""
        self._orphans.cancel()
        await end_tasks(self._waiting)
        for sockets in self.inheritance:
            for one in sockets:
                one.sock.close()
        if self.taken is not None:
            self.taken.close()
        if self._server is not None:
            await self._server.close()
