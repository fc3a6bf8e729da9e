"""Runs the commands of a page in a shell, in their order, and compares what they print.

A `console` block has commands after `$ ` and below each what it prints: these lines must come in this order,
whatever comes between them. `…` says to the reader that something does. A comment before a block says more:

    <!-- file: NAME -->       the block is a file
    <!-- terminal: NAME -->   the block's last command goes on running, in a terminal of this name
    <!-- stop: NAME -->       Ctrl-C in that terminal, before the block
    <!-- until -->            its commands are repeated until they print what stands below them
    <!-- tested: FILE -->     another test runs the block: that one

The commands run in a network of their own (`unshare`), so the ports of a page are free. Needs root.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.architecture.source import ROOT
from tests.docs.pages import page

PATIENCE: Final = 30.0
"""Seconds until a command must have printed what stands below it."""
PROJECT: Final = ("config", "deploy", "docs")
"""Folders that the commands of a page may name."""
ELLIPSIS: Final = "…"

_BLOCK: Final = re.compile(r"((?:^<!-- [^\n]+ -->\n)*)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIRECTIVE: Final = re.compile(r"<!-- (\w+)(?:: (.+?))? -->")
_VARYING: Final = re.compile(
    r"\d+(\.\d+)? s ago *|\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d\.\d+Z)?|\d\d? [A-Z][a-z]{2}( \d\d:\d\d)?$"
)


class Command(NamedTuple):
    """A command, and the lines below it."""

    text: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One block of a page and what the comments before it say."""

    language: str
    text: str
    directives: dict[str, str] = field(default_factory=dict)

    def commands(self) -> Iterator[Command]:
        """The commands of a `console` block."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            first, *shown = part.splitlines()
            while first.endswith("\\"):
                first = f"{first}\n{shown.pop(0)}"
            yield Command(first, tuple(line for line in shown if line))


def steps(path: str) -> list[Step]:
    """What a page has to run: its `console` blocks and its files."""
    found = []
    for comments, language, text in _BLOCK.findall(page(path)):
        directives = dict(_DIRECTIVE.findall(comments))
        if language == "console" or "file" in directives:
            found.append(Step(language, text, directives))
    return found


def missing_line(shown: tuple[str, ...], printed: str) -> str | None:
    """The first shown line that does not come where it should; None: they all come."""
    lines = iter([_plain(line) for line in printed.splitlines()])
    for line in shown:
        if line != ELLIPSIS and not any(_plain(line) == other for other in lines):
            return line
    return None


def _plain(line: str) -> str:
    return _VARYING.sub("#", line).rstrip()


class Shell:
    """A folder with the project's commands, and terminals in a network of their own."""

    def __init__(self, folder: Path, namespace: str) -> None:
        self._folder = folder
        self._namespace = namespace
        self._terminals: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
        for name in PROJECT:
            (folder / name).symlink_to(ROOT / name)
        run = folder / "run"
        run.write_text(f'#!/bin/sh\nexec "{ROOT}/run" "$@"\n', encoding="utf-8")
        run.chmod(0o755)

    def follow(self, step: Step) -> None:
        """Do what a block says. An `AssertionError` has the command and what it printed."""
        if "file" in step.directives:
            (self._folder / step.directives["file"]).write_text(step.text, encoding="utf-8")
            return
        if "stop" in step.directives:
            self._stop(step.directives["stop"])
        *finite, last = step.commands()
        for command in finite:
            self._run(command, repeat="until" in step.directives)
        if "terminal" in step.directives:
            self._start(step.directives["terminal"], last)
        else:
            self._run(last, repeat="until" in step.directives)

    def close(self) -> None:
        """End what goes on running."""
        for name in tuple(self._terminals):
            self._stop(name)

    def _shell(self, command: str) -> list[str]:
        return ["ip", "netns", "exec", self._namespace, "sh", "-c", command]

    def _run(self, command: Command, *, repeat: bool) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run(
                self._shell(command.text),
                cwd=self._folder,
                env={**os.environ, "COLUMNS": "200"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE + 60,
            )
            missing = missing_line(command.shown, done.stdout + done.stderr)
            if missing is None or not repeat or time.monotonic() > end:
                break
            time.sleep(0.2)  # it is asked again: nothing tells when the answer changes
        printed = f"$ {command.text}\n{done.stdout}{done.stderr}"
        assert missing is None, f"{missing!r} does not come in:\n{printed}"
        assert command.shown or done.returncode == 0, printed

    def _start(self, name: str, command: Command) -> None:
        output = self._folder / f"{name}.terminal"
        with output.open("wb") as file:
            process = subprocess.Popen(
                self._shell(f"exec {command.text}"),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._terminals[name] = (process, output)
        end = time.monotonic() + PATIENCE
        while (missing := missing_line(command.shown, output.read_text(encoding="utf-8"))) is not None:
            printed = f"$ {command.text}\n{output.read_text(encoding='utf-8')}"
            assert process.poll() is None, f"it has ended:\n{printed}"
            assert time.monotonic() < end, f"{missing!r} does not come in:\n{printed}"
            time.sleep(0.05)  # a file does not tell when it grows

    def _stop(self, name: str) -> None:
        process, output = self._terminals.pop(name)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"Ctrl-C does not end {name}:\n{output.read_text()}") from None


@contextmanager
def shell(folder: Path, namespace: str) -> Iterator[Shell]:
    """A shell in `folder`, in a network `namespace` that is made and removed here."""
    assert shutil.which("ip"), "iproute2 is missing: .ci/packages"
    subprocess.run(["ip", "netns", "add", namespace], check=True)
    try:
        subprocess.run(["ip", "-n", namespace, "link", "set", "lo", "up"], check=True)
        opened = Shell(folder, namespace)
        try:
            yield opened
        finally:
            opened.close()
    finally:
        subprocess.run(["ip", "netns", "delete", namespace], check=True)
