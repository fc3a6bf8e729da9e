"""The load as a process of its own: every kind of client at its pace, until SIGTERM.

    python -m tests.load.traffic PORT BOOK

What it does: writes every request into BOOK and at the end, on standard output, how many it began, so that
one that is missing in the book is noticed.

Rules: it knows the gateway's address and nothing else.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.load.clients import KINDS
from tests.load.records import Journal


async def run(port: int, book: Path) -> int:
    """Until SIGTERM; the number of requests that were begun."""
    journal = Journal(book)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    clients = [
        kind(port, f"{kind.kind}-{number}", journal) for kind in KINDS for number in range(1, kind.count + 1)
    ]
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(client.run(stop, number / len(clients)))
    return sum(client.begun for client in clients)


if __name__ == "__main__":
    print(asyncio.run(run(int(sys.argv[1]), Path(sys.argv[2]))))
