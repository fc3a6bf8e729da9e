"""The event loop of the Python peers: that of the gateway, so that ratios compare programs and not loops."""

import asyncio
import os


def new_event_loop() -> asyncio.AbstractEventLoop:
    """SKEWGATE_LOOP (`uvloop` or `asyncio`) decides as for the gateway; default uvloop when importable."""
    wanted = os.environ.get("SKEWGATE_LOOP", "")
    if wanted != "asyncio":
        try:
            import uvloop  # noqa: PLC0415 - an optional dependency
        except ImportError:
            if wanted == "uvloop":
                raise
        else:
            return uvloop.new_event_loop()
    return asyncio.new_event_loop()
