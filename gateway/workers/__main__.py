"""The program of a worker process: `python -m gateway.workers --channel FD --code BUILD_ID`.

Only the main process starts it. It ends at once if it would run other code than that (`build_id`). The form
of the arguments is the same in all releases, so that a worker of another release notices.

Nothing is imported before signals are ignored: the main process decides what they mean and tells its workers.
Imports are few, because a worker that has died is replaced while its clients wait.
"""

import gc
import signal
import sys
from importlib import import_module
from typing import Final

IGNORED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that a worker ignores: they are for the main process, whose end shows in the channel."""

USAGE: Final = "a worker is started by `skewgate run` with `workers` above 1, and not by hand"


def main() -> int:
    """Run this process as a worker. Returns its exit code."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    channel, code = _arguments(sys.argv[1:])
    if channel is None:
        sys.stderr.write(f"error: {USAGE}\n")
        return 2
    gc.set_threshold(200_000, 50, 100)  # for the imports; `process` sets its own
    import_module("gateway.runtime.compiled").use_compiled()
    build_id = import_module("gateway.workers.build_id")
    if build_id.build_id() != code:
        return int(build_id.OTHER_CODE)  # the main process logs it
    return int(import_module("gateway.workers.worker_main").run(channel))


def _arguments(arguments: list[str]) -> tuple[int | None, str]:
    """The channel's descriptor and the main process's build id, from the arguments; None: invalid ones."""
    match arguments:
        case ["--channel", number, "--code", code] if number.isdecimal() and number.isascii():
            return int(number), code
        case _:
            return None, ""


if __name__ == "__main__":
    sys.exit(main())
