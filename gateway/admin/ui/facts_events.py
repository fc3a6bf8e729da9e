"""The facts about what happened: events of `telemetry.history` as lines of the timeline. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from gateway.admin.ui.model import EventFacts
from gateway.telemetry.history import Event

OPERATOR: Final = "operator"
OTHER: Final = "other"

KINDS: Final = {
    "skewgate.offer": "offer",
    "skewgate.prober": "backend",
    "skewgate.ejection": "backend",
    "skewgate.discovery": "backend",
    "skewgate.resolver": "backend",
    "skewgate.reload": "config",
    "skewgate.tls": "config",
    "skewgate.agreement": "agreement",
    "skewgate.documents": "agreement",
}
"""What an event is about, by its logger."""


def event_facts(events: Iterable[Event]) -> tuple[EventFacts, ...]:
    """In the same order. The text goes without the service's name in front, which stands beside it."""
    return tuple(_event(each) for each in events)


def _event(event: Event) -> EventFacts:
    kind = OPERATOR if event.by_operator else KINDS.get(event.logger, OTHER)
    text = event.text
    if event.service:
        text = text.removeprefix(f"{event.service}/" if event.backend else f"{event.service}: ")
    return EventFacts(event.number, event.at, kind, _level(event.level), event.service, text)


def _level(level: int) -> str:
    if level >= logging.ERROR:
        return "error"
    return "warning" if level >= logging.WARNING else "info"
