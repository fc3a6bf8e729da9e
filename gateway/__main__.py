"""The command `skewgate`, and `python -m gateway`. Signal handlers are set before anything is imported.

The gateway takes a third of a second to import its libraries. A stop signal in that time must end it in
order: nothing is open yet, so the process just ends.
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
"""Signals that are ignored during the start: there is no configuration to reload and no log to reopen yet."""
CERTIFICATES: Final = "SSL_CERT_FILE"
"""The variable that names a file of certificates for OpenSSL to trust, instead of the system's."""


def main() -> int:
    """Run the command line. Returns the exit code."""
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
    """Import aiohttp while OpenSSL finds no certificates. aiohttp makes two TLS contexts with all
    certificates that the system trusts, which takes 35 ms. No connection of a gateway uses them (`tls`)."""
    before = os.environ.get(CERTIFICATES)
    os.environ[CERTIFICATES] = os.devnull
    try:
        import_module("aiohttp")
    finally:
        del os.environ[CERTIFICATES]
        if before is not None:
            os.environ[CERTIFICATES] = before


def _end(number: int, frame: FrameType | None) -> None:
    """End at once: an exception could be raised anywhere inside an import."""
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
