"""Keys from a terminal: which ones are read, and that the terminal is as before afterwards."""

from __future__ import annotations

import asyncio
import os
import termios
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from gateway.demo.command import Command
from gateway.demo.keyboard import Keyboard, KeyReader, single_keys


class Pair(NamedTuple):
    """A terminal, and the hand that types on it."""

    hand: int
    terminal: int


@pytest.fixture
def pair() -> Iterator[Pair]:
    hand, terminal = os.openpty()
    yield Pair(hand, terminal)
    for fd in (hand, terminal):
        try:
            os.close(fd)
        except OSError:  # the test has closed it
            continue


def read(*pieces: bytes) -> str:
    reader = KeyReader()
    return "".join(key for piece in pieces for key in reader.read(piece))


def test_each_command_has_its_key() -> None:
    assert {command.key: command.name for command in Command} == {
        "n": "NEXT",
        "r": "ROLL_BACK",
        "k": "KILL",
        "h": "HANG",
        "p": "PAUSE",
        "q": "QUIT",
    }
    assert Command.of("Q") is Command.QUIT
    assert Command.of("x") is None
    assert all(command.label for command in Command)


@pytest.mark.parametrize(
    "pieces,keys",
    [
        ((b"nrQ",), "nrQ"),
        ((b"n", b"\x1b[A", b"q"), "nq"),  # an arrow
        ((b"\x1bOPp",), "p"),  # F1
        ((b"\x1b[1;5Hq",), "q"),  # Ctrl and Home
        ((b"\x1b[1", b";5H", b"q"), "q"),  # in pieces
        ((b"\x1b", b"[Hk"), "k"),
        ((b"\x1b", b"q"), "q"),  # the key Esc, and then another
        ((b"\x1bq",), ""),  # Alt and q
        ((b"\x1b\x1b[Hk",), "k"),
        ((b"\x00\x03\x04 \t\r\n\x7f\xc3\xa9h",), "h"),
    ],
)
def test_only_keys_are_read_and_no_letter_of_a_sequence(pieces: tuple[bytes, ...], keys: str) -> None:
    assert read(*pieces) == keys


def test_the_terminal_gives_single_keys_and_is_restored(pair: Pair) -> None:
    before = termios.tcgetattr(pair.terminal)
    with single_keys(pair.terminal):
        inside = termios.tcgetattr(pair.terminal)
        assert not inside[3] & (termios.ICANON | termios.ECHO)
        assert inside[3] & termios.ISIG  # Ctrl-C is still a signal
        assert not inside[0] & termios.IXON
        os.write(pair.hand, b"x")
        assert os.read(pair.terminal, 9) == b"x"  # without a newline
    assert termios.tcgetattr(pair.terminal) == before


def test_the_terminal_is_restored_after_an_exception(pair: Pair) -> None:
    before = termios.tcgetattr(pair.terminal)
    with pytest.raises(RuntimeError), single_keys(pair.terminal):
        raise RuntimeError
    assert termios.tcgetattr(pair.terminal) == before


def test_a_terminal_that_a_shell_has_changed_is_changed_again(pair: Pair) -> None:
    before = termios.tcgetattr(pair.terminal)
    with single_keys(pair.terminal) as mode:
        mode.restore()
        assert termios.tcgetattr(pair.terminal) == before
        mode.use_single_keys()
        assert not termios.tcgetattr(pair.terminal)[3] & termios.ECHO
    assert termios.tcgetattr(pair.terminal) == before


def test_what_is_no_terminal_is_refused() -> None:
    read_end, write_end = os.pipe()
    try:
        with pytest.raises(termios.error), single_keys(read_end):
            pass
    finally:
        os.close(read_end)
        os.close(write_end)


async def test_keys_arrive_on_the_loop(pair: Pair) -> None:
    keys: asyncio.Queue[str] = asyncio.Queue()
    with single_keys(pair.terminal), Keyboard(pair.terminal, keys.put_nowait, lambda: None):
        os.write(pair.hand, b"n")
        assert await keys.get() == "n"
        os.write(pair.hand, b"\x1b[Aq")
        assert await keys.get() == "q"
    assert os.get_blocking(pair.terminal)


async def test_a_terminal_that_is_gone_is_reported_once(pair: Pair) -> None:
    ends = []
    ended = asyncio.Event()

    def on_end() -> None:
        ends.append(1)
        ended.set()

    with single_keys(pair.terminal), Keyboard(pair.terminal, lambda _: None, on_end):
        os.close(pair.hand)
        await ended.wait()
    assert ends == [1]
