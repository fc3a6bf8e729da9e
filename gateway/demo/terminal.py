"""The demonstration on a terminal: its view again and again, and single keys.

It shows what the director says and passes keys on; it decides nothing about the demonstration. The terminal
is as before whatever ends it: the end, an exception, a signal. A terminal that takes its output slowly never
holds the event loop, on which the gateway serves requests.
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

from gateway.demo.report import print_lines, summary
from gateway.demo.scene import Demonstration, KeyCommand
from gateway.demo.view import screen

FRAME: Final = 1 / 8
"""Seconds between two views. A key is followed by one at once."""
READ_SIZE: Final = 256
"""Bytes that are read at once. Nobody types as many."""
POLL_INTERVAL: Final = 0.2
"""Seconds between two looks of the keyboard's thread at whether it is needed any more."""
DUMB: Final = frozenset({"", "dumb", "unknown"})
SEQUENCE: Final = re.compile(rb"\x1b+(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""What arrows, function keys, and Alt with a letter send."""


def is_terminal(stream_in: TextIO | None, stream_out: TextIO | None) -> bool:
    """Whether `show` can be used: both are a terminal that can place a cursor, and this process has it. In
    the background of a shell (`&`) it has not: to change the terminal would stop it."""
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


async def show(director: Demonstration) -> None:
    """Show views of the demonstration on standard output until it is over, then a summary on the normal
    screen; obey keys from standard input. When the terminal is gone the director is told to quit."""
    wake = asyncio.Event()

    def on_key(key: str) -> None:
        if command := KeyCommand.of(key):
            director.do(command)
            wake.set()

    def on_end() -> None:
        director.do(KeyCommand.QUIT)

    # What the terminal's characters cannot say is a question mark.
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(errors="replace")
    # Some parents leave a terminal non-blocking: then it takes the beginning of a view only.
    os.set_blocking(sys.stdout.fileno(), True)
    try:
        with single_keys(sys.stdin.fileno()), keyboard(sys.stdin.fileno(), on_key, on_end):
            await _show_views(director, wake)
        await asyncio.to_thread(print_lines, summary(director.scene()))
    except OSError:  # the terminal is gone
        director.do(KeyCommand.QUIT)
        await director.over.wait()


async def _show_views(director: Demonstration, wake: asyncio.Event) -> None:
    console = Console(force_terminal=True, markup=False, emoji=False, highlight=False)
    with Live(
        Text(), console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    ) as live:
        while not director.over.is_set():
            wake.clear()
            # Not COLUMNS, which rich would believe: it stays what it was when the terminal grows.
            columns, lines = os.get_terminal_size(sys.stdout.fileno())
            console.size = columns or 80, lines or 24
            view = screen(director.scene(), *console.size)
            await asyncio.to_thread(live.update, view, refresh=True)
            with suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), FRAME)


@contextmanager
def single_keys(fd: int) -> Iterator[None]:
    """Inside, the terminal `fd` gives each key at once and shows none; Ctrl-Z and Ctrl-S do nothing. What was
    typed and not read is gone afterwards: it was not meant for a shell."""
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
    """Inside, call `on_key` on this loop with each key from the terminal `fd`, and `on_end` once when the
    terminal is gone.

    A thread waits for keys. A loop of libuv would make the terminal non-blocking to wait for it, and so for
    the shell, and for whoever writes to it.
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
    """The printable ASCII characters that were typed. Arrows and function keys are sequences with letters in
    them: they are left out."""
    return "".join(chr(byte) for byte in SEQUENCE.sub(b"", data) if 0x20 < byte < 0x7F)
