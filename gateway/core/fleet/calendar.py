"""The calendar of a service: the dated moments of its configuration, each with its sentence for the log.

`controlplane.calendar_watch` logs an entry once, when its moment comes. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Literal, NamedTuple, TypeAlias, final

from gateway.core.days import DAY
from gateway.core.fleet.bridge import WARNED
from gateway.core.fleet.brownouts import moment
from gateway.core.fleet.service import Service

Level: TypeAlias = Literal["info", "warning", "error"]


@final
class Entry(NamedTuple):
    """A moment that a configuration names, and what happens then."""

    at: float
    """Seconds since the epoch."""
    level: Level
    """Severity of the line in the log."""
    sentence: str


def calendar(service: Service, after: float) -> Iterator[Entry]:
    """Entries of a service later than `after`, in order. The iterator may be endless."""
    once = [*_sunset(service), *_own_paces(service), *_bridges(service)]
    return merge(sorted(entry for entry in once if entry.at > after), _brownouts(service, after))


def _sunset(service: Service) -> Iterator[Entry]:
    if (sunset := service.sunset) is not None:
        below = service.dialect.scheme.format(sunset.below)
        came = f"the sunset of the versions below {below} has come"
        if service.lifecycle is not None and service.lifecycle.enforce:
            yield Entry(sunset.timestamp, "warning", f"{came}: it raises the floor")
        else:
            yield Entry(sunset.timestamp, "error", f"{came}; they are still served")


def _own_paces(service: Service) -> Iterator[Entry]:
    for pace in service.paces:
        if pace.until is not None:
            clients = ", ".join(pace.clients)
            text = f"the own pace of {clients} has ended: offered what all others are from now on"
            yield Entry(pace.ends_at, "warning", text)


def _bridges(service: Service) -> Iterator[Entry]:
    for bridge in service.bridges:
        text = f"days the bridge ends: {bridge.sentence()}; then what they ask for is refused"
        yield from (
            Entry(bridge.ends_at - days * DAY, "warning", f"in {days} {text}") for days in (WARNED, 7)
        )
        text = f"the bridge of {', '.join(bridge.clients)} has ended: what they ask for is refused now"
        yield Entry(bridge.ends_at, "warning", text)


def _brownouts(service: Service, after: float) -> Iterator[Entry]:
    lifecycle = service.lifecycle
    while lifecycle is not None and (window := lifecycle.window_at(after)) is not None:
        if window.begin > after:
            text = f"deprecated versions are refused until {moment(window.end)} (brown-out)"
            yield Entry(window.begin, "warning", text)
        yield Entry(window.end, "info", "the brown-out has ended: deprecated versions are served again")
        after = window.end
