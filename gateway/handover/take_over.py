"""The new side of a hand-over: it asks the running gateway for everything, and serves when that has stopped.

    take_over  ->  TakenOver: sockets, state, lock  ->  probed  ->  ready  ->  serving  ->  ended

Until `serving` this process may end at any moment: the old one then goes on as if nothing had been.
`assembly` decides what to do with the sockets and the state.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Final, final

from gateway import __version__
from gateway.dataplane.edge.listening_sockets import Inherited
from gateway.errors import StartupError
from gateway.handover import messages
from gateway.handover.connection import HandoverConnection, connect
from gateway.handover.inheritance import Inheritance
from gateway.handover.messages import READY, SERVING, HandoverError, HandoverOffer, PlainMessage, TakeOver

OFFER_TIME: Final = 30.0
"""Seconds for the old gateway to answer a request to be taken over: it writes its state first."""
FIRST_ROUND_TIME: Final = 60.0
"""Seconds for which a start waits for the first probe of every backend, while the old gateway serves."""
STOP_TIME: Final = 30.0
"""Seconds in which all workers of the old gateway must have stopped accepting."""

log = logging.getLogger("skewgate.handover")


@final
class TakenOver:
    """The gateway that is taken over, with the sockets, the state and the lock that it hands over. What is
    not used is closed by `close`, or with this process."""

    def __init__(
        self, connection: HandoverConnection, offer: HandoverOffer, numbers: Sequence[int], user: int
    ) -> None:
        self._connection = connection
        self.user = user
        """The user id of the old gateway."""
        self.pid = offer.pid
        """The process id of the old gateway."""
        self.release = offer.release
        self.state = offer.state
        """The state file's text, with the agreed records by which both gateways serve; None: no file."""
        self.lock: int | None = None
        """The descriptor by which the state file is locked; None: none was handed over."""
        self.manager = offer.manager
        """Environment variables of the old gateway for notifying the service manager."""
        found: dict[str, list[Inherited]] = {role: [] for role in Inheritance._fields}
        for each, number in zip(offer.descriptors, numbers, strict=True):
            if each.role == messages.LOCK and self.lock is None:
                self.lock = number
            elif each.role in found:
                found[each.role].append(Inherited(socket.socket(fileno=number), each.written, each.managed))
            else:
                os.close(number)
        self.inheritance = Inheritance(*map(tuple, found.values()))

    async def probed(self, first_round: Awaitable[None]) -> None:
        """Wait for the `first_round` of probes, while the old gateway serves, but not for ever."""
        try:
            async with asyncio.timeout(FIRST_ROUND_TIME):
                await first_round
        except TimeoutError:
            log.warning("taking over although not all backends were probed in %g s", FIRST_ROUND_TIME)

    async def ready(self) -> None:
        """Ask the old gateway to stop accepting and writing its state. Raises `StartupError` if it does
        not."""
        try:
            await self._connection.send(READY.write())
            async with asyncio.timeout(STOP_TIME):
                message = messages.read(await self._connection.receive())
        except TimeoutError:
            raise StartupError(f"process {self.pid} does not stop accepting clients") from None
        except HandoverError as error:
            raise _cannot(self.pid, error) from None
        if not isinstance(message, PlainMessage) or message.kind != "stopped":
            raise StartupError(f"process {self.pid} does not stop accepting clients")

    async def serving(self) -> None:
        """Tell the old gateway that this one accepts clients. Raises `StartupError` if it has given up."""
        try:
            await self._connection.send(SERVING.write())
        except HandoverError as error:
            raise _cannot(self.pid, error) from None

    async def ended(self) -> None:
        await self._connection.ended()

    def close(self) -> None:
        """Close the connection to the old gateway, which then goes on if `serving` was not sent."""
        self._connection.close()


async def take_over(path: Path) -> TakenOver | None:
    """Take over from the gateway that listens at `path`; None: there is none. Raises `StartupError`."""
    try:
        connection = connect(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StartupError(f"cannot take over from the process that listens on {path}: {reason}") from error
    if connection is None:
        return None
    taken: TakenOver | None = None
    pid = 0
    try:
        peer = connection.peer
        pid = peer.pid
        if not peer.may_be_taken_over(path):
            raise StartupError(f"{path} belongs to process {pid} of another user, {peer.uid}: not taken over")
        async with asyncio.timeout(OFFER_TIME):
            await connection.send(TakeOver(os.getpid(), __version__).write())
            message = messages.read(await connection.receive())
            if isinstance(message, PlainMessage) and message.kind == "refused":
                raise StartupError(f"process {pid} cannot be taken over now: {message.reason}")
            if not isinstance(message, HandoverOffer):
                raise HandoverError("it has offered nothing")
            taken = TakenOver(
                connection, message, await connection.descriptors(len(message.descriptors)), peer.uid
            )
    except TimeoutError:
        raise StartupError(f"process {pid} does not answer: it cannot be taken over") from None
    except HandoverError as error:
        raise _cannot(pid, error) from None
    finally:
        if taken is None:
            connection.close()
    log.info("taking over from process %d (skewgate %s)", taken.pid, taken.release)
    return taken


def _cannot(pid: int, error: HandoverError) -> StartupError:
    return StartupError(f"process {pid} cannot be taken over: {error}")
