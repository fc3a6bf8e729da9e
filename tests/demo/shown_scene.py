"""A program that shows a sample scene on its terminal until somebody quits. For the tests of the terminal."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

from gateway.demo.director import Director
from gateway.demo.scene import KeyCommand, Scene
from gateway.demo.terminal import is_terminal, show
from gateway.runtime import process
from tests.demo.scenes import COMPARE, MIDDLE


class ShownScene:
    """A director that runs nothing. `p` pauses, `k` raises, `q` quits."""

    def __init__(self, scene: Scene = MIDDLE) -> None:
        self.over = asyncio.Event()
        self.commands: list[KeyCommand] = []
        self.broken = False
        self.looks = 0
        self._scene = scene

    def scene(self) -> Scene:
        self.looks += 1
        if self.broken:
            raise RuntimeError("as wanted")
        return self._scene

    def do(self, command: KeyCommand) -> None:
        self.commands.append(command)
        if command is KeyCommand.PAUSE:
            self._scene = self._scene._replace(paused=not self._scene.paused)
        elif command is KeyCommand.KILL:
            self.broken = True
        elif command is KeyCommand.QUIT:
            self.over.set()


async def _main() -> None:
    director = ShownScene(COMPARE if "compare" in sys.argv else MIDDLE)
    with process.handle_signals(director.over.set):
        await show(cast(Director, director))


if __name__ == "__main__":
    if not is_terminal(sys.stdin, sys.stdout):
        sys.exit("no terminal")
    process.run_in_loop(_main())
