"""The demonstration without a terminal: a line each second, a line for each event, and a summary.

It shows what the director says and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol, final

from gateway.demo.scene import Event, FrontScene, Scene
from gateway.runtime.terminal import plain

EVERY: Final = 1.0
"""Seconds between two lines about the present."""


class Director(Protocol):
    """Who runs the demonstration."""

    @property
    def over(self) -> asyncio.Event:
        """Set when the demonstration has ended."""
        ...

    def scene(self) -> Scene:
        """What is to be seen now."""
        ...

    def quit(self) -> None:
        """End it."""
        ...


async def report(director: Director) -> None:
    """Print until it is over, and the summary. Ends the demonstration, and raises `BrokenPipeError`, when
    the reader of the output has closed it."""
    try:
        printed = _Printed()
        _print(introduction(director.scene()))
        while not director.over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(director.over.wait(), EVERY)
            scene = director.scene()
            _print(printed.news(scene.events))
            if not director.over.is_set():
                _print([line(scene)])
        _print(summary(director.scene()))
    except BrokenPipeError:
        director.quit()
        await director.over.wait()
        raise


def introduction(scene: Scene) -> list[str]:
    """What is there to be seen, and to be tried."""
    gateway = scene.fronts[0]
    backends = sum(len(each.backends) for each in gateway.services)
    length = "until Ctrl-C" if scene.length is None else f"{scene.length:g} s"
    return [
        f"skewgate demo: {backends} API servers, {len(gateway.clients)} kinds of clients, a rolling upgrade",
        f"  course   {length}, seed {scene.seed}",
        f"  page     {scene.page}",
        f"  try it   {scene.curl_served}",
        f"           {scene.curl_refused}   (406 until all are upgraded)",
        "",
    ]


def line(scene: Scene) -> str:
    """The present, on one line."""
    gateway = scene.fronts[0]
    offers = ", ".join(f"{each.name} {each.offer} {each.phase}" for each in gateway.services)
    rate = sum(backend.rate for each in gateway.services for backend in each.backends)
    parts = [
        offers,
        f"answered {gateway.answered}, refused {gateway.refused}, lost {gateway.lost}, {rate:.0f}/s",
    ]
    for other in scene.fronts[1:]:
        service = other.services[0]
        parts.append(f"{plain(other.name)}: {service.name} shows {service.offer}, lost {other.lost}")
    return f"{scene.seconds:6.1f} s  {' | '.join(parts)}"


def event_line(event: Event) -> str:
    """An event, on one line."""
    return f"{event.seconds:6.1f} s  {event.kind + ':':<9}{plain(event.text)}"


def summary(scene: Scene) -> list[str]:
    """What was seen, in a few lines."""
    lines = ["", f"Summary after {scene.seconds:.0f} s, seed {scene.seed}"]
    for front in scene.fronts:
        lines += _front(front)
    lines += [f"  {each.name} offers {each.offer}: {each.phase}" for each in scene.fronts[0].services]
    return lines


def _front(front: FrontScene) -> list[str]:
    counts = f"{front.answered} answered, {front.refused} refused, lost {front.lost}"
    lines = [f"  {plain(front.name)}: {front.requests} requests, {counts}"]
    lines += [
        f"    {each.kind:<14}  {each.answered:>5} answered  {each.refused:>4} refused  {each.lost:>4} lost"
        f"  {plain(each.last_loss)}".rstrip()
        for each in front.clients
    ]
    if front.losses:
        lines.append(f"    lost: {', '.join(f'{plain(reason)} ({count})' for reason, count in front.losses)}")
    return lines


@final
class _Printed:
    """Which events were printed."""

    def __init__(self) -> None:
        self._last: Event | None = None

    def news(self, events: Iterable[Event]) -> list[str]:
        """Lines of the events that are new."""
        found = list(events)
        new = found
        for number, event in enumerate(found):
            if event is self._last:
                new = found[number + 1 :]
        if found:
            self._last = found[-1]
        return [event_line(event) for event in new]


def _print(lines: Iterable[str]) -> None:
    for each in lines:
        print(each, flush=True)
