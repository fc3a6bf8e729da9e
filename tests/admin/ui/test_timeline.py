"""Where events lie along the line of hours."""

from __future__ import annotations

import pytest

from gateway.admin.ui.model import EventFacts
from gateway.admin.ui.timeline import DAY, HOUR, MAX_TICKS, Timeline, timeline

NOON = 1_790_000_000.0 // DAY * DAY + 12 * HOUR


def event(at: float, *, kind: str = "offer", level: str = "info", number: int = 1) -> EventFacts:
    return EventFacts(number, at, kind, level, "baremetal", "text")


def test_nothing_has_no_line() -> None:
    assert timeline(()) == Timeline((), (), "")


def test_one_event_lies_within_an_hour() -> None:
    found = timeline([event(NOON + 60.0)])

    assert [tick.text for tick in found.ticks] == ["11:15", "11:30", "11:45", "12:00", "12:15"]
    assert [tick.at for tick in found.ticks] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert found.lanes[0].marks[0].at == pytest.approx(0.767)
    assert found.summary.startswith("1 event from 2")


@pytest.mark.parametrize("seconds", [0.0, 600.0, HOUR, 5 * HOUR, DAY, 9 * DAY, 100 * DAY, 5000 * DAY])
def test_any_time_has_few_ticks_and_holds_all_events(seconds: float) -> None:
    found = timeline([event(NOON), event(NOON - seconds, number=2)])

    assert 2 <= len(found.ticks) <= MAX_TICKS + 1
    assert all(0.0 <= mark.at <= 1.0 for mark in found.lanes[0].marks)
    assert found.ticks[0].at == 0.0
    assert found.ticks[-1].at == pytest.approx(1.0)


def test_kinds_have_lanes_and_the_worst_lies_above() -> None:
    events = [
        event(NOON, kind="other"),
        event(NOON, level="error"),
        event(NOON - 60.0, level="warning"),
        event(NOON - 120.0),
    ]

    found = timeline(events)

    assert [lane.kind for lane in found.lanes] == ["offer", "other"]
    assert [mark.level for mark in found.lanes[0].marks] == ["info", "warning", "error"]
    assert "among them 1 error and 1 warning" in found.summary


def test_what_cannot_be_told_apart_is_one_mark() -> None:
    found = timeline([event(NOON + number / 1000.0, number=number) for number in range(100)])

    assert len(found.lanes[0].marks) == 1
    assert "100 events" in found.summary
