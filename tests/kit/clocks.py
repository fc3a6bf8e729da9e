"""Clocks that a test turns: that of one gateway, and that of a whole event loop."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar, final

T = TypeVar("T")


@final
class Clock:
    """The monotonic time of a gateway. It runs as the machine's does, and a test turns it forward; once it is
    stopped, it moves by that alone."""

    def __init__(self) -> None:
        self._turned = 0.0
        self._stopped_at: float | None = None

    def __call__(self) -> float:
        return (monotonic() if self._stopped_at is None else self._stopped_at) + self._turned

    def stop(self) -> None:
        self._stopped_at = monotonic()

    def turn(self, seconds: float) -> None:
        self._turned += seconds


class _Selector(selectors.SelectSelector):
    """Instead of waiting it moves the time on."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everybody waits for ever")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when nobody has anything to do: hours in no time, always alike.

    For what waits for nothing outside of the loop: no sockets, no threads.
    """

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds."""
        return self._virtual.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it in such a loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
