"""The demonstration on a terminal: views, keys, and the terminal as before at every end."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import cast

import pytest

from gateway.demo.director import Director
from gateway.demo.scene import KeyCommand
from gateway.demo.terminal import is_terminal, keyboard, keys_in, show, single_keys
from tests.demo.scenes import COMPARE
from tests.demo.shown_scene import ShownScene
from tests.demo.terminal import CLEAN, Terminal
from tests.kit.processes import ROOT, TIMEOUT
from tests.kit.waiting import until

ALTERNATE, NORMAL = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"

Showing = Callable[[Terminal, ShownScene], AbstractAsyncContextManager[asyncio.Task[None]]]


@pytest.fixture
def showing(monkeypatch: pytest.MonkeyPatch) -> Showing:
    """The show on a terminal, from its first view on. Afterwards the terminal must be as before."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "80"), ("LINES", "24")):
        monkeypatch.setenv(name, value)

    @asynccontextmanager
    async def entered(terminal: Terminal, director: ShownScene) -> AsyncIterator[asyncio.Task[None]]:
        before = termios.tcgetattr(terminal.fd)
        with terminal.open("r") as entry, terminal.open("w") as output, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", entry)
            patch.setattr(sys, "stdout", output)
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(show(cast(Director, director)))
                await terminal.until("q quit")
                yield task
                async with asyncio.timeout(TIMEOUT):
                    await asyncio.wait([task])
        if terminal.hand >= 0:
            assert termios.tcgetattr(terminal.fd) == before

    return entered


def left_behind(raw: str) -> str:
    """What is on the normal screen afterwards."""
    assert raw.count(ALTERNATE) == raw.count(NORMAL) > 0
    assert raw.rindex(ALTERNATE) < raw.rindex(NORMAL)
    assert raw.rindex(HIDE) < raw.rindex(SHOW)
    return CLEAN.sub("", raw[raw.rindex(NORMAL) :])


async def test_it_shows_views_until_the_end_and_then_what_remains(showing: Showing) -> None:
    director = ShownScene()
    with Terminal() as terminal:
        async with showing(terminal, director):
            first = terminal.raw
            assert ALTERNATE in first
            assert "baremetal  mixed" in CLEAN.sub("", first)
            assert await terminal.until("q quit", len(first))  # again
            director.over.set()
        await terminal.until("skewgate: ")
        await terminal.until("inventory offers")
        remains = left_behind(terminal.raw)
    assert "skewgate: 1932 requests, 1809 answered, 123 refused, lost 0" in remains
    assert "q quit" not in remains


async def test_keys_are_commands_and_show_at_once(showing: Showing) -> None:
    director = ShownScene()
    with Terminal() as terminal:
        async with showing(terminal, director):
            seen = len(terminal.raw)
            terminal.type(b"nx\x1b[AP")
            await terminal.until("PAUSED", seen)
            terminal.type(b"rhq")
        assert [command.key for command in director.commands] == list("nprhq")


async def test_an_exception_of_the_director_leaves_a_normal_terminal(showing: Showing) -> None:
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


async def test_a_cancelled_show_leaves_a_normal_terminal(showing: Showing) -> None:
    director = ShownScene()
    with Terminal() as terminal:
        async with showing(terminal, director) as task:
            task.cancel()
        assert task.cancelled()
        await terminal.until(NORMAL, raw=True)
        left_behind(terminal.raw)


async def test_a_terminal_that_is_gone_quits(showing: Showing) -> None:
    director = ShownScene()
    with Terminal() as terminal, suppress(OSError):  # a stream still holds a part of a view when it is closed
        async with showing(terminal, director):
            terminal.hang_up()
    assert KeyCommand.QUIT in director.commands


async def test_a_terminal_that_takes_nothing_does_not_hold_the_loop(showing: Showing) -> None:
    director = ShownScene()

    async def stands_still() -> bool:
        looks = director.looks
        await asyncio.sleep(1.0)  # several views long
        return director.looks == looks

    with Terminal() as terminal:
        async with showing(terminal, director):
            terminal.read_nothing()
            await until(stands_still)
            terminal.type(b"q")
            await until(director.over.is_set)  # only a loop that runs sees it
            terminal.read_again()


async def test_no_color_is_respected(showing: Showing, monkeypatch: pytest.MonkeyPatch) -> None:
    colour = re.compile(r"\x1b\[(\d+;)*[34][0-7][;m]")
    for value, expected in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", value)
        director = ShownScene(COMPARE)
        with Terminal() as terminal:
            async with showing(terminal, director):
                assert bool(colour.search(terminal.raw)) is expected
                director.over.set()


async def test_what_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
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


# --- keys


def test_each_command_has_its_key() -> None:
    assert {command.key: command.name for command in KeyCommand} == {
        "n": "NEXT",
        "r": "ROLL_BACK",
        "k": "KILL",
        "h": "HANG",
        "p": "PAUSE",
        "q": "QUIT",
    }
    assert KeyCommand.of("Q") is KeyCommand.QUIT
    assert KeyCommand.of("x") is None


@pytest.mark.parametrize(
    "data,keys",
    [
        (b"nrQ", "nrQ"),
        (b"n\x1b[Aq", "nq"),  # an arrow
        (b"\x1bOPp", "p"),  # F1
        (b"\x1b[1;5Hq", "q"),  # Ctrl and Home
        (b"\x1bq", ""),  # Alt and q
        (b"\x1b\x1b[Hk", "k"),
        (b"\x1b", ""),
        (b"\x00\x03\x04 \t\r\n\x7f\xc3\xa9h", "h"),
    ],
)
def test_only_keys_are_read_and_no_letter_of_a_sequence(data: bytes, keys: str) -> None:
    assert keys_in(data) == keys


def test_the_terminal_gives_single_keys_and_is_restored() -> None:
    hand, terminal = os.openpty()
    before = termios.tcgetattr(terminal)
    with single_keys(terminal):
        inside = termios.tcgetattr(terminal)
        assert not inside[3] & (termios.ICANON | termios.ECHO)
        assert inside[3] & termios.ISIG  # Ctrl-C is still a signal
        assert not inside[0] & termios.IXON
        os.write(hand, b"x")
        assert os.read(terminal, 9) == b"x"  # without a newline
    assert termios.tcgetattr(terminal) == before
    assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
    os.close(hand)
    os.close(terminal)


async def test_a_terminal_that_is_gone_is_reported_once() -> None:
    hand, terminal = os.openpty()
    ends: list[int] = []
    with keyboard(terminal, lambda _: None, lambda: ends.append(1)):
        os.close(hand)
        await until(lambda: ends)
    assert ends == [1]
    os.close(terminal)


# --- a process under a shell


@asynccontextmanager
async def under_a_shell(
    script: str, terminal: Terminal, encoding: str = "utf-8"
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`bash` with job control on `terminal`. `$PROGRAM` shows a sample scene."""
    program = f"{sys.executable} -W error -m tests.demo.shown_scene"
    process = await asyncio.create_subprocess_exec(
        *("setsid", "--ctty", "--wait", "bash", "-c", f"set -m\n{script}"),
        stdin=terminal.fd,
        stdout=terminal.fd,
        stderr=terminal.fd,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "PYTHONIOENCODING": encoding, "PROGRAM": program},
    )
    try:
        yield process
        assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_signal_leaves_a_normal_terminal(number: signal.Signals) -> None:
    script = "$PROGRAM; echo status=$?; stty -a"
    with Terminal() as terminal:
        async with under_a_shell(script, terminal):
            await terminal.until("q quit")
            if number is signal.SIGINT:
                terminal.type(b"\x1a\x03")  # Ctrl-Z does nothing
            else:
                os.killpg(os.tcgetpgrp(terminal.hand), number)
            await terminal.until("status=0")
        await terminal.until("echoe")
        assert " -icanon" not in terminal.raw
        assert "lost 0" in left_behind(terminal.raw)


@pytest.mark.processes
async def test_a_resized_terminal_gets_a_view_of_its_size_in_its_encoding() -> None:
    """Also where a parent has exported the size, as shells and test runners do."""
    with Terminal(60, 15) as terminal:
        async with under_a_shell("stty -a; COLUMNS=60 LINES=15 $PROGRAM", terminal, "ascii"):
            seen = await terminal.until("q quit")
            assert "curl" not in terminal.raw
            terminal.resize(100, 40)
            await terminal.until("curl", seen)
            terminal.type(b"q")
        assert terminal.raw.isascii()
        assert "-----" in terminal.raw  # a bar


@pytest.mark.processes
async def test_the_command_runs_on_a_terminal_and_obeys_keys() -> None:
    """The real one, from its first view to what remains."""
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
        assert "lost 0" in left_behind(terminal.raw)


@pytest.mark.processes
async def test_in_the_background_there_is_no_terminal() -> None:
    """Whoever changes the terminal there is stopped by it."""
    with Terminal() as terminal:
        async with under_a_shell("$PROGRAM & wait $!; echo status=$?", terminal):
            await terminal.until("no terminal")
            await terminal.until("status=1")
