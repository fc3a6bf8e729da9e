"""A worker whose parent is gone: it serves what it holds, refuses no version any more, and ends in order.

    the channel closes  ->  detached  ->  the next gateway accepts from its sockets (`handover.orphan`), or
                                          `timeouts.drain` has passed, or a stop signal has come
                        ->  accepts no more, drains, ends

Nobody probes for it and nobody else hears of what it meets, so others may offer by now what it would refuse:
it answers 503 there. What else it knows stays as it was.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import final

from gateway.core.agreement.agreed import NOTHING_AGREED
from gateway.dataplane.edge.listening_sockets import Inherited
from gateway.handover.line import path_of
from gateway.handover.orphan import NextGateway, offer_sockets
from gateway.workers.parts import Parts

_log = logging.getLogger("skewgate.workers")


@final
class Orphan:
    """`parts` serve."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self, stop: asyncio.Event) -> None:
        """Returns when nobody is served any more. `stop`: a stop signal has come."""
        parts, seconds = self._parts, self._parts.settings.timeouts.drain
        _log.error(
            "the parent process is gone: this worker serves by what it knows for %g s, or until the next "
            "gateway has its listening sockets",
            seconds,
        )
        parts.parent_is_gone()
        self._detach()
        if parts.worker.not_serving:  # it was paused, and whoever was to accept in its place may be gone, too
            await parts.listen()
        next_gateway = await self._wait(stop, seconds)
        _log.info("ending: the requests in flight are finished first")
        await parts.stop_accepting()
        await parts.worker.drain(seconds)
        if next_gateway is not None:
            next_gateway.close()

    def _detach(self) -> None:
        snapshot_holder = self._parts.snapshot_holder
        snapshot_holder.agree(
            {
                name: replace(view.agreed or NOTHING_AGREED, attached=False)
                for name, view in snapshot_holder.current.views.items()
            }
        )

    async def _wait(self, stop: asyncio.Event, seconds: float) -> NextGateway | None:
        """Until it is time to end. The gateway that has the sockets now, if there is one."""
        loop = asyncio.get_running_loop()
        stopped = loop.create_task(stop.wait(), name="stop")
        taken = loop.create_task(self._offer(), name="offer sockets")
        try:
            await asyncio.wait((stopped, taken), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return taken.result() if taken.done() else None
        finally:
            stopped.cancel()
            taken.cancel()
            await asyncio.gather(stopped, taken, return_exceptions=True)

    async def _offer(self) -> NextGateway:
        """Without a state file there is no place to meet: it waits for ever."""
        parts = self._parts
        if parts.settings.state is None:
            await asyncio.Event().wait()
        listen = parts.settings.listen
        sockets = [Inherited(sock, str(listen[position])) for position, sock in parts.sockets]
        return await offer_sockets(
            path_of(str(parts.settings.state)), sockets, slot=parts.slot, workers=parts.workers
        )
