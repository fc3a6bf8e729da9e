"""The demonstration as lines of text: one a second, one for each event, and a summary."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from gateway.demo.director import Director
from gateway.demo.scene import DemoEvent, FrontScene, KeyCommand, Scene

EVERY: Final = 1.0
"""Seconds between two lines with the present counts."""


async def report(director: Director) -> None:
    """Print lines until the demonstration is over, then the summary. Raises `BrokenPipeError`."""
    printed = 0
    try:
        print_lines(introduction(director.scene()))
        while not director.over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(director.over.wait(), EVERY)
            scene = director.scene()
            news = [event for event in scene.events if event.number > printed]
            print_lines(map(event_line, news))
            printed += len(news)
            if not director.over.is_set():
                print_lines([line(scene)])
        print_lines(summary(director.scene()))
    except BrokenPipeError:
        director.do(KeyCommand.QUIT)
        await director.over.wait()
        raise


def print_lines(lines: Iterable[str]) -> None:
    """Print lines and flush each one."""
    for each in lines:
        print(each, flush=True)


def introduction(scene: Scene) -> list[str]:
    """Return the first lines: the length, the operations page, and commands to try."""
    gateway = scene.fronts[0]
    backends = sum(len(each.backends) for each in gateway.services)
    length = "until Ctrl-C" if scene.length is None else f"{scene.length:g} s"
    return [
        f"skewgate demo: {backends} API servers, {len(gateway.clients)} kinds of clients, a rolling upgrade",
        f"  course   {length}, seed {scene.seed}",
        f"  page     {scene.page}",
        f"  try it   {scene.curl_served}",
        f"           {scene.curl_newest}   (406 until all servers are upgraded)",
        "",
    ]


def line(scene: Scene) -> str:
    """Format the present state of the demonstration as one line."""
    gateway = scene.fronts[0]
    parts = [
        ", ".join(f"{each.name} {each.offer} {each.phase}" for each in gateway.services),
        f"answered {gateway.answered}, refused {gateway.refused}, lost {gateway.lost}",
    ]
    for other in scene.fronts[1:]:
        service = other.services[0]
        parts.append(f"{other.name}: {service.name} shows {service.offer}, lost {other.lost}")
    return f"{scene.seconds:6.1f} s  {' | '.join(parts)}"


def event_line(event: DemoEvent) -> str:
    """Format an event of the demonstration as one line."""
    return f"{event.seconds:6.1f} s  {event.kind + ':':<9}{event.text}"


def summary(scene: Scene) -> list[str]:
    """Return the lines of the demonstration's summary."""
    lines = ["", f"Summary after {scene.seconds:.0f} s, seed {scene.seed}"]
    for front in scene.fronts:
        lines += _front(front)
    lines += [f"  {each.name} offers {each.offer}: {each.phase}" for each in scene.fronts[0].services]
    return lines


def _front(front: FrontScene) -> list[str]:
    counts = f"{front.answered} answered, {front.refused} refused, lost {front.lost}"
    lines = [f"  {front.name}: {front.requests} requests, {counts}"]
    lines += [
        f"    {each.kind:<14}  {each.answered:>5} answered  {each.refused:>4} refused  {each.lost:>4} lost"
        f"  {each.last_loss}".rstrip()
        for each in front.clients
    ]
    if front.losses:
        lines.append(f"    lost: {', '.join(f'{reason} ({count})' for reason, count in front.losses)}")
    return lines
