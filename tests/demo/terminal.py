"""A terminal for tests: its far end, where somebody types and reads."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import struct
import termios
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO, cast

from tests.kit.processes import TIMEOUT

CLEAN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal of a size. A context manager, on the loop."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.hand, self.fd = os.openpty()
        self.raw = ""
        """Everything that was written to it."""
        self._came = asyncio.Event()
        self.resize(width, height)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def open(self, mode: str, encoding: str = "utf-8") -> TextIO:
        """A stream of its own on the terminal: `r` or `w`."""
        return cast(TextIO, Path(os.ttyname(self.fd)).open(mode, encoding=encoding))

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self.hand, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()
        os.close(self.fd)

    def hang_up(self) -> None:
        """The far end goes away, as when a window is closed."""
        if self.hand >= 0:
            asyncio.get_running_loop().remove_reader(self.hand)
            os.close(self.hand)
            self.hand = -1

    def read_nothing(self) -> None:
        """The far end takes no output any more, until `read_again`."""
        asyncio.get_running_loop().remove_reader(self.hand)

    def read_again(self) -> None:
        asyncio.get_running_loop().add_reader(self.hand, self._read)

    def type(self, keys: bytes) -> None:
        os.write(self.hand, keys)

    async def until(self, text: str, since: int = 0, *, raw: bool = False) -> int:
        """Wait until `text` was written after `since`. `raw`: it may have escape sequences, which are left
        out otherwise. Returns the length of everything that was written by then."""
        try:
            async with asyncio.timeout(TIMEOUT):
                while text not in (self.raw[since:] if raw else CLEAN.sub("", self.raw[since:])):
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} never came after:\n{self.raw[since:]}") from None
        return len(self.raw)

    def _read(self) -> None:
        try:
            data = os.read(self.hand, 65536)
        except OSError:  # nobody has it open at the near end
            asyncio.get_running_loop().remove_reader(self.hand)
            return
        self.raw += data.decode(errors="replace")
        self._came.set()
