"""The load as a process: every kind of client at its rate, until SIGTERM.

    python -m tests.load.load_generator PORT RECORDS [SLOWNESS [CA]]

What it does: it writes every request into the file RECORDS. At the end it prints how many requests it began,
so that a missing record is noticed. SLOWNESS 2 makes half as many requests. With the file of a CA the
clients speak TLS.

Rules: it knows the address of the gateway and nothing else.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.load.clients import KINDS
from tests.load.records import RecordFile
from tests.load.tls import client_context


async def run(port: int, path: Path, slowness: float = 1.0, ca: str = "") -> int:
    """Run until SIGTERM. Return the number of requests that were begun."""
    records = RecordFile(path)
    tls = client_context(ca)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    clients = [
        kind(port, f"{kind.kind}-{number}", records, slowness, tls)
        for kind in KINDS
        for number in range(1, kind.count + 1)
    ]
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(client.run(stop, number / len(clients)))
    return sum(client.begun for client in clients)


if __name__ == "__main__":
    port, path, slowness, ca = [*sys.argv[1:], *("1", "")[len(sys.argv) - 3 :]]
    print(asyncio.run(run(int(port), Path(path), float(slowness), ca)))
