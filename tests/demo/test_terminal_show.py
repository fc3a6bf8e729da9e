"""The demonstration on a terminal: pictures, keys, and the terminal as before at every end."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
import termios
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TextIO, cast

import pytest

from gateway.demo.command import Command
from gateway.demo.terminal_show import is_terminal, show
from tests.demo.scenes import COMPARE
from tests.demo.shown_scene import ShownScene
from tests.demo.terminal import CLEAN, Terminal
from tests.kit.processes import ROOT, TIMEOUT

ALTERNATE, NORMAL = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture(autouse=True)
def _usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@asynccontextmanager
async def showing(
    terminal: Terminal, director: ShownScene, encoding: str = "utf-8"
) -> AsyncIterator[asyncio.Task[None]]:
    """The show on `terminal`, from its first picture on. Afterwards the terminal must be as before."""
    before = termios.tcgetattr(terminal.fd)
    with terminal.open("r") as entry, terminal.open("w", encoding) as output:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(show(director, entry, output))
            await terminal.until("q quit")
            yield task
            async with asyncio.timeout(TIMEOUT):
                await asyncio.wait([task])
    if terminal.hand >= 0:
        assert termios.tcgetattr(terminal.fd) == before


def left_behind(raw: str) -> str:
    """What is on the normal screen afterwards."""
    assert raw.count(ALTERNATE) == raw.count(NORMAL) > 0
    assert raw.rindex(ALTERNATE) < raw.rindex(NORMAL)
    assert raw.rindex(HIDE) < raw.rindex(SHOW)
    return CLEAN.sub("", raw[raw.rindex(NORMAL) :])


async def test_it_shows_pictures_until_the_end_and_then_what_remains() -> None:
    director = ShownScene()
    with Terminal() as terminal:
        async with showing(terminal, director):
            first = terminal.raw
            assert ALTERNATE in first
            assert "baremetal  mixed" in CLEAN.sub("", first)
            assert await terminal.until("q quit", len(first))  # again
            director.over.set()
        await terminal.until("skewgate: ")
        remains = left_behind(terminal.raw)
    assert "✓ lost 0 of 1,932 requests" in remains
    assert "q quit" not in remains


async def test_keys_are_commands_and_show_at_once() -> None:
    director = ShownScene()
    with Terminal() as terminal:
        async with showing(terminal, director):
            seen = len(terminal.raw)
            terminal.type(b"nx\x1b[AP")
            await terminal.until("PAUSED", seen)
            terminal.type(b"rhq")
        assert [command.key for command in director.commands] == list("nprhq")


async def test_a_resized_terminal_gets_a_picture_of_its_size() -> None:
    director = ShownScene()
    with Terminal(60, 15) as terminal:
        async with showing(terminal, director):
            assert "curl" not in CLEAN.sub("", terminal.raw)
            terminal.resize(100, 40)
            await terminal.until("curl", len(terminal.raw))
            director.over.set()


async def test_a_terminal_that_somebody_has_made_non_blocking_gets_whole_pictures() -> None:
    director = ShownScene()
    with Terminal(250, 90) as terminal:
        os.set_blocking(terminal.fd, False)
        with terminal.open("r") as entry, os.fdopen(os.dup(terminal.fd), "w", encoding="utf-8") as output:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(show(director, entry, output))
                await terminal.until("q quit")
                assert director.commands == []
                director.over.set()


async def test_an_exception_of_the_director_leaves_a_normal_terminal() -> None:
    director = ShownScene()
    with Terminal() as terminal:
        before = termios.tcgetattr(terminal.fd)
        with pytest.raises(ExceptionGroup) as caught:
            async with showing(terminal, director):
                terminal.type(b"k")
        assert str(caught.value.exceptions[0]) == "as wanted"
        assert termios.tcgetattr(terminal.fd) == before
        await terminal.until(NORMAL, raw=True)
        left_behind(terminal.raw)


async def test_a_cancelled_show_leaves_a_normal_terminal() -> None:
    director = ShownScene()
    with Terminal() as terminal:
        async with showing(terminal, director) as task:
            task.cancel()
        assert task.cancelled()
        await terminal.until(NORMAL, raw=True)
        left_behind(terminal.raw)


async def test_a_terminal_that_is_gone_quits() -> None:
    director = ShownScene()
    with (
        Terminal() as terminal,
        suppress(OSError),
    ):  # a stream still holds a part of a picture when it is closed
        async with showing(terminal, director):
            terminal.hang_up()
    assert Command.QUIT in director.commands


class SlowStream:
    """A terminal's stream that takes no picture until `free` is set."""

    def __init__(self, stream: TextIO) -> None:
        self.full = asyncio.Event()
        self.free = threading.Event()
        self.timed_out = False
        self._stream = stream
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if "rolling upgrade" in text:
            self._loop.call_soon_threadsafe(self.full.set)
            self.timed_out |= not self.free.wait(TIMEOUT)
        return self._stream.write(text)


async def test_a_terminal_that_takes_nothing_does_not_hold_the_loop() -> None:
    director = ShownScene()
    with Terminal() as terminal, terminal.open("r") as entry, terminal.open("w") as output:
        slow = SlowStream(output)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(show(director, entry, cast(TextIO, slow)))
            await slow.full.wait()
            terminal.type(b"q")
            await director.over.wait()
            slow.free.set()  # only a loop that runs comes here before the time is up
        await terminal.until("skewgate: ")
    assert not slow.timed_out


@pytest.mark.parametrize("encoding,expected", [("ascii", "+ lost 0"), ("utf-8", "✓ lost 0")])
async def test_the_encoding_of_the_terminal_is_respected(encoding: str, expected: str) -> None:
    director = ShownScene()
    with Terminal() as terminal:
        async with showing(terminal, director, encoding):
            assert expected in CLEAN.sub("", terminal.raw)
            director.over.set()


async def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    colour = re.compile(r"\x1b\[(\d+;)*[34][0-7][;m]")
    for value, expected in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", value)
        director = ShownScene(COMPARE)
        with Terminal() as terminal:
            async with showing(terminal, director):
                assert bool(colour.search(terminal.raw)) is expected
                director.over.set()


async def test_what_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with Terminal() as terminal, terminal.open("r") as entry, terminal.open("w") as output:
        assert is_terminal(entry, output)
        assert not is_terminal(entry, io.StringIO())
        assert not is_terminal(io.StringIO(), output)
        assert not is_terminal(None, output)
        for term in ("dumb", "unknown", ""):
            monkeypatch.setenv("TERM", term)
            assert not is_terminal(entry, output)
        monkeypatch.delenv("TERM")
        assert not is_terminal(entry, output)
        monkeypatch.setenv("TERM", "xterm")
        output.close()
        assert not is_terminal(entry, output)


# --- a process under a shell


@asynccontextmanager
async def under_a_shell(script: str, terminal: Terminal) -> AsyncIterator[asyncio.subprocess.Process]:
    """`bash` with job control on `terminal`. `$PROGRAM` shows a sample scene."""
    process = await asyncio.create_subprocess_exec(
        *("setsid", "--ctty", "--wait", "bash", "-c", f"set -m\n{script}"),
        stdin=terminal.fd,
        stdout=terminal.fd,
        stderr=terminal.fd,
        cwd=ROOT,
        env={**os.environ, "PROGRAM": f"{sys.executable} -W error -m tests.demo.shown_scene"},
    )
    try:
        yield process
        assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.processes
async def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again() -> None:
    script = """
        $PROGRAM; stty -a; echo ready
        read line; echo line=$line
        fg > /dev/null; echo status=$?; stty -a
    """
    with Terminal() as terminal:
        async with under_a_shell(script, terminal):
            await terminal.until("q quit")
            terminal.type(b"\x1a")
            seen = await terminal.until("ready")
            assert NORMAL in terminal.raw
            terminal.type(b"quite\n")  # as a line, with echo: nothing of it is a command
            seen = await terminal.until("line=quite", seen)
            await terminal.until("q quit", seen)
            assert terminal.raw.count(ALTERNATE) == 2
            terminal.type(b"q")
            await terminal.until("status=0", seen)
        await terminal.until("echoe", seen)
        assert " -icanon" not in terminal.raw
        assert " -echo " not in terminal.raw
        assert left_behind(terminal.raw)


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_signal_leaves_a_normal_terminal(number: signal.Signals) -> None:
    script = "$PROGRAM; echo status=$?; stty -a"
    with Terminal() as terminal:
        async with under_a_shell(script, terminal):
            await terminal.until("q quit")
            if number is signal.SIGINT:
                terminal.type(b"\x03")
            else:
                os.killpg(os.tcgetpgrp(terminal.hand), number)
            await terminal.until("status=0")
        await terminal.until("echoe")
        assert " -icanon" not in terminal.raw
        assert "lost 0 of" in left_behind(terminal.raw)


@pytest.mark.processes
async def test_the_command_runs_on_a_terminal_and_obeys_keys() -> None:
    """The real one, from its first picture to what remains."""
    script = f"{sys.executable} -W error -m gateway demo --seed 5; echo status=$?; stty -a"
    with Terminal() as terminal:
        async with under_a_shell(script, terminal):
            seen = await terminal.until("baremetal  uniform  nothing holds the offer")
            seen = await terminal.until("0 of 12", seen)
            terminal.type(b"p")
            seen = await terminal.until("PAUSED", seen)
            terminal.type(b"n")
            await terminal.until("1 of 12", seen)
            await terminal.until("upgrading", seen)
            terminal.type(b"q")
            await terminal.until("status=0", seen)
        await terminal.until("echoe")
        assert " -icanon" not in terminal.raw
        assert "lost 0 of" in left_behind(terminal.raw)


@pytest.mark.processes
async def test_in_the_background_there_is_no_terminal() -> None:
    """Whoever changes the terminal there is stopped by it."""
    with Terminal() as terminal:
        async with under_a_shell("$PROGRAM & wait $!; echo status=$?", terminal):
            await terminal.until("no terminal")
            await terminal.until("status=1")
