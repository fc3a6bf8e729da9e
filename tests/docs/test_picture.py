"""The picture of README.md is drawn from a recorded run, and README.md says in words what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.images import demo
from tests.docs.pages import page
from tests.kit.processes import call


@pytest.fixture
def recording() -> demo.Recording:
    return demo.read(demo.RECORDING.read_text(encoding="utf-8"))


def test_the_words_of_the_readme_are_those_of_the_recording(recording: demo.Recording) -> None:
    assert f'alt="{demo.headline(recording)}. {demo.setting(recording)}"' in page("README.md")


def test_the_recording_is_one_of_a_whole_upgrade(recording: demo.Recording) -> None:
    assert all(0 < each.stopped < each.upgraded < recording.length for each in recording.servers)
    for front in (recording.ours, recording.balancer):
        assert sum(front.losses) == front.lost == sum(count for _, count in front.reasons)
        assert len(front.shown) >= recording.length - 2


def test_the_pictures_are_drawn_from_it(tmp_path: Path) -> None:
    demo.main(tmp_path)

    for name in demo.SCHEMES:
        drawn = (tmp_path / f"demo-{name}.svg").read_text(encoding="utf-8")
        assert drawn == (demo.FOLDER / f"demo-{name}.svg").read_text(encoding="utf-8")


def test_what_is_no_recording_is_refused() -> None:
    with pytest.raises(ValueError, match="not a recording"):
        demo.read("Summary after 60 s\n")


@pytest.mark.engines
async def test_a_run_of_today_can_be_drawn() -> None:
    ended = await call("demo", "--compare", "--for", "2", "--seed", "7")

    made = demo.read(ended.out)
    assert len(made.servers) == 6
    assert made.ours.lost == 0
    assert made.balancer.name.startswith("HAProxy")
    demo.draw(made, demo.SCHEMES["light"])
