"""The new side of a hand-over: gets everything from the gateway that runs, and says when it serves.

    take_over  ->  TakenOver: sockets, state, lock  ->  probed  ->  ready  ->  serving  ->  ended

Until `serving` this process may end at any moment: the old one then goes on as if nothing had been. What is
done with the parts is `assembly`'s.
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
from gateway.handover.inheritance import Inheritance
from gateway.handover.line import Line, connect
from gateway.handover.messages import READY, SERVING, HandoverError, Offer, TakeOver, Word

OFFER_TIME: Final = 30.0
"""Seconds in which the old gateway must say what it hands over: it writes its state first."""
FIRST_ROUND_TIME: Final = 60.0
"""Seconds for which a start waits until every backend has been probed once, while the other gateway
serves."""
STOP_TIME: Final = 30.0
"""Seconds in which all of its workers must have stopped accepting."""

log = logging.getLogger("skewgate.handover")


@final
class TakenOver:
    """What the old gateway hands over. Whatever is not used is closed by `close`, or by the end of this
    process."""

    def __init__(self, line: Line, offer: Offer, numbers: Sequence[int], user: int) -> None:
        self._line = line
        self.user = user
        """The user id of the old gateway."""
        self.pid = offer.pid
        """Of the old gateway."""
        self.release = offer.release
        self.state = offer.state
        """The text of the state file, with the records by which both serve for a while; None: it has
        none."""
        self.lock: int | None = None
        """The descriptor by which the state file is locked."""
        self.manager = offer.manager
        """Variables of the environment by which the service manager is told how this process is."""
        found: dict[str, list[Inherited]] = {messages.CLIENTS: [], messages.ADMIN: [], messages.METRICS: []}
        for each, number in zip(offer.descriptors, numbers, strict=True):
            if each.role == messages.LOCK and self.lock is None:
                self.lock = number
            elif each.role in found:
                found[each.role].append(Inherited(socket.socket(fileno=number), each.written, each.managed))
            else:
                os.close(number)
        self.inheritance = Inheritance(
            listening=tuple(found[messages.CLIENTS]),
            admin=tuple(found[messages.ADMIN]),
            metrics=tuple(found[messages.METRICS]),
        )

    async def probed(self, first_round: Awaitable[None]) -> None:
        """Wait for the `first_round` of probes, while the old gateway serves, but not for ever."""
        try:
            async with asyncio.timeout(FIRST_ROUND_TIME):
                await first_round
        except TimeoutError:
            log.warning("taking over although not all backends were probed in %g s", FIRST_ROUND_TIME)

    async def ready(self) -> None:
        """This gateway could serve at once. When this returns, the old one accepts nobody and writes no
        state. Raises `StartupError`: it does not let go."""
        try:
            await self._line.send(READY.write())
            async with asyncio.timeout(STOP_TIME):
                message = messages.read(await self._line.receive())
        except TimeoutError:
            raise StartupError(f"process {self.pid} does not stop accepting clients") from None
        except HandoverError as error:
            raise _cannot(self.pid, error) from None
        if not isinstance(message, Word) or message.kind != "stopped":
            raise StartupError(f"process {self.pid} does not stop accepting clients")

    async def serving(self) -> None:
        """This gateway accepts clients. Raises `StartupError`: the old one has given up waiting for that."""
        try:
            await self._line.send(SERVING.write())
        except HandoverError as error:
            raise _cannot(self.pid, error) from None

    async def ended(self) -> None:
        """Wait for the end of the old gateway."""
        await self._line.ended()

    def close(self) -> None:
        """Before `serving`: the old one goes on."""
        self._line.close()


async def take_over(path: Path) -> TakenOver | None:
    """Ask the gateway that listens at `path` for everything. None: nobody is there. Raises `StartupError`:
    there is somebody, who cannot be taken over."""
    try:
        line = connect(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StartupError(f"cannot take over from whoever listens on {path}: {reason}") from error
    if line is None:
        return None
    taken: TakenOver | None = None
    pid = 0
    try:
        peer = line.peer
        pid = peer.pid
        if not peer.may_be_taken_over(path):
            raise StartupError(f"{path} belongs to process {pid} of another user, {peer.uid}: not taken over")
        async with asyncio.timeout(OFFER_TIME):
            await line.send(TakeOver(os.getpid(), __version__).write())
            message = messages.read(await line.receive())
            if isinstance(message, Word) and message.kind == "refused":
                raise StartupError(f"process {pid} cannot be taken over now: {message.reason}")
            if not isinstance(message, Offer):
                raise HandoverError("it has offered nothing")
            taken = TakenOver(line, message, await line.descriptors(len(message.descriptors)), peer.uid)
    except TimeoutError:
        raise StartupError(f"process {pid} does not answer: it cannot be taken over") from None
    except HandoverError as error:
        raise _cannot(pid, error) from None
    finally:
        if taken is None:
            line.close()
    log.info("taking over from process %d (skewgate %s)", taken.pid, taken.release)
    return taken


def _cannot(pid: int, error: HandoverError) -> StartupError:
    return StartupError(f"process {pid} cannot be taken over: {error}")
