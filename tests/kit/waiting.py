"""Waiting for what must happen: `until` in an event loop, `wait_until` in a thread, `Changes` for events.

A deadline that a busy machine misses says nothing about the program, so there is one, and it is long. It is
no assertion about time: those are made on a clock that the test turns.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from time import monotonic, sleep
from typing import Final, final

PATIENCE: Final = 30.0
"""Seconds."""
TURNS: Final = 1000
"""Turns of the loop in which a condition of the same loop comes true; what takes more is elsewhere."""
PAUSE: Final = 0.02
"""Seconds between two looks at what is elsewhere."""


async def until(holds: Callable[[], object], what: str = "", within: float = PATIENCE) -> None:
    """Let the loop run until `holds`, a function or a coroutine function, gives something true."""
    turns = 0
    try:
        async with asyncio.timeout(within):
            while True:
                found = holds()
                if await found if inspect.isawaitable(found) else found:
                    return
                turns += 1
                await asyncio.sleep(0 if turns < TURNS else PAUSE)
    except TimeoutError:
        raise AssertionError(f"never happened: {what or inspect.getsource(holds).strip()}") from None


def wait_until(holds: Callable[[], object], what: str = "", within: float = PATIENCE) -> None:
    """The same for a thread without a loop."""
    end = monotonic() + within
    while not holds():
        assert monotonic() < end, f"never happened: {what or inspect.getsource(holds).strip()}"
        sleep(PAUSE)


@final
class Changes:
    """An event for any condition: whoever changes something says so, and nobody looks in vain."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Let everybody who waits look again."""
        self._event.set()

    async def until(self, holds: Callable[[], object], within: float = PATIENCE) -> None:
        """Wait until `holds` gives something true. Raises TimeoutError."""
        async with asyncio.timeout(within):
            while not holds():
                self._event.clear()
                await self._event.wait()
