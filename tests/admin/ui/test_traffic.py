"""The requests of the last hour as a row of bars."""

from __future__ import annotations

from gateway.admin.ui.traffic import FAINTEST, MINUTES, Minute, Traffic, traffic
from gateway.telemetry.recent import TrafficCounts


def test_nothing_counted_is_an_empty_row() -> None:
    assert traffic(()) == Traffic((), 0, 0, 0, 0)


def test_the_newest_minute_is_at_the_right_end() -> None:
    found = traffic([TrafficCounts(50, 10), TrafficCounts(100, 0)])

    assert found == Traffic((Minute(0.967, 0.5, 0.1), Minute(0.983, 1.0, 0.0)), 150, 10, 2, 100)


def test_a_quiet_minute_has_no_bar() -> None:
    assert [each.at for each in traffic([TrafficCounts(1), TrafficCounts(), TrafficCounts(1)]).minutes] == [
        0.95,
        0.983,
    ]


def test_one_error_among_many_requests_is_seen() -> None:
    assert traffic([TrafficCounts(100_000, 1)]).minutes[0].server_errors == FAINTEST


def test_no_more_than_an_hour_is_drawn() -> None:
    found = traffic([TrafficCounts(1)] * (MINUTES + 7))

    assert (found.length, found.total, found.minutes[0].at) == (MINUTES, MINUTES, 0.0)
