"""What is printed without a terminal, from scenes."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from gateway.demo import report
from gateway.demo.director import Director
from gateway.demo.scene import DemoEvent, KeyCommand, Scene
from tests.demo.scenes import COMPARE


def test_a_line_tells_the_gateway_first_and_what_the_balancer_lost() -> None:
    scene = COMPARE
    gateway, balancer = scene.fronts

    line = report.line(scene)

    assert f"lost {gateway.lost} | " in line
    assert line.endswith(f"| {balancer.name}: baremetal shows 1.1-1.90, lost {balancer.lost}")


def test_the_summary_tells_why_requests_were_lost() -> None:
    scene = COMPARE
    _, balancer = scene.fronts

    text = "\n".join(report.summary(scene))

    reason, count = balancer.losses[0]
    assert f"lost {balancer.lost}" in text
    assert f"{reason} ({count})" in text
    assert all(f"{each.kind:<14}" in text for each in balancer.clients)


class PlayedScenes:
    """Plays scenes, one for each look, and is over after the last."""

    def __init__(self, scenes: list[Scene]) -> None:
        self.over = asyncio.Event()
        self.told_to_quit = False
        self._scenes = scenes

    def scene(self) -> Scene:
        if len(self._scenes) == 1:
            self.over.set()
            return self._scenes[0]
        return self._scenes.pop(0)

    def do(self, command: KeyCommand) -> None:
        self.told_to_quit = command is KeyCommand.QUIT
        self.over.set()


async def test_each_event_is_printed_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "EVERY", 0.0)
    one, two, three = (
        DemoEvent(number, 1.0, text, "step") for number, text in enumerate(("one", "two", "two"), 1)
    )
    scenes = [
        COMPARE._replace(events=events) for events in ((), (one,), (one, two), (two, three), (two, three))
    ]

    await report.report(cast(Director, PlayedScenes(scenes)))

    printed = [line for line in capsys.readouterr().out.splitlines() if " step: " in line]
    assert [line.split()[-1] for line in printed] == ["one", "two", "two"]


async def test_without_a_reader_the_demonstration_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", write)
    director = PlayedScenes([COMPARE, COMPARE])

    with pytest.raises(BrokenPipeError):
        await report.report(cast(Director, director))

    assert director.told_to_quit
