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
FOR_AIOHTTP: Final = {
    "SSL_CERT_FILE": os.devnull,  # the file of the certificates that OpenSSL trusts
    "FROZENLIST_NO_EXTENSIONS": "1",
}
"""Variables of the environment while aiohttp is imported."""


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
    """Import aiohttp without what no gateway uses of it.

    Its two TLS contexts, with all certificates that the system trusts, take 35 ms; connections of a gateway
    have others (`tls`). frozenlist in C is all that needs the C++ library, which is 1.4 MiB. The table of
    media types by file name, 0.4 MiB, is for a server of files."""
    before = {name: os.environ.get(name) for name in FOR_AIOHTTP}
    os.environ.update(FOR_AIOHTTP)
    import_module("mimetypes").knownfiles.clear()
    try:
        import_module("aiohttp")
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def _end(number: int, frame: FrameType | None) -> None:
    """End at once: an exception could be raised anywhere inside an import."""
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
