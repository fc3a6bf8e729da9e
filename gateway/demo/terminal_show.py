"""The demonstration on a terminal: its picture again and again, and keys.

It shows what the director says and passes keys on; it decides nothing about the demonstration. The terminal
is as before whatever ends it: the end, an exception, a signal, Ctrl-Z for a while. A terminal that takes its
output slowly never holds the event loop, on which the gateway serves requests.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Protocol, Self, TextIO, final

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from gateway.demo.command import Command
from gateway.demo.drawing import glyphs_for
from gateway.demo.keyboard import Keyboard, TerminalMode, single_keys
from gateway.demo.scene import Scene
from gateway.demo.view import screen, summary

FRAME: Final = 1 / 8
"""Seconds between two pictures. A key is followed by one at once."""
USUAL_SIZE: Final = (80, 24)
"""Of a terminal that does not tell its size."""
WIDEST_SUMMARY: Final = 100
DUMB: Final = frozenset({"", "dumb", "unknown"})


class Director(Protocol):
    """Who runs the demonstration."""

    @property
    def over(self) -> asyncio.Event:
        """Set when the demonstration has ended."""

    def scene(self) -> Scene:
        """What is to be seen now."""

    def do(self, command: Command) -> None:
        """Begin with what somebody wants. It never waits and never raises."""


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


async def show(director: Director, stream_in: TextIO | None = None, stream_out: TextIO | None = None) -> None:
    """Show pictures of the demonstration until it is over, then what remains on the normal screen. Standard
    input and output, or the terminals given. When the terminal is gone the director is told to quit."""
    entry = sys.stdin if stream_in is None else stream_in
    window = _Window(sys.stdout if stream_out is None else stream_out)
    wake = asyncio.Event()

    def on_key(key: str) -> None:
        command = Command.of(key)
        if command is not None:
            director.do(command)
            wake.set()

    def on_end() -> None:
        director.do(Command.QUIT)

    waiter = asyncio.create_task(_wake_when_over(director, wake))  # noqa: TID251 - cancelled below
    try:
        with (
            single_keys(entry.fileno()) as mode,
            window,
            Keyboard(entry.fileno(), on_key, on_end),
            _suspendable(window, mode, wake.set),
        ):
            await _show_frames(director, window, wake)
    except OSError:
        if window.works:
            raise
        director.do(Command.QUIT)
        await director.over.wait()
        return
    finally:
        waiter.cancel()
    await asyncio.to_thread(window.print_summary, director.scene())


async def _wake_when_over(director: Director, wake: asyncio.Event) -> None:
    await director.over.wait()
    wake.set()


async def _show_frames(director: Director, window: _Window, wake: asyncio.Event) -> None:
    while not director.over.is_set():
        wake.clear()
        if director.over.is_set():
            break
        await asyncio.to_thread(window.draw, director.scene())
        with suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), FRAME)


@final
class _Window:
    """The alternate screen of a terminal. `draw` may run in another thread than the rest."""

    def __init__(self, stream: TextIO) -> None:
        self.works = True
        """False after the terminal has refused to be written to."""
        self._stream = stream
        self._glyphs = glyphs_for(stream.encoding)
        self._console = Console(
            file=stream,
            force_terminal=True,
            force_interactive=True,
            markup=False,
            emoji=False,
            highlight=False,
        )
        self._live: Live | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Change to the alternate screen."""
        with self._lock, self._watched():
            if self._live is None:
                # Some parents leave a terminal non-blocking: then it takes the beginning of a picture only.
                os.set_blocking(self._stream.fileno(), True)
                self._measure()
                self._live = Live(
                    Text(),
                    console=self._console,
                    screen=True,
                    auto_refresh=False,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._live.start()

    def close(self) -> None:
        """Change back to the normal screen."""
        with self._lock, suppress(OSError), self._watched():
            if self._live is not None:
                live, self._live = self._live, None
                live.stop()

    def draw(self, scene: Scene) -> None:
        """Show a picture. Nothing when the window is closed. Raises `OSError` when the terminal is gone."""
        with self._lock, self._watched():
            if self._live is not None:
                width, height = self._measure()
                self._live.update(screen(scene, width, height, self._glyphs), refresh=True)

    def print_summary(self, scene: Scene) -> None:
        """What remains, on the normal screen."""
        with self._lock, suppress(OSError), self._watched():
            width, _ = self._measure()
            self._console.print(summary(scene, min(width, WIDEST_SUMMARY), self._glyphs))

    def _measure(self) -> tuple[int, int]:
        """Columns and lines. They change with the window in which the terminal is."""
        try:
            size = tuple(os.get_terminal_size(self._stream.fileno()))
        except OSError:
            size = (0, 0)
        width, height = (found or usual for found, usual in zip(size, USUAL_SIZE, strict=True))
        self._console.size = ConsoleDimensions(width, height)
        return width, height

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.works = False
            raise


@contextmanager
def _suspendable(window: _Window, mode: TerminalMode, redraw: Callable[[], None]) -> Iterator[None]:
    """Inside, Ctrl-Z gives the terminal back before the process stops, and takes it again when it goes on."""
    if signal.getsignal(signal.SIGTSTP) is not signal.SIG_DFL:  # whoever started this does not want it
        yield
        return
    loop = asyncio.get_running_loop()

    def suspend() -> None:
        window.close()
        mode.restore()
        loop.remove_signal_handler(signal.SIGTSTP)  # the default: to stop
        signal.raise_signal(signal.SIGTSTP)  # returns when the process goes on
        loop.add_signal_handler(signal.SIGTSTP, suspend)
        resume()

    def resume() -> None:
        mode.use_single_keys()
        with suppress(OSError):  # the next picture notices it, too
            window.open()
        redraw()

    loop.add_signal_handler(signal.SIGTSTP, suspend)
    loop.add_signal_handler(signal.SIGCONT, resume)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGCONT)
        loop.remove_signal_handler(signal.SIGTSTP)
