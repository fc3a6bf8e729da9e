"""Where events lie along the line of hours."""

from __future__ import annotations

import logging

import pytest

from gateway.admin.ui.model import EventRow
from gateway.admin.ui.timeline import HOUR, MAX_TICKS, SHORTEST, Span, Timeline, event_rows, timeline
from gateway.core.days import DAY
from gateway.telemetry.history import Event

NOON = 1_790_000_000.0 // DAY * DAY + 12 * HOUR


def event(
    at: float, *, kind: str = "offer", level: str = "info", number: int = 1, outage: bool | None = None
) -> EventRow:
    return EventRow(number, at, kind, level, "baremetal", "text", outage=outage)


def drawn(*events: EventRow, now: float = 0.0) -> Timeline:
    """Events in the order in which they happened."""
    return timeline(events[::-1], now)


def test_nothing_has_no_line() -> None:
    assert drawn() == Timeline((), (), (), "")


def test_the_line_begins_at_its_first_event() -> None:
    found = drawn(event(NOON + 60.0))

    assert [(tick.text, tick.at) for tick in found.ticks] == [("12:01", 0.0), ("12:02", 0.5), ("12:03", 1.0)]
    assert [mark.at for mark in found.lanes[0].marks] == [0.0]
    assert found.summary.startswith("1 event from 2")


@pytest.mark.parametrize("seconds", [0.0, 45.0, 600.0, HOUR, 5 * HOUR, DAY, 9 * DAY, 100 * DAY, 5000 * DAY])
def test_any_time_has_few_ticks_and_holds_all_events(seconds: float) -> None:
    found = drawn(event(NOON - seconds - 7.0), event(NOON, number=2))

    assert 2 <= len(found.ticks) <= MAX_TICKS + 2
    assert all(0.0 <= tick.at <= 1.0 for tick in found.ticks)
    assert all(0.0 <= mark.at <= 1.0 for mark in found.lanes[0].marks)
    assert found.ticks[0].at == found.lanes[0].marks[0].at == 0.0


def test_kinds_have_lanes_and_the_worst_lies_above() -> None:
    found = drawn(
        event(NOON - 120.0),
        event(NOON - 60.0, level="warning"),
        event(NOON, level="error"),
        event(NOON, kind="other"),
    )

    assert [lane.kind for lane in found.lanes] == ["offer", "other"]
    assert [mark.level for mark in found.lanes[0].marks] == ["info", "warning", "error"]
    assert "among them 1 error and 1 warning" in found.summary


def test_what_cannot_be_told_apart_is_one_mark() -> None:
    found = drawn(
        *(event(NOON + number / 1000.0, number=number) for number in range(100)), event(NOON + HOUR)
    )

    assert len(found.lanes[0].marks) == 2
    assert "101 events" in found.summary


def test_an_outage_is_a_span_of_the_line() -> None:
    found = drawn(
        event(NOON),
        event(NOON + 100.0, number=2, outage=True),
        event(NOON + 150.0, number=3, outage=True),
        event(NOON + 200.0, number=4, outage=False),
        event(NOON + 400.0, number=5),
    )

    assert found.outages == (Span(0.25, 0.5),)
    assert "1 outage" in found.summary


def test_an_outage_without_an_end_goes_on() -> None:
    found = drawn(event(NOON), event(NOON + 100.0, number=2, outage=True), now=NOON + 1000.0)

    assert found.outages == (Span(0.1, 1.0),)


def test_an_outage_whose_beginning_is_forgotten_begins_with_the_line() -> None:
    found = drawn(event(NOON), event(NOON + SHORTEST, number=2, outage=False))

    assert found.outages == (Span(0.0, 1.0),)


# --- equal events -------------------------------------------------------------------------------------------


def failed(number: int, text: str = "no answer", *, by_operator: bool = False) -> Event:
    backend = f"api-{number}"
    line = f"baremetal/{backend}: down; check http://10.0.0.{number}:6385: {text}"
    return Event(
        number, NOON + number, logging.WARNING, "skewgate.prober", "baremetal", backend, line, by_operator
    )


def test_warnings_that_differ_in_the_backend_alone_are_one_event() -> None:
    [found] = event_rows([failed(number) for number in range(9, 0, -1)])

    assert found.text == "api-9, api-8, api-7, api-6 and 5 more: down: no answer"
    assert (found.number, found.at, found.times) == (1, NOON + 9, 9)


def test_events_that_differ_are_told_one_by_one() -> None:
    events = [failed(3), failed(2, "connection refused"), failed(1, by_operator=True)]

    assert [each.times for each in event_rows(events)] == [1, 1, 1]
