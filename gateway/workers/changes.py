"""Waiting until something holds, as seen by whoever is told of every change that may make it hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final


@final
class Changes:
    """`changed` after each change, `until` to wait. In one event loop."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def changed(self) -> None:
        """Whoever waits looks again."""
        happened, self._next = self._next, asyncio.Event()
        happened.set()

    async def until(self, holds: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `holds()`, for `seconds` at most; None: for ever. Whether it holds."""
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await self._next.wait()
        except TimeoutError:
            return holds()
        return True
