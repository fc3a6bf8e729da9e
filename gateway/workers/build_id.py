"""The build id: it identifies the code that a process runs. Main process and workers must run the same.

Their messages are pickles of their own classes, and fit one build of the gateway. After an upgrade of the
package a running gateway would otherwise start workers of another build. Every worker computes its id first,
so this module imports little. Interpreter and other packages do not count: no message contains their classes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from gateway import __version__
from gateway.runtime.compiled import code_of, is_compiled

OTHER_CODE: Final = 76
"""Exit code, the same in every release, of a worker that would run other code than its main process."""
OTHER_CODE_REASON: Final = (
    "it would run another build of skewgate than this gateway, because the one on the disk was replaced; let "
    "a new gateway take over: send SIGUSR2 to this one, or start `skewgate run --take-over`"
)
_PACKAGE: Final = Path(__file__).resolve().parent.parent


def build_id(package: Path = _PACKAGE) -> str:
    """The build id of the code in a folder: release, compiled or not, and a checksum of all sources. Takes 7
    ms. The main process must call this when it starts: later, other code may be on the disk."""
    checksum = hashlib.sha256()
    for piece in code_of(package):
        checksum.update(piece)
    return f"{__version__}-{'compiled' if is_compiled() else 'interpreted'}-{checksum.hexdigest()[:16]}"
