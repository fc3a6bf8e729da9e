"""Single keys from a terminal, on the event loop.

While it is used, the terminal neither waits for the end of a line nor shows what is typed, and Ctrl-S does
not stop the output. Ctrl-C and Ctrl-Z are signals as always. Whatever ends the use, the terminal is as
before. This module decides nothing about keys.
"""

from __future__ import annotations

import asyncio
import os
import select
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from types import TracebackType
from typing import Final, Self, final

READ_SIZE: Final = 256
"""Bytes in one turn of the loop. Nobody types as many."""

_LOCAL_FLAGS: Final = 3
_INPUT_FLAGS: Final = 0
_CONTROL_CHARACTERS: Final = 6


class _State(Enum):
    """Where in a sequence of bytes the reader is."""

    KEY = auto()
    ESCAPE = auto()
    """After ESC."""
    SEQUENCE = auto()
    """Between `ESC [` and the letter that ends it."""
    ONE_MORE = auto()
    """After `ESC O`: one byte ends it."""


@final
class KeyReader:
    """The keys in what a terminal sends. Arrows and function keys are sequences with letters in them: they
    are left out, also when a sequence comes in pieces."""

    def __init__(self) -> None:
        self._state = _State.KEY

    def read(self, data: bytes) -> Iterator[str]:
        """The printable ASCII characters that were typed. ESC at the end of `data` was the key, or the
        beginning of a sequence whose rest is late: what follows tells."""
        if self._state is _State.ESCAPE and data[:1] not in (b"[", b"O"):
            self._state = _State.KEY
        for byte in data:
            if self._state is _State.KEY and 0x20 < byte < 0x7F:
                yield chr(byte)
            else:
                self._state = self._next(byte)

    def _next(self, byte: int) -> _State:
        if byte == 0x1B:
            return _State.ESCAPE
        if self._state is _State.ESCAPE:
            return {0x5B: _State.SEQUENCE, 0x4F: _State.ONE_MORE}.get(byte, _State.KEY)
        if self._state is _State.SEQUENCE and not 0x40 <= byte <= 0x7E:
            return _State.SEQUENCE
        return _State.KEY


@final
class TerminalMode:
    """How the terminal `fd` treats what is typed. Raises `termios.error` when `fd` is no terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before = termios.tcgetattr(fd)

    def use_single_keys(self) -> None:
        """Change it, also when a shell has changed it back meanwhile. Nothing if the terminal is gone."""
        with suppress(termios.error):
            mode = termios.tcgetattr(self._fd)
            mode[_LOCAL_FLAGS] = mode[_LOCAL_FLAGS] & ~(termios.ICANON | termios.ECHO) | termios.ISIG
            mode[_INPUT_FLAGS] &= ~termios.IXON
            mode[_CONTROL_CHARACTERS][termios.VMIN] = 1
            mode[_CONTROL_CHARACTERS][termios.VTIME] = 0
            termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)

    def restore(self) -> None:
        """As it was before. What was typed and not read is gone: it was not meant for a shell."""
        with suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._before)


@contextmanager
def single_keys(fd: int) -> Iterator[TerminalMode]:
    """Inside, the terminal `fd` gives each key at once and shows none. Raises `termios.error` when `fd` is no
    terminal."""
    mode = TerminalMode(fd)
    try:
        mode.use_single_keys()
        yield mode
    finally:
        mode.restore()


@final
class Keyboard:
    """Calls `on_key` with each key from the terminal `fd`, and `on_end` once when the terminal is gone. A
    context manager, to be entered on the loop, on which it calls them.

    A thread waits for keys. A loop of libuv would make the terminal non-blocking to wait for it, and so
    for the shell, and for whoever writes to it.
    """

    def __init__(self, fd: int, on_key: Callable[[str], None], on_end: Callable[[], None]) -> None:
        self._fd = fd
        self._on_key = on_key
        self._on_end = on_end
        self._reader = KeyReader()
        self._active = False

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._stopped, self._stop = os.pipe()
        self._active = True
        self._thread = threading.Thread(target=self._wait, name="keyboard", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._active = False
        os.close(self._stop)  # the thread sees the end of the pipe
        self._thread.join()
        os.close(self._stopped)

    def _wait(self) -> None:
        """In the thread: read until the end of the terminal, or of the use."""
        data = b"-"
        while data:
            ready, _, _ = select.select([self._fd, self._stopped], [], [])
            if self._stopped in ready:
                return
            try:
                data = os.read(self._fd, READ_SIZE)
            except OSError:  # the terminal was closed
                data = b""
            self._loop.call_soon_threadsafe(self._take, data)

    def _take(self, data: bytes) -> None:
        if not self._active:
            return
        if not data:
            self._on_end()
        for key in self._reader.read(data):
            self._on_key(key)
