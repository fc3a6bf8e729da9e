"""The demonstration on a terminal: draws the view several times a second and reads single keys.

The terminal is restored whatever ends the demonstration: its end, an exception, a signal. A slow terminal
never blocks the event loop, on which the gateway serves requests.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gateway.demo.director import Director
from gateway.demo.report import print_lines, summary
from gateway.demo.scene import KeyCommand
from gateway.demo.view import screen

FRAME: Final = 1 / 8
"""Seconds between two views. After a key the view is drawn at once."""
READ_SIZE: Final = 256
"""Maximum number of bytes that are read at once from the keyboard."""
POLL_INTERVAL: Final = 0.2
"""Seconds after which the keyboard's thread checks whether it should end."""
DUMB: Final = frozenset({"", "dumb", "unknown"})
SEQUENCE: Final = re.compile(rb"\x1b+(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""Escape sequence of an arrow key, a function key, or Alt with a letter."""


def is_terminal(stream_in: TextIO | None, stream_out: TextIO | None) -> bool:
    """Whether `show` can be used: both streams are a terminal that can place a cursor, and this process is in
    the foreground. In the background of a shell (`&`) changing the terminal would stop it."""
    if stream_in is None or stream_out is None or os.environ.get("TERM", "") in DUMB:
        return False
    try:
        if not (stream_in.isatty() and stream_out.isatty()):
            return False
        fd = stream_in.fileno()
    except (OSError, ValueError):  # closed, or no file at all
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # a terminal without job control
        return True


async def show(director: Director) -> None:
    """Show the demonstration on the terminal until it is over, then the summary on the normal screen. Keys
    from standard input become commands. When the terminal is gone, quit."""
    wake = asyncio.Event()

    def on_key(key: str) -> None:
        if command := KeyCommand.of(key):
            director.do(command)
            wake.set()

    def on_end() -> None:
        director.do(KeyCommand.QUIT)

    # Characters that the terminal's encoding lacks become question marks.
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(errors="replace")
    # Some parent processes leave a terminal non-blocking: then only the beginning of a view is written.
    os.set_blocking(sys.stdout.fileno(), True)
    try:
        with single_keys(sys.stdin.fileno()), keyboard(sys.stdin.fileno(), on_key, on_end):
            await _show_views(director, wake)
        await asyncio.to_thread(print_lines, summary(director.scene()))
    except OSError:  # the terminal is gone
        director.do(KeyCommand.QUIT)
        await director.over.wait()


async def _show_views(director: Director, wake: asyncio.Event) -> None:
    console = Console(force_terminal=True, markup=False, emoji=False, highlight=False)
    with Live(
        Text(), console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        while not director.over.is_set():
            wake.clear()
            # Not COLUMNS, which rich would use: it does not change when the terminal is resized.
            columns, lines = os.get_terminal_size(sys.stdout.fileno())
            console.size = columns or 80, lines or 24
            view = screen(director.scene(), *console.size)
            await asyncio.to_thread(live.update, view, refresh=True)
            with suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), FRAME)


@contextmanager
def single_keys(fd: int) -> Iterator[None]:
    """Let the terminal `fd` deliver single keys without echo; Ctrl-Z and Ctrl-S do nothing. On exit, unread
    keys are discarded, because they were not meant for the shell."""
    before = termios.tcgetattr(fd)
    stop = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        tty.setcbreak(fd)
        mode = termios.tcgetattr(fd)
        mode[0] &= ~termios.IXON
        termios.tcsetattr(fd, termios.TCSADRAIN, mode)
        yield
    finally:
        signal.signal(signal.SIGTSTP, stop)
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(fd, termios.TCSAFLUSH, before)


@contextmanager
def keyboard(fd: int, on_key: Callable[[str], None], on_end: Callable[[], None]) -> Iterator[None]:
    """Call `on_key` on this loop with each key from the terminal `fd`, and `on_end` when that is gone.

    A thread waits for keys: an event loop of libuv would make the terminal non-blocking, also for the shell.
    """
    loop = asyncio.get_running_loop()
    stopped = threading.Event()

    def take(data: bytes) -> None:
        if stopped.is_set():
            return
        if not data:
            on_end()
        for key in keys_in(data):
            on_key(key)

    def wait() -> None:
        data = b"-"
        while data and not stopped.is_set():
            ready, _, _ = select.select([fd], [], [], POLL_INTERVAL)
            if not ready:
                continue
            try:
                data = os.read(fd, READ_SIZE)
            except OSError:  # the terminal was closed
                data = b""
            loop.call_soon_threadsafe(take, data)

    thread = threading.Thread(target=wait, name="keyboard", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def keys_in(data: bytes) -> str:
    """Return the typed ASCII characters, without the sequences of arrow and function keys."""
    return "".join(chr(byte) for byte in SEQUENCE.sub(b"", data) if 0x20 < byte < 0x7F)
