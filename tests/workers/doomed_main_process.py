"""A main process of two fake workers, which a test kills: `python -m tests.workers.doomed_main_process
CONTROL`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway.dataplane.edge.listening_sockets import ListeningSockets
from tests.controlplane.fakes import service
from tests.kit.ironic import holder_of
from tests.workers.fakes import API, processes_of, settings_of


async def main(control: Path) -> None:
    holder = holder_of(service(API))
    settings = settings_of(holder)
    sockets = await ListeningSockets.bind(settings.listen, 2)
    processes = processes_of(settings, 2, holder, sockets, control)
    await processes.start()
    await processes.listen()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
