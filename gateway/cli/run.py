"""`skewgate run -c FILE`: runs the gateway in the foreground until SIGTERM or SIGINT.

SIGHUP reads the file again and reopens the access log; SIGUSR1 only reopens the log, as log rotation needs
it. The log on standard error says where the gateway listens; nobody who stops reading it stops the gateway
(`telemetry.process_log`). All other behaviour comes from the file.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from pathlib import Path

from gateway import __version__, process
from gateway.assembly import Gateway
from gateway.settings import read_file
from gateway.telemetry.process_log import ProcessLog

HELP = "run the gateway in the foreground"

log = logging.getLogger("skewgate")


def arguments(parser: argparse.ArgumentParser) -> None:
    """`-c FILE`."""
    parser.add_argument("-c", "--config", metavar="FILE", type=Path, required=True, help="the configuration")


def run(options: argparse.Namespace) -> int:
    """Run the gateway; 0 after a drain. Raises `SettingsError` or `StartupError` when it cannot start."""
    process_log = ProcessLog()
    process_log.install()
    try:
        loaded = read_file(options.config, environ=os.environ)
        configured = loaded.require()
        for line in loaded.render().splitlines():
            log.warning("%s", line)
        gateway = Gateway(configured, source=options.config, process_log=process_log)
        process.run_in_loop(_serve(gateway, process_log))
    finally:
        process_log.start()  # for the reason why it did not: a process that ends may start no thread
    return 0


async def _serve(gateway: Gateway, process_log: ProcessLog) -> None:
    process_log.start()
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
