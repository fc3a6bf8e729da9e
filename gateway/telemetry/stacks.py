"""Stacks of the threads and asyncio tasks of this process, as log events.

For SIGQUIT, and for a stall of the event loop (`stall_watch`). A stack shows files, lines and functions, and
never a value, so no secret. Compiled modules (`./run build`) have no frames of their own: a stack shows their
callers.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from traceback import FrameSummary, StackSummary
from types import FrameType
from typing import Final, NamedTuple

from gateway.telemetry.process_log import with_stack

MAX_TASKS: Final = 200
"""Maximum number of tasks whose stacks are logged: each is an event."""

MAX_FRAMES: Final = 64
"""Maximum frames of one stack, the innermost ones."""

_log = logging.getLogger("skewgate.stacks")


class TaskStack(NamedTuple):
    """Call stack of an asyncio task."""

    name: str
    places: tuple[FrameSummary, ...]
    """Frames of the task's stack, from the outermost coroutine on."""
    end: str
    """Last line of the task's stack: what the task waits for, or that it runs."""


def capture_stacks(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Captures the stacks of the tasks of `loop`, and returns a function that logs them with those of all
    threads. Call it in the thread of the loop, where no task ends meanwhile: Python 3.12.1 crashes when asked
    for the coroutine of an eager task that has ended. A signal handler may call it; another thread must call
    the result, because the interrupted thread may hold the log."""
    tasks = sorted(asyncio.all_tasks(loop), key=asyncio.Task.get_name)
    return partial(_log_stacks, [_stack_of_task(task) for task in tasks[:MAX_TASKS]], len(tasks))


def _log_stacks(tasks: Sequence[TaskStack], number: int) -> None:
    """Logs the stacks of tasks and of threads but this one, an event each. `number` counts all tasks."""
    frames = sys._current_frames()  # noqa: SLF001 - it is documented, and there is no other way
    if threading.current_thread() is not threading.main_thread():
        del frames[threading.get_ident()]
    _log.warning("SIGQUIT: stacks of threads: %d, of tasks: %d", len(frames), number)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in frames.items():
        name = names.get(ident, "not of Python")
        _log.warning("thread %s", name, extra=with_stack(stack_of(frame)))
    for task in tasks:
        text = "".join([*StackSummary.from_list(list(task.places)).format(), task.end])
        _log.warning("task %s", task.name, extra=with_stack(text))
    if number > len(tasks):
        _log.warning("%d more tasks are not shown", number - len(tasks))


def stack_of(frame: FrameType | None) -> str:
    """Formats the call stack that ends in `frame`, the innermost call last."""
    return "".join(traceback.format_stack(frame, limit=MAX_FRAMES)) if frame is not None else ""


def _stack_of_task(task: asyncio.Task[object]) -> TaskStack:
    """Captures a task's stack from its outermost coroutine to what it waits for, unlike `Task.get_stack`."""
    places: list[FrameSummary] = []
    waiting: object = task.get_coro()
    while waiting is not None and len(places) < MAX_FRAMES:
        for kind in ("cr", "gi", "ag"):  # coroutine, generator, asynchronous generator
            frame = getattr(waiting, f"{kind}_frame", None)
            if isinstance(frame, FrameType):
                code = frame.f_code
                places.append(FrameSummary(code.co_filename, frame.f_lineno, code.co_name, lookup_line=False))
                if getattr(waiting, f"{kind}_running", False):
                    return TaskStack(task.get_name(), tuple(places), "  runs\n")
                waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)
                break
        else:
            return TaskStack(task.get_name(), tuple(places), f"  waits for {type(waiting).__name__}\n")
    return TaskStack(task.get_name(), tuple(places), "")
