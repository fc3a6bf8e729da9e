"""`skewgate run -c FILE`: runs the gateway in the foreground until SIGTERM or SIGINT.

SIGHUP reads the file again and reopens the access log; SIGUSR1 only reopens the log, as log rotation needs
it. The log on standard error says where the gateway listens. All other behaviour comes from the file.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Final

from gateway import __version__, process
from gateway.assembly import Gateway
from gateway.settings import read_file

HELP = "run the gateway in the foreground"

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

log = logging.getLogger("skewgate")


def arguments(parser: argparse.ArgumentParser) -> None:
    """`-c FILE`."""
    parser.add_argument("-c", "--config", metavar="FILE", type=Path, required=True, help="the configuration")


def run(options: argparse.Namespace) -> int:
    """Run the gateway; 0 after a drain. Raises `SettingsError` or `StartupError` when it cannot start."""
    logging.basicConfig(format=LOG_FORMAT, level=logging.INFO, stream=sys.stderr)
    loaded = read_file(options.config, environ=os.environ)
    configured = loaded.require()
    for line in loaded.render().splitlines():
        log.warning("%s", line)
    process.run_in_loop(_serve(Gateway(configured, source=options.config)))
    return 0


async def _serve(gateway: Gateway) -> None:
    stop = asyncio.Event()
    with process.handle_signals(stop.set, gateway.on_sighup, gateway.on_sigusr1):
        async with gateway:
            for host, port in gateway.addresses:
                log.info(
                    "skewgate %s serves on http://%s:%d",
                    __version__,
                    f"[{host}]" if ":" in host else host,
                    port,
                )
            log.info("the admin listener is %s", gateway.admin_url)
            await stop.wait()
            log.info("stopping: the requests in flight are finished first")
    log.info("stopped")
