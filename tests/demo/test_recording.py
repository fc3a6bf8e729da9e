"""What is kept of a demonstration for its picture: samples, stages of servers, sums; in bounded memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.demo.recording import (
    MAX_SAMPLES,
    MAX_STAGES,
    Recorder,
    Recording,
    Sample,
    Stage,
    Track,
    from_json,
    record,
    to_json,
)
from gateway.demo.scene import FrontScene, Scene, ServiceScene
from tests.demo.scenes import COMPARE, MIDDLE


def with_backend(scene: Scene, seconds: float, **changes: Any) -> Scene:
    """The scene at another time, with changes of its first backend."""
    front = scene.fronts[0]
    first, *others = front.services[0].backends
    service = front.services[0]._replace(backends=(first._replace(**changes), *others))
    fronts = (front._replace(services=(service, *front.services[1:])), *scene.fronts[1:])
    return scene._replace(seconds=seconds, fronts=fronts)


def with_lost(scene: Scene, seconds: float, lost: int) -> Scene:
    return scene._replace(seconds=seconds, fronts=tuple(each._replace(lost=lost) for each in scene.fronts))


def recorded(*scenes: Scene) -> Recording:
    recorder = Recorder()
    for scene in scenes:
        recorder.add(scene)
    recording = recorder.recording()
    assert recording is not None
    return recording


def test_a_sample_has_the_offer_and_the_losses_of_each_front() -> None:
    recording = recorded(with_lost(COMPARE, 1.0, 0), with_lost(COMPARE, 1.05, 3), with_lost(COMPARE, 2.0, 5))

    assert recording.samples == (
        Sample(1.0, ("1.1-1.58", "1.1-1.90"), (0, 0)),
        Sample(2.0, ("1.1-1.58", "1.1-1.90"), (5, 5)),
    )
    assert (recording.seconds, recording.seed, recording.service) == (2.0, 7, "baremetal")
    assert [(each.name, each.lost) for each in recording.results] == [
        ("skewgate", 5),
        ("HAProxy 2.6.12, round robin", 5),
    ]


def test_what_has_no_bar_is_no_offer() -> None:
    def nothing(front: FrontScene) -> FrontScene:
        service: ServiceScene = front.services[0]._replace(offer="nothing yet", offer_bars=())
        return front._replace(services=(service,))

    recording = recorded(MIDDLE._replace(fronts=tuple(nothing(each) for each in MIDDLE.fronts)))

    assert recording.samples[0].offers == ("",)


def test_a_stage_ends_when_release_or_state_changes_and_has_the_last_range_that_was_learned() -> None:
    recording = recorded(
        with_backend(MIDDLE, 1.0, release="old", state="running", serves="1.1-1.58"),
        with_backend(MIDDLE, 2.0, release="old", state="upgrading", serves="1.1-1.58"),
        with_backend(MIDDLE, 3.0, release="new", state="running", serves="1.1-1.58"),
        with_backend(MIDDLE, 4.0, release="new", state="running", serves="1.1-1.90"),
    )

    assert recording.tracks[0] == Track(
        "baremetal",
        "api-1",
        (
            Stage(1.0, "old", "running", "1.1-1.58"),
            Stage(2.0, "old", "upgrading", "1.1-1.58"),
            Stage(3.0, "new", "running", "1.1-1.90"),
        ),
    )
    assert [each.service for each in recording.tracks] == ["baremetal"] * 4 + ["inventory"] * 2


def test_memory_is_bounded_and_the_whole_course_stays() -> None:
    states = ("running", "killed")
    scenes = [with_backend(MIDDLE, each / 4, state=states[each % 2]) for each in range(5_000)]
    recording = recorded(*scenes)

    moments = [each.seconds for each in recording.samples]
    assert MAX_SAMPLES / 2 <= len(moments) <= MAX_SAMPLES
    assert moments == sorted(moments)
    assert moments[0] == 0.0
    assert moments[-1] > 1_200
    assert len(recording.tracks[0].stages) == MAX_STAGES


def test_without_a_scene_there_is_no_recording() -> None:
    recorder = Recorder()
    recorder.add(MIDDLE._replace(fronts=()))

    assert recorder.recording() is None


def test_what_is_written_is_read_again() -> None:
    recording = recorded(with_lost(COMPARE, 1.0, 0), with_backend(COMPARE, 2.0, serves='"\n\u2028<'))

    assert from_json(to_json(recording)) == recording


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"seconds": 1, "seed": 1, "service": "", "samples": [[1]]}']
)
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        from_json(text)


async def test_it_is_recorded_until_it_is_over() -> None:
    class Director:
        """Over at the third look."""

        over = asyncio.Event()
        looks = 0

        def scene(self) -> Scene:
            self.looks += 1
            if self.looks == 3:
                self.over.set()
            return MIDDLE._replace(seconds=float(self.looks))

        def quit(self) -> None:
            raise AssertionError

    recording = await record(Director())

    assert recording is not None
    assert [each.seconds for each in recording.samples] == [1.0, 2.0, 3.0, 4.0]
