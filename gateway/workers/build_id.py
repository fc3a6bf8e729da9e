"""What identifies the code that a process runs: main process and workers must run the same.

The messages between them are pickles of their own classes, and belong to one build of the gateway. A package
that is upgraded while the gateway runs would give it workers of another one. Imports nothing dear: every
worker computes it before all else. The interpreter and other packages do not count: no message has anything
of theirs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from gateway import __version__
from gateway.runtime.compiled import code_of, is_compiled

OTHER_CODE: Final = 76
"""The exit code of a worker that would run other code than its main process. It has the same meaning in every
release: the two may be of different ones."""
OTHER_CODE_REASON: Final = (
    "it would run another build of skewgate than this gateway, because the one on the disk was replaced; let "
    "a new gateway take over: send SIGUSR2 to this one, or start `skewgate run --take-over`"
)
_PACKAGE: Final = Path(__file__).resolve().parent.parent


def build_id(package: Path = _PACKAGE) -> str:
    """Of the code in this folder as it is now: the release, whether it runs compiled, and a checksum of all
    sources. It takes 7 ms. The main process must ask when it starts: later, the disk may have something
    else."""
    checksum = hashlib.sha256()
    for piece in code_of(package):
        checksum.update(piece)
    return f"{__version__}-{'compiled' if is_compiled() else 'interpreted'}-{checksum.hexdigest()[:16]}"
