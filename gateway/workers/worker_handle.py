"""One worker process as its main process has it: started, told, heard, killed, and reaped.

The end of the channel is how the main process learns that a worker has ended: the kernel closes it with the
process. No signal is needed for it and no thread, and it is the same in every event loop. What is said over
the channel is not known here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from time import monotonic
from typing import Final, final

from gateway.core.fleet.snapshot import Snapshot
from gateway.runtime.compiled import SOURCES
from gateway.workers.build_id import OTHER_CODE, OTHER_CODE_REASON
from gateway.workers.channel import Channel
from gateway.workers.messages import Pause, Report, Serve, Shutdown
from gateway.workers.publisher import Recipient

PROGRAM: Final = (sys.executable, "-P", "-m", "gateway.workers")
LAST_WORDS: Final = 1.0
"""Seconds from the end of its channel to the end of a worker, for its last lines. Then it is killed."""
LAST_SPANS: Final = 5.0
"""The same for one that ends in order, which sends its last spans, too."""
LONGEST_POLL: Final = 0.05
"""Seconds between two polls for the end of a process."""


class WorkerStage(Enum):
    """How far a worker is. The values are shown in `/status`."""

    STARTING = "starting"
    """It has not acknowledged anything, or not yet what all others hold: it serves nobody."""
    LIVE = "ready"
    """It holds what all others hold. It serves when it is told to."""
    SERVING = "serving"
    DRAINING = "draining"


@final
class WorkerHandle:
    """One process. `on_message` is called with this and each message; nothing that comes after `kill` is
    delivered."""

    def __init__(self, slot: int, on_message: Callable[[WorkerHandle, object], None]) -> None:
        self.slot = slot
        self.stage = WorkerStage.STARTING
        self.began_at = monotonic()
        self.serving_at: float | None = None
        """Since when it serves."""
        self.recipient: Recipient | None = None
        """What it was told; None: nothing yet."""
        self.unanswered = 0
        """Beats since it has acknowledged or reported something."""
        self.report: Report | None = None
        """The last one."""
        self.stops_due = 0
        """How often it has yet to say that it accepts no more."""
        self.stopped = False
        """It accepts no more, and was not told to serve again."""
        self.dismissed = False
        """It was told to end, or ended, because all of them end."""
        self.why_killed = ""
        self._on_message = on_message
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._channel_ended = asyncio.Event()

    @property
    def pid(self) -> int:
        """0 before `start`."""
        return 0 if self._process is None else self._process.pid

    @property
    def held(self) -> Snapshot | None:
        """What it has acknowledged; None: nothing yet. From then to its end records wait for it."""
        return None if self.recipient is None else self.recipient.held

    async def start(self, program: Sequence[str], code: str, inherited: Sequence[int]) -> None:
        """Start the process, which must run this `code` (`build_id`). It inherits these descriptors, and the
        other end of the channel. Raises `OSError` if it cannot be started."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                ours.setblocking(False)  # noqa: FBT003
                # In a session of its own: Ctrl-C is for the main process, which tells the workers. Not
                # through the event loop: uvloop runs Python code between fork and exec. 0.4 ms where a core
                # is free.
                self._process = subprocess.Popen(  # noqa: ASYNC220, S603
                    [*program, "--channel", str(theirs.fileno()), "--code", code],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), *inherited),
                    start_new_session=True,
                    env=_environment(os.environ),
                )
            except BaseException:
                ours.close()
                raise
        self._channel = Channel(ours, self._received, self._channel_ended.set)
        await self._channel.open()

    def send(self, message: object) -> None:
        """Behind all that was sent before; nothing happens after the end."""
        if self._channel is not None:
            self._channel.send(message)

    def kill(self, why: str) -> None:
        """End it at once, because of what it has done: `why`, for the log."""
        if not self.why_killed:
            self.why_killed = why
            self._kill()

    def dismiss(self) -> None:
        """It is not needed any more: end it at once."""
        self.dismissed = True
        self._kill()

    def pause(self) -> None:
        """It accepts nobody until it is told to serve again."""
        self.stopped = False
        self.stops_due += 1
        self.send(Pause())

    def serve(self) -> None:
        """It accepts clients from now on."""
        self.stopped = False
        self.send(Serve())

    def drain(self, seconds: float) -> None:
        """It is not needed any more, and has `seconds` for what it has begun."""
        self.dismissed, self.stopped = True, False
        self.stops_due += 1
        self.stage = WorkerStage.DRAINING
        self.send(Shutdown(seconds))

    async def ended(self) -> int:
        """Wait until it has ended, and see to it once its channel has. The return code of the process."""
        assert self._process is not None
        await self._channel_ended.wait()
        code = await self._reaped(self._process, LAST_SPANS if self.stopped else LAST_WORDS)
        while code is None:
            self._kill()
            code = await self._reaped(self._process, LAST_WORDS)
        return code

    def _received(self, message: object) -> None:
        if not self.why_killed:
            self._on_message(self, message)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()  # nothing happens if it has been reaped
        if self._channel is not None:
            self._channel.close()  # somebody else may have inherited the other end
        self._channel_ended.set()

    async def _reaped(self, process: subprocess.Popen[bytes], seconds: float) -> int | None:
        """The return code, if it ends within `seconds`. Nearly always it has ended already."""
        end, pause = monotonic() + seconds, 0.001
        while (code := process.poll()) is None and monotonic() < end:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_POLL)
        if code is not None and self._channel is not None:
            self._channel.close()
        return code


def ending_of(code: int) -> str:
    """How a process has ended, by its return code."""
    if code == OTHER_CODE:
        return OTHER_CODE_REASON
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """That of a worker, which must find the package that the main process runs. It is not installed when the
    main process runs from a checkout, from the working directory."""
    place = str(SOURCES)
    if place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        return dict(environ)
    before = environ.get("PYTHONPATH")
    return {**environ, "PYTHONPATH": f"{place}{os.pathsep}{before}" if before else place}
