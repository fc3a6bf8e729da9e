"""Which event loop runs: SKEWGATE_LOOP=asyncio or uvloop; without it uvloop where it can be imported.

The one place that imports uvloop, and only when it is wanted: it is an optional dependency.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from gateway.errors import SettingsError

VARIABLE: Final = "SKEWGATE_LOOP"
ASYNCIO: Final = "asyncio"
UVLOOP: Final = "uvloop"

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
Result = TypeVar("Result")


def chosen() -> str:
    """The loop's name. Raises `SettingsError` when the variable names none, or one that is not installed."""
    wanted = os.environ.get(VARIABLE, "")
    installed = find_spec(UVLOOP) is not None
    if wanted not in ("", ASYNCIO, UVLOOP):
        raise SettingsError(f"{VARIABLE} must be {ASYNCIO} or {UVLOOP}, not {wanted!r}")
    if wanted == UVLOOP and not installed:
        raise SettingsError(f"{VARIABLE} asks for {UVLOOP}, which is not installed")
    return wanted or (UVLOOP if installed else ASYNCIO)


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run `main` in a loop of the chosen kind. Raises what `chosen` and `main` raise."""
    try:
        factory: LoopFactory = (
            import_module(UVLOOP).new_event_loop if chosen() == UVLOOP else asyncio.new_event_loop
        )
    except SettingsError:
        main.close()
        raise
    # What has been imported by now stays; and a request leaves no cycles behind, so looking for them can wait
    # (measured: 2 % of the CPU per request).
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
