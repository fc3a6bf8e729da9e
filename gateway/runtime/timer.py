"""A timer of the running event loop that can be set again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final


@final
class Timer:
    """At most one call that is due. Another call replaces it; a call that begins is due no more."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._handle is not None

    def set(self, seconds: float, call: Callable[[], None]) -> None:
        """Call `call` in so many seconds; at once, but not within this method, if they are over."""
        self.cancel()
        self._handle = asyncio.get_running_loop().call_later(max(0.0, seconds), self._begin, call)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _begin(self, call: Callable[[], None]) -> None:
        self._handle = None
        call()
