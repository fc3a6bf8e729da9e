"""The command `skewgate`, and `python -m gateway`. Nothing is imported here before the signals are settled.

The gateway takes a third of a second to import its libraries. A supervisor that changes its mind meanwhile
must see an orderly end: nothing is open yet, so the process just ends. Decides nothing else.
"""

import gc
import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Final

STOP: Final = (signal.SIGTERM, signal.SIGINT)
NOTHING_TO_DO: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""There is no configuration to reload and no log to reopen before the start."""
CERTIFICATES: Final = "SSL_CERT_FILE"
"""Names the file with the certificates that OpenSSL trusts, instead of the one of the system."""


def main() -> int:
    """Run the command line; the exit code."""
    if sys.argv[1:2] == ["run"]:  # the other verbs end as every command does
        for number in STOP:
            signal.signal(number, _end)
        for number in NOTHING_TO_DO:
            signal.signal(number, signal.SIG_IGN)
    # Most verbs end before there is much to collect, and imports are quicker so. `process` sets its own.
    gc.set_threshold(200_000, 50, 100)
    verbs = import_module("gateway.cli.verbs")
    if sys.argv[1:2] and sys.argv[1] in verbs.COMPILED:
        import_module("gateway.runtime.compiled").use_compiled()
    if sys.argv[1:2] == [verbs.SERVES]:
        import_aiohttp()
    code: int = import_module("gateway.cli").main()
    # The process ends now. Without this, Python first looks through all that was imported for garbage, which
    # takes longer than most verbs.
    gc.freeze()
    return code


def import_aiohttp() -> None:
    """aiohttp makes two TLS contexts while it is imported, and fills both with all certificates that the
    system trusts: 35 ms. No connection of a gateway uses them, because each over TLS is given a context of
    its own (`tls`). So OpenSSL finds an empty file meanwhile."""
    before = os.environ.get(CERTIFICATES)
    os.environ[CERTIFICATES] = os.devnull
    try:
        import_module("aiohttp")
    finally:
        del os.environ[CERTIFICATES]
        if before is not None:
            os.environ[CERTIFICATES] = before


def _end(number: int, frame: FrameType | None) -> None:
    """Not by an exception: it could be raised anywhere inside an import. `process.handle_signals` replaces
    this as soon as the event loop runs."""
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
