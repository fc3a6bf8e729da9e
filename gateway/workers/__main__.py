"""A worker process: `python -m gateway.workers --channel FD --code IDENTITY`. Its main process starts it,
nobody else does. It ends at once if it is not the code that the main process runs (`build_id`). The form of
its arguments stays, so that the worker of another release can tell that.

Nothing is imported here before the signals are settled: what they mean is decided by the main process, which
tells its workers. Imports as little as serving requests needs, because a worker that has died is replaced
while its clients wait. Decides nothing else.
"""

import gc
import signal
import sys
from importlib import import_module
from typing import Final

OF_MAIN_PROCESS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""A main process that is gone shows by its channel, also while this process starts."""

USAGE: Final = "a worker is started by `skewgate run` with `workers` above 1, and not by hand"


def main() -> int:
    """Run the worker; the exit code."""
    for number in OF_MAIN_PROCESS:
        signal.signal(number, signal.SIG_IGN)
    channel, code = _arguments(sys.argv[1:])
    if channel is None:
        sys.stderr.write(f"error: {USAGE}\n")
        return 2
    gc.set_threshold(200_000, 50, 100)  # for the imports; `process` sets its own
    import_module("gateway.runtime.compiled").use_compiled()
    build_id = import_module("gateway.workers.build_id")
    if build_id.build_id() != code:
        return int(build_id.OTHER_CODE)  # the main process says it in its log, whose form it knows
    return int(import_module("gateway.workers.worker_main").run(channel))


def _arguments(arguments: list[str]) -> tuple[int | None, str]:
    """The descriptor of the channel, and what the main process runs; None: these are not the arguments of a
    main process."""
    match arguments:
        case ["--channel", number, "--code", code] if number.isdecimal() and number.isascii():
            return int(number), code
        case _:
            return None, ""


if __name__ == "__main__":
    sys.exit(main())
