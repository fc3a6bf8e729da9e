"""The life of a worker process, which follows the messages of the main process.

    Start   ->  `WorkerParts`: everything but accepting clients
    Update  ->  SnapshotHolder, with the facts on top that the main process has not taken in yet
    Serve   ->  listens      ReportRequest -> Report      Shutdown -> accepts no more, finishes, ends

Each Start and Update is acknowledged once it is in force. While the main process lives, it alone decides when
a worker ends, and signals to the whole service or terminal are ignored here. A closed channel means that the
main process is gone: an orphan accepts no more, drains, and ends. A worker decides no offer and sends no
probe.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from typing import Final, final

from gateway.errors import StartupError
from gateway.runtime import process
from gateway.telemetry.process_log import ProcessLog
from gateway.telemetry.stacks import capture_stacks
from gateway.telemetry.stall_watch import StallWatch
from gateway.workers import messages
from gateway.workers.channel import Channel
from gateway.workers.worker_parts import WorkerParts

LAST_WORDS: Final = 1.0
"""Seconds for the main process to receive the last report of this worker."""
FAILED: Final = 1
"""The exit code of a worker that could not start, or go on."""

_log = logging.getLogger("skewgate.workers")


def run(channel: int) -> int:
    """Run a worker until its end. `channel`: descriptor of the socket to the main process."""
    process_log = ProcessLog()
    process_log.install()
    try:
        sock = socket.socket(fileno=channel)
        sock.setblocking(False)  # noqa: FBT003 - the name of the method says it
        sock.set_inheritable(False)
        return process.run_in_loop(_serve(sock, process_log))
    except StartupError as error:
        _log.error("a worker cannot start: %s", error)
        return FAILED
    except Exception:  # noqa: BLE001 - logged: the main process puts another worker in its place
        _log.exception("this worker ends because of a bug in the gateway")
        return FAILED
    finally:
        process_log.start()


async def _serve(sock: socket.socket, process_log: ProcessLog) -> int:
    process_log.start()
    stall_watch = StallWatch()
    worker = WorkerMain(sock, process_log, stall_watch.begin_serving)
    stall_watch.start()
    with (
        closing(stall_watch),
        process.handle_signals(worker.on_stop_signal, capture=capture_stacks, always=True),
    ):
        await worker.run()
    return 0


@final
class WorkerMain:
    """The worker of this process. `sock`: to the main process. `on_serving`: called as it accepts clients."""

    def __init__(
        self, sock: socket.socket, process_log: ProcessLog, on_serving: Callable[[], None] = lambda: None
    ) -> None:
        self._process_log = process_log
        self._on_serving = on_serving
        self._main_process = os.getppid()
        self._channel = Channel(sock, self._received, self._main_process_is_gone)
        self._inbox: deque[messages.FromMainProcess] = deque()
        """Messages from the main process that are taken in one after the other."""
        self._early: list[messages.AtOnce] = []
        """Messages from the main process that came before the worker's parts were there to take them."""
        self._news = asyncio.Event()
        """Event that is set when a message has come from the main process, or the channel has closed."""
        self._gone = False
        """Whether the main process is gone, so that this worker is an orphan."""
        self._stopping = False
        """Whether a stop signal has come while the main process was gone."""
        self._parts: WorkerParts | None = None
        self._due: asyncio.Queue[messages.ReportRequest] = asyncio.Queue()
        """Requests for reports that are not answered yet."""
        self._reporting: asyncio.Task[None] | None = None
        """Task that answers them: a report is made in parts, between which the worker serves."""

    async def run(self) -> None:
        """Follow the main process's messages until the end, then close the worker. Raises `StartupError`."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._channel.closed, LAST_WORDS)
            stack.callback(self._channel.close)
            await self._channel.open()
            while (message := await self._next()) is not None:
                match message:
                    case messages.Start():
                        await self._start(message, stack)
                    case messages.Update() if self._parts is not None:
                        await self._update(self._parts, message)
                    case messages.Serve() if self._parts is not None:
                        await self._parts.listen()
                        self._on_serving()
                        self._channel.send(messages.Serving())
                    case messages.Pause() if self._parts is not None:
                        await self._parts.worker.stop_accepting()
                        self._channel.send(messages.Stopped())
                    case messages.Shutdown():
                        await self._drain(message.seconds)
                        return
                    case _:
                        name = type(message).__name__
                        raise StartupError(f"the main process has sent a {name} before `Start`")
            if self._parts is not None and self._parts.serves:
                await self._end_as_orphan(self._parts)

    async def _start(self, start: messages.Start, stack: AsyncExitStack) -> None:
        self._process_log.of_worker(str(start.slot))
        self._process_log.configure(start.settings.log)
        with process.collector_paused():
            parts = WorkerParts(start, self._channel.send)
            stack.push_async_callback(parts.close)
            await parts.start()
        self._parts = parts
        self._reporting = asyncio.get_running_loop().create_task(self._answer(parts), name="reports")
        stack.push_async_callback(process.end_tasks, self._reporting)
        for message in self._early:
            parts.received(message)
        process.keep_for_long()
        self._channel.send(messages.Ack(1))

    async def _next(self) -> messages.FromMainProcess | None:
        """The next message of the main process; None: it is gone, there will be none."""
        while not self._inbox:
            if self._gone:
                return None
            self._news.clear()
            await self._news.wait()
        return self._inbox.popleft()

    async def _update(self, parts: WorkerParts, update: messages.Update) -> None:
        if update.settings is None:
            parts.update(update)
        else:
            with process.collector_paused():
                await parts.configure(update, update.settings)
                self._process_log.configure(update.settings.log)
            process.keep_for_long()
        self._channel.send(messages.Ack(update.number))

    async def _drain(self, seconds: float) -> None:
        parts = self._parts
        if parts is not None:
            await parts.stop_accepting()
        self._channel.send(messages.Stopped())
        if parts is not None:
            await parts.worker.drain(seconds)
            await process.end_tasks(self._reporting)  # nothing follows the last report
            await self._report(parts, messages.ReportRequest(0, counters=True))

    async def _answer(self, parts: WorkerParts) -> None:
        """Answer requests for reports in turn. A bug cuts the channel: this worker ends after the requests in
        flight, and the main process puts another one in its place."""
        try:
            while True:
                await self._report(parts, await self._due.get())
        except Exception:  # noqa: BLE001 - logged: no bug in a report may cut a request
            _log.exception("this worker ends because of a bug in the gateway")
            self._channel.abort()

    async def _report(self, parts: WorkerParts, request: messages.ReportRequest) -> None:
        self._channel.send(await parts.report(request, self._process_log))

    async def _end_as_orphan(self, parts: WorkerParts) -> None:
        """End as an orphan: free the addresses for the next gateway, and finish the requests under way."""
        seconds = parts.settings.timeouts.drain
        _log.error(
            "the main process is gone: this worker accepts no more, and ends after the requests in flight, "
            "at most %g s",
            seconds,
        )
        parts.main_process_is_gone()
        await parts.stop_accepting()
        await parts.worker.drain(seconds)

    def _received(self, message: messages.FromMainProcess) -> None:
        """Answer a message at once where possible. Others wait in the inbox for those before them."""
        parts = self._parts
        match message:
            case messages.ReportRequest() if parts is not None:
                self._due.put_nowait(message)
            case messages.Do() if parts is not None:
                parts.do(message.what)
            case messages.HeldBack() | messages.Leases() | messages.ClientUse() | messages.Deadlines():
                if parts is None:
                    self._early.append(message)
                else:
                    parts.received(message)
            case messages.ReportRequest() | messages.Do():
                pass
            case _:
                self._inbox.append(message)
                self._news.set()

    def _main_process_is_gone(self) -> None:
        self._gone = True
        self._news.set()

    def on_stop_signal(self) -> None:
        """Ignore stop signals while the main process lives, and end an orphan at once on its second one. A
        service manager signals all processes when the main one has ended, perhaps before the end of the
        channel is read."""
        if not self._gone and os.getppid() == self._main_process:
            return
        if self._stopping:
            process.exit_at_once()
        self._stopping = True
