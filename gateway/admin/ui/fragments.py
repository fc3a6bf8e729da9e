"""Fragments of a page, and the order of the rows in its lists. A page has all of them, and a stream sends
those that have changed. Pure: values of `model` in, values out; `rendering` makes HTML of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from gateway.admin.ui.model import EventRow, Overview, ServicePage
from gateway.admin.ui.timeline import timeline
from gateway.core.versions.axis import Tick

BACKENDS: Final = "backend-rows"
SERVICES: Final = "service-rows"
EVENTS: Final = "event-rows"
"""Ids of the lists on the pages, whose rows are fragments."""

NARROW_AXIS: Final = 190.0
WIDE_AXIS: Final = 400.0
"""Minimum width of the axis of versions in pixels, on a telephone and on a desktop."""

DIGIT: Final = 7.0
GAP: Final = 8.0
"""Pixels of a character of an axis label, and between two labels."""


class Fragment(NamedTuple):
    """Fragment of a page: the macro that renders it, with its arguments. Equal fragments look the same."""

    macro: str
    values: tuple[object, ...]


@final
@dataclass(frozen=True, slots=True)
class PageFragments:
    """All fragments of a page at one moment, and the order of its rows."""

    fragments: Mapping[str, Fragment]
    lists: Mapping[str, tuple[str, ...]]
    """Ids of a page's rows in order, by the id of their list."""


class AxisLabel(NamedTuple):
    """Label of an axis of versions."""

    at: float
    text: str
    anchor: str
    """Alignment of the label: `start`, `middle` or `end`. A label at an edge must not be cut."""
    only_wide: bool
    """Whether the label has room on a wide screen only."""


def service_fragments(page: ServicePage) -> PageFragments:
    """Makes the fragments of the page of one service."""
    name, offer = page.name, page.offer
    labels = axis_labels(page.labels)
    lists = {
        BACKENDS: tuple(f"backend-{each.key}" for each in page.backends),
        EVENTS: tuple(f"event-{each.number}" for each in page.events),
    }
    fragments = {
        "health": Fragment("health", (page.health,)),
        "offer": Fragment("offer", (offer, page.guaranteed, page.reachable, labels)),
        "controls": Fragment("service_controls", (name, offer.pin, page.releases, page.commanding)),
        "traffic": Fragment("traffic", (len(page.backends), page.rate, page.in_flight)),
        "sparkline": Fragment("sparkline", (page.traffic,)),
        "groups": Fragment("groups", (page.groups, labels, offer.all_bars)),
        "axis": Fragment("axis", (labels, offer.all_bars)),
    }
    for row, backend in zip(lists[BACKENDS], page.backends, strict=True):
        fragments[row] = Fragment("backend", (name, offer.all_bars, backend, page.commanding))
    fragments |= {
        "demand": Fragment("demand", (page.demand, page.demand_seconds)),
        "refusals": Fragment("refusals", (page.refusals,)),
        "usage": Fragment("usage", (page.usage, labels, offer.all_bars)),
        "processes": Fragment("processes", (page.replicas,)),
        **_events(page.events, page.minute, with_service=False),
    }
    return PageFragments(fragments, lists)


def overview_fragments(overview: Overview) -> PageFragments:
    """Makes the fragments of the page of all services."""
    rows = tuple(f"service-{each.key}" for each in overview.services)
    fragments = {"health": Fragment("health", (overview.health,))}
    for row, service in zip(rows, overview.services, strict=True):
        fragments[row] = Fragment("service", (service,))
    fragments |= {
        "processes": Fragment("processes", (overview.replicas,)),
        **_events(overview.events, overview.minute, with_service=True),
    }
    return PageFragments(
        fragments, {SERVICES: rows, EVENTS: tuple(f"event-{each.number}" for each in overview.events)}
    )


def _events(events: tuple[EventRow, ...], now: float, *, with_service: bool) -> dict[str, Fragment]:
    found = {"timeline": Fragment("timeline", (timeline(events, now),))}
    for each in events:
        found[f"event-{each.number}"] = Fragment("event", (each, with_service))
    return found


def axis_labels(labels: tuple[Tick, ...]) -> tuple[AxisLabel, ...]:
    """Chooses the labels of an axis that have room, the first ones first."""
    narrow = _with_room(labels, NARROW_AXIS)
    wide = _with_room(dict.fromkeys((*narrow, *labels)), WIDE_AXIS)
    return tuple(AxisLabel(each.at, each.text, _anchor(each), each not in narrow) for each in sorted(wide))


def _with_room(labels: Iterable[Tick], width: float) -> list[Tick]:
    """Chooses labels in their order while there is room on an axis of `width` pixels."""
    chosen: dict[Tick, tuple[float, float]] = {}
    for label in labels:
        begin, end = _ends(label, width)
        others = chosen.values()
        if all(end + GAP <= other_begin or other_end + GAP <= begin for other_begin, other_end in others):
            chosen[label] = begin, end
    return list(chosen)


def _ends(label: Tick, width: float) -> tuple[float, float]:
    """Begin and end of an axis label, in pixels."""
    at, length = label.at * width, len(label.text) * DIGIT
    anchor = _anchor(label)
    begin = at if anchor == "start" else at - length if anchor == "end" else at - length / 2
    return begin, begin + length


def _anchor(label: Tick) -> str:
    """Anchor of a label: its outer end near an edge, by the narrow axis, since one page is for all widths."""
    half = len(label.text) * DIGIT / 2 / NARROW_AXIS
    if label.at < half:
        return "start"
    return "end" if label.at > 1.0 - half else "middle"
