"""Where this process is at this moment: the stacks of its threads and of its asyncio tasks, as log events.

For SIGQUIT, and for a stall of the event loop (`stall_watch`). A stack shows files, lines and functions, and
never a value, so no secret. The parts that are compiled (`./run build`) have no frames of their own: a stack
shows who called them. Changes nothing in what it looks at.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from types import FrameType
from typing import Final

from gateway.telemetry.process_log import with_stack

MAX_TASKS: Final = 200
"""Of how many tasks the stacks are logged: each is an event."""

MAX_FRAMES: Final = 64
"""The innermost frames of one stack."""

_log = logging.getLogger("skewgate.stacks")


def log_stacks(loop: asyncio.AbstractEventLoop) -> None:
    """One event for each thread of the process but this one, and each task of `loop`, whatever the loop is
    doing. Not for a signal handler: the thread that it interrupts may hold the log."""
    frames, tasks = sys._current_frames(), sorted(asyncio.all_tasks(loop), key=asyncio.Task.get_name)  # noqa: SLF001 - it is documented, and there is no other way
    if threading.current_thread() is not threading.main_thread():
        del frames[threading.get_ident()]
    _log.warning("SIGQUIT: stacks of threads: %d, of tasks: %d", len(frames), len(tasks))
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in frames.items():
        name = names.get(ident, "not of Python")
        _log.warning("thread %s", name, extra=with_stack(stack_of(frame)))
    for task in tasks[:MAX_TASKS]:
        _log.warning("task %s", task.get_name(), extra=with_stack(_stack_of_task(task)))
    if len(tasks) > MAX_TASKS:
        _log.warning("and %d more tasks", len(tasks) - MAX_TASKS)


def stack_of(frame: FrameType | None) -> str:
    """The stack that ends in `frame`, the innermost call last."""
    return "".join(traceback.format_stack(frame, limit=MAX_FRAMES)) if frame is not None else ""


def _stack_of_task(task: asyncio.Task[object]) -> str:
    """From the outermost coroutine to what it waits for: `Task.get_stack` knows only the first of them."""
    summary = traceback.StackSummary()
    waiting: object = task.get_coro()
    while waiting is not None and len(summary) < MAX_FRAMES:
        for kind in ("cr", "gi", "ag"):  # coroutine, generator, asynchronous generator
            frame = getattr(waiting, f"{kind}_frame", None)
            if isinstance(frame, FrameType):
                summary.append(
                    traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
                )
                waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
                break
        else:
            return "".join([*summary.format(), f"  waits for {type(waiting).__name__}\n"])
    return "".join(summary.format())
