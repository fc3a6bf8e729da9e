"""`skewgate run [FILE]`: runs the gateway in the foreground until SIGTERM or SIGINT.

`DETAILS` lists the signals; everything else comes from the file. The log goes to standard error, where a
reader that stops reading never blocks the gateway (`telemetry.process_log`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gateway import __version__
from gateway.assembly import Gateway
from gateway.cli.command import file_argument, file_option, find_config, verb
from gateway.errors import StartupError
from gateway.handover.connection import path_of
from gateway.handover.handover import Handover
from gateway.handover.inheritance import passed_sockets
from gateway.handover.successor import Successor
from gateway.handover.take_over import TakenOver
from gateway.handover.take_over import take_over as take_over_from
from gateway.runtime import compiled, process
from gateway.runtime.service_manager import ServiceManager
from gateway.settings import Settings, read_file
from gateway.telemetry.process_log import ProcessLog
from gateway.telemetry.stacks import capture_stacks
from gateway.telemetry.stall_watch import StallWatch

if TYPE_CHECKING:
    from gateway.engines.haproxy.driver import MakeEngine

DETAILS: Final = (
    "FILE is the configuration, with or without -c. The default is SKEWGATE_CONFIG, ./skewgate.yaml or"
    " /etc/skewgate/skewgate.yaml, whichever exists first.\n\n"
    "SIGTERM and SIGINT drain and exit with code 0. SIGHUP reloads the file. SIGUSR1 reopens the access log."
    " SIGUSR2 starts a new process that takes over, with the program and the configuration on the disk; this"
    " one then drains and exits (hot restart; needs `state`). SIGQUIT logs the stacks of all threads and"
    " tasks."
)

log = logging.getLogger("skewgate")


@verb("run", DETAILS)
@file_argument
@file_option("-c", "--config", text="configuration file")
@click.option(
    "--take-over",
    is_flag=True,
    help="replace the running gateway with the same state file, without losing a request",
)
def run(*, config: Path | None, take_over: bool) -> int:
    """Run the gateway; 0 after a drain. Raises `SettingsError` or `StartupError` when it cannot start."""
    return run_gateway(config, take_over=take_over)


def run_gateway(
    config: Path | None, *, take_over: bool = False, engine: Callable[[Settings], MakeEngine] | None = None
) -> int:
    """Run the gateway. `engine`: returns the factory of the engine that runs beside it."""
    file = find_config(config)
    process_log = ProcessLog()
    process_log.install()
    try:
        loaded = read_file(file, environ=os.environ)
        configured = loaded.require()
        process_log.configure(configured.log)
        for problem in loaded.problems:
            log.warning("%s", problem.sentence(str(file)))
        if note := compiled.note():
            log.warning("%s", note)
        passed = passed_sockets(configured, os.environ)
        if take_over and configured.state is None:
            raise StartupError(
                "--take-over needs the key `state`: it finds the running gateway by its state file"
            )
        make_engine = None if engine is None else engine(configured)

        async def run_until_stopped() -> None:
            process_log.start()
            # Until the other gateway has answered, a signal ends this process at once: the other goes on.
            taken = await _take_over(configured.state) if take_over else None
            stop = asyncio.Event()
            gateway = Gateway(
                configured,
                source=file,
                seen=loaded.seen,
                service_manager=ServiceManager(_manager_of(taken)),
                process_log=process_log,
                handover=Handover(configured.state, taken=taken, passed=passed, handed_over=stop.set),
                engine=make_engine,
            )
            await _serve(gateway, stop)

        process.run_in_loop(run_until_stopped())
    finally:
        process_log.start()  # to log a failed start: no thread can be started while the interpreter exits
    return 0


async def _take_over(state: str | None) -> TakenOver | None:
    """Return what the running gateway with this state file hands over; None if no gateway runs."""
    taken = None if state is None else await take_over_from(path_of(state))
    if taken is None:
        log.info("no gateway to take over from: starting")
    return taken


def _manager_of(taken: TakenOver | None) -> dict[str, str]:
    """Return the variables that address the service manager: the replaced gateway's, if it has one."""
    if taken is None or not taken.manager:
        return dict(os.environ)
    return {name: value for name, value in os.environ.items() if name != "WATCHDOG_PID"} | dict(taken.manager)


async def _serve(gateway: Gateway, stop: asyncio.Event) -> None:
    """Serve until a signal, or until another process has taken over. A signal during the start cancels it."""
    starting, stopped = asyncio.current_task(), False
    assert starting is not None

    def on_stop() -> None:
        nonlocal stopped
        stopped = True
        stop.set()
        if starting is not None:
            starting.cancel()

    stall_watch = StallWatch()
    stall_watch.start()
    successor = Successor()
    signals = process.handle_signals(
        on_stop,
        gateway.on_sighup,
        gateway.on_sigusr1,
        capture_stacks,
        take_over=None if gateway.settings.state is None else successor.start,
        before_exit=gateway.on_second_stop,
    )
    with closing(stall_watch), closing(successor), signals:
        try:
            async with gateway:
                starting = None
                stall_watch.begin_serving()
                process.keep_for_long()
                for url in gateway.urls:
                    log.info("skewgate %s serves on %s", __version__, url)
                log.info("the admin listener is %s", gateway.admin_url)
                if gateway.metrics_url is not None:
                    log.info("metrics and health without a token are on %s", gateway.metrics_url)
                await stop.wait()
                log.info("stopping: finishing the requests in flight")
        except asyncio.CancelledError:
            if starting is None or not stopped:
                raise
    log.info("stopped")
