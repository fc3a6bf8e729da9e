"""The handle of one worker process in the main process: starts it, sends to it, kills and reaps it.

The kernel closes the channel when the worker ends, and so the main process learns of it: without a signal or
a thread, and alike in every event loop. This module does not know what messages mean.
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
"""Seconds after the end of a worker's channel for its last log lines. Then the worker is killed."""
LAST_SPANS: Final = 5.0
"""Seconds after the end of a worker's channel if it ends in order: it sends its last spans, too."""
LONGEST_POLL: Final = 0.05
"""Maximum seconds between two polls for the end of a worker process."""


class WorkerStage(Enum):
    """The stage of a worker's life. The values are shown in `/status`."""

    STARTING = "starting"
    """Stage of a worker that does not hold yet what all others hold, and serves nobody."""
    LIVE = "ready"
    """Stage of a worker that holds what all others hold, and serves when it is told to."""
    SERVING = "serving"
    DRAINING = "draining"


@final
class WorkerHandle:
    """Handle of a worker process. `on_message`: called with the handle and each message, until `kill`."""

    def __init__(self, slot: int, on_message: Callable[[WorkerHandle, object], None]) -> None:
        self.slot = slot
        self.stage = WorkerStage.STARTING
        self.began_at = monotonic()
        self.serving_at: float | None = None
        self.recipient: Recipient | None = None
        """The worker's entry in the publisher; None: it was sent nothing yet."""
        self.unanswered = 0
        """Number of beats (report requests) since the worker's last acknowledgement or report."""
        self.report: Report | None = None
        self.stops_due = 0
        """Number of `Stopped` messages (it accepts no more clients) that the worker has yet to send."""
        self.stopped = False
        """Whether the worker accepts no more clients, and was not told to serve again."""
        self.dismissed = False
        """Whether the worker was told to end or killed because all workers end."""
        self.why_killed = ""
        self._on_message = on_message
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._channel_ended = asyncio.Event()

    @property
    def pid(self) -> int:
        """The process id of the worker; 0 before `start`."""
        return 0 if self._process is None else self._process.pid

    @property
    def held(self) -> Snapshot | None:
        """The snapshot that the worker has acknowledged. From then to its end, agreed records wait for it."""
        return None if self.recipient is None else self.recipient.held

    async def start(self, program: Sequence[str], code: str, inherited: Sequence[int]) -> None:
        """Start the worker process, which must have the build id `code`. It inherits these descriptors and
        the other end of the channel. Raises `OSError` if it cannot be started."""
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
        """Send the worker a message. Does nothing unless its channel is open."""
        if self._channel is not None:
            self._channel.send(message)

    def kill(self, why: str) -> None:
        """Kill the worker because of what it has done or left undone: `why`, for the log."""
        if not self.why_killed:
            self.why_killed = why
            self._kill()

    def dismiss(self) -> None:
        """Kill the worker, which is not needed any more."""
        self.dismissed = True
        self._kill()

    def pause(self) -> None:
        self.stopped = False
        self.stops_due += 1
        self.send(Pause())

    def serve(self) -> None:
        self.stopped = False
        self.send(Serve())

    def drain(self, seconds: float) -> None:
        """Tell the worker to end in order. It has `seconds` for the requests under way."""
        self.dismissed, self.stopped = True, False
        self.stops_due += 1
        self.stage = WorkerStage.DRAINING
        self.send(Shutdown(seconds))

    async def ended(self) -> int:
        """Wait for the worker's end, and kill it if it outlives its channel. Returns the exit code."""
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
        """The worker's exit code; None: it does not end within `seconds`. Mostly it has ended already."""
        end, pause = monotonic() + seconds, 0.001
        while (code := process.poll()) is None and monotonic() < end:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_POLL)
        if code is not None and self._channel is not None:
            self._channel.close()
        return code


def ending_of(code: int) -> str:
    """The reason for the end of a worker, by its exit code, for the log."""
    if code == OTHER_CODE:
        return OTHER_CODE_REASON
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker, which must find the package of the main process, also in a checkout."""
    place = str(SOURCES)
    if place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        return dict(environ)
    before = environ.get("PYTHONPATH")
    return {**environ, "PYTHONPATH": f"{place}{os.pathsep}{before}" if before else place}
