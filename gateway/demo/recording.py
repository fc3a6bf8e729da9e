"""The course of a demonstration as values, from which `picture` draws: who told what, and what was lost when.

A `Recorder` is given the scenes as they come and keeps what changes, in bounded memory. A `Recording` can be
written to a file of JSON and read again. Nothing here draws, and nothing reads a clock: scenes have the time.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Final, NamedTuple, final

from gateway.demo.report import Director
from gateway.demo.scene import BackendScene, FrontScene, Scene

INTERVAL: Final = 0.1
"""Seconds between two samples: more could not be told apart in the picture."""
LOOK: Final = 0.05
"""Seconds between two scenes that are taken: a change of the fleet is dated as exactly."""
MAX_SAMPLES: Final = 400
"""When there are more, every second one is dropped and the interval doubles: a long run stays bounded."""
MAX_STAGES: Final = 100
"""Of one server. What comes later is not recorded."""


class Sample(NamedTuple):
    """What stood at one moment; each tuple has an item for each front."""

    seconds: float
    offers: tuple[str, ...]
    """The range that clients see; empty: none yet."""
    lost: tuple[int, ...]
    """Since the start."""


class Stage(NamedTuple):
    """What a server was, from `begin` on, until its next stage begins."""

    begin: float
    release: str
    state: str
    """As `BackendScene.state`."""
    serves: str
    """The range that the gateway learned in this stage; empty: none."""


class Track(NamedTuple):
    """A server, over time."""

    service: str
    name: str
    stages: tuple[Stage, ...]


class Result(NamedTuple):
    """A front at the end."""

    name: str
    requests: int
    answered: int
    refused: int
    lost: int
    losses: tuple[tuple[str, int], ...]


class Recording(NamedTuple):
    """A demonstration: the offers of its first service, the servers and the sums of all."""

    seconds: float
    seed: int
    service: str
    """The first one."""
    samples: tuple[Sample, ...]
    tracks: tuple[Track, ...]
    results: tuple[Result, ...]
    """The gateway first."""


@final
class Recorder:
    """Give it a scene whenever there is a new one, at least ten times a second."""

    def __init__(self) -> None:
        self._interval = INTERVAL
        self._samples: list[Sample] = []
        self._stages: dict[tuple[str, str], list[Stage]] = {}
        """By service and server."""
        self._last: Scene | None = None

    def add(self, scene: Scene) -> None:
        """Keep what is new in `scene`. A scene without a front is ignored."""
        if not scene.fronts or not all(front.services for front in scene.fronts):
            return
        self._last = scene
        if not self._samples or scene.seconds >= self._samples[-1].seconds + self._interval:
            offers = tuple(_offer(front) for front in scene.fronts)
            lost = tuple(front.lost for front in scene.fronts)
            self._samples.append(Sample(round(scene.seconds, 2), offers, lost))
            if len(self._samples) > MAX_SAMPLES:
                del self._samples[1::2]
                self._interval *= 2
        for service in scene.fronts[0].services:
            for backend in service.backends:
                self._follow(
                    self._stages.setdefault((service.name, backend.name), []), backend, scene.seconds
                )

    def recording(self) -> Recording | None:
        """Everything until now; None: there was no scene."""
        scene = self._last
        if scene is None:
            return None
        results = tuple(
            Result(each.name, each.requests, each.answered, each.refused, each.lost, each.losses)
            for each in scene.fronts
        )
        tracks = tuple(Track(*names, tuple(stages)) for names, stages in self._stages.items())
        service = scene.fronts[0].services[0].name
        return Recording(round(scene.seconds, 2), scene.seed, service, tuple(self._samples), tracks, results)

    @staticmethod
    def _follow(stages: list[Stage], backend: BackendScene, seconds: float) -> None:
        new = Stage(round(seconds, 2), backend.release, backend.state, backend.serves)
        if stages and stages[-1][1:3] == new[1:3]:
            # The gateway learns a moment after the change what the server serves now: the last word counts.
            stages[-1] = stages[-1]._replace(serves=new.serves)
        elif len(stages) < MAX_STAGES:
            stages.append(new)


def _offer(front: FrontScene) -> str:
    """The range on offer, where there is one: what has no bar is a word such as `nothing yet`."""
    service = front.services[0]
    return service.offer if service.offer_bars else ""


async def record(director: Director) -> Recording | None:
    """Record until it is over."""
    recorder = Recorder()
    while not director.over.is_set():
        recorder.add(director.scene())
        with suppress(TimeoutError):
            await asyncio.wait_for(director.over.wait(), LOOK)
    recorder.add(director.scene())
    return recorder.recording()


def to_json(recording: Recording) -> str:
    """JSON with one sample a line, so that files can be compared."""
    parts = []
    for key, value in recording._asdict().items():
        rows = [json.dumps(each, ensure_ascii=False) for each in value] if isinstance(value, tuple) else None
        text = json.dumps(value) if rows is None else "[\n" + ",\n".join(rows) + "\n]"
        parts.append(f"{json.dumps(key)}: {text}")
    return "{" + ",\n".join(parts) + "}\n"


def from_json(text: str) -> Recording:
    """What `to_json` wrote. Raises `ValueError`, `KeyError` or `TypeError` for anything else."""
    data: dict[str, Any] = json.loads(text)
    return Recording(
        float(data["seconds"]),
        int(data["seed"]),
        str(data["service"]),
        tuple(Sample(at, tuple(offers), tuple(lost)) for at, offers, lost in data["samples"]),
        tuple(
            Track(service, name, tuple(Stage(*each) for each in stages))
            for service, name, stages in data["tracks"]
        ),
        tuple(
            Result(name, requests, answered, refused, lost, tuple((why, count) for why, count in losses))
            for name, requests, answered, refused, lost, losses in data["results"]
        ),
    )
