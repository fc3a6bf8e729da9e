"""A crowd as a process: more clients connect than the gateway has descriptors for, and none means well.

    python -m tests.load.crowd PORT COUNT SEED [CA]

What it does: half of the newcomers send nothing, the others a head byte by byte. One that is closed comes
back. With the file of a CA, those others speak TLS first. It ends with SIGTERM, and prints how often
newcomers connected and how often the gateway closed them.

Rules: none of them ever completes a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import sys
from collections import Counter
from random import Random
from typing import Final

from tests.kit.messages import request
from tests.load.connection import HOST, client_context

HEAD: Final = request("GET", "/v1/nodes", "X-Padding: " + "a" * 2000, host=HOST)[:-4]
"""A head without its end."""
SLOWEST_DRIP: Final = 0.5
"""Seconds from one byte to the next."""
LONGEST_ABSENCE: Final = 2.0
"""Seconds until a newcomer that was closed comes back."""


async def newcomer(port: int, rng: Random, counts: Counter[str], tls: ssl.SSLContext | None) -> None:
    drip = rng.uniform(0.1, SLOWEST_DRIP) if rng.random() < 0.5 else 0.0
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(HOST, port, ssl=tls if drip else None)
            counts["connected"] += 1
            dripping = asyncio.create_task(_drip(writer, drip)) if drip else None
            try:
                await reader.read()
                counts["closed"] += 1
            finally:
                if dripping is not None:
                    dripping.cancel()
                writer.close()
        await asyncio.sleep(rng.uniform(0.2, LONGEST_ABSENCE))


async def _drip(writer: asyncio.StreamWriter, pause: float) -> None:
    with contextlib.suppress(OSError):
        for number in range(len(HEAD)):
            writer.write(HEAD[number : number + 1])
            await writer.drain()
            await asyncio.sleep(pause)


async def run(port: int, count: int, seed: int, ca: str = "") -> Counter[str]:
    counts: Counter[str] = Counter()
    tls = client_context(ca)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    newcomers = [
        asyncio.create_task(newcomer(port, Random(f"{seed}/{number}"), counts, tls))
        for number in range(count)
    ]
    await stop.wait()
    for task in newcomers:
        task.cancel()
    await asyncio.gather(*newcomers, return_exceptions=True)
    return counts


if __name__ == "__main__":
    port, count, seed, *ca = sys.argv[1:]
    counted = asyncio.run(run(int(port), int(count), int(seed), *ca))
    print(counted["connected"], counted["closed"])
