"""An orphan: a worker whose parent is gone. It offers its listening sockets to whichever gateway comes next.

    offer_sockets  --STATE.handover-->  HandoverServer.orphans  ->  `taken`

It serves all the time: while nobody listens there, while the next gateway starts, and until that one accepts
clients on the same sockets. When it may stop is message here; how, is the worker's matter.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from gateway.dataplane.edge.listening_sockets import Inherited
from gateway.handover import messages
from gateway.handover.line import Line, connect
from gateway.handover.messages import HandoverError, Orphan, Word

PAUSE: Final = 0.25
"""Seconds between two tries to find the next gateway."""


@final
class NextGateway:
    """The gateway that has taken an orphan's sockets. It learns from `close`, or from the end of the process,
    that the orphan has ended."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def close(self) -> None:
        """The orphan has ended."""
        self._line.close()


async def offer_sockets(path: Path, sockets: Sequence[Inherited], *, slot: int, workers: int) -> NextGateway:
    """Wait until the next gateway accepts clients on these sockets, which stay the caller's; then stop
    accepting, drain and close what this returns. Tries for ever: the caller has a deadline. `path`: of
    `line.path_of` the state file."""
    described = tuple(messages.Described(messages.CLIENTS, one.written, one.managed) for one in sockets)
    message = Orphan(os.getpid(), slot, workers, described)
    while True:
        line = _connected(path)
        if line is not None:
            try:
                await line.send(message.write(), [one.sock.fileno() for one in sockets])
                answer = messages.read(await line.receive())
                if isinstance(answer, Word) and answer.kind == "taken":
                    found, line = NextGateway(line), None
                    return found
            except HandoverError:
                pass  # it has ended before it served, or is none that knows orphans
            finally:
                if line is not None:
                    line.close()
        await asyncio.sleep(PAUSE)


def _connected(path: Path) -> Line | None:
    try:
        line = connect(path)
    except OSError:
        return None
    if line is not None and not line.peer.is_trusted:
        line.close()
        return None
    return line
