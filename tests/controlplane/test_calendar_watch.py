"""Dated moments of the configuration come while the gateway runs: each is logged once, and nothing else."""

from __future__ import annotations

import logging
from datetime import date
from time import monotonic

import pytest

from gateway.controlplane.calendar_watch import CalendarWatch
from gateway.controlplane.snapshot_holder import SnapshotHolder
from gateway.core.days import DAY
from gateway.core.fleet.bridge import Bridge, BridgeMatch
from gateway.core.fleet.calendar import calendar
from gateway.core.fleet.fleet import Raise
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.pace import Pace
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from tests.core.builders import service, v
from tests.kit.waiting import until

DEPRECATED = Line(v("1.5"), date(2020, 1, 1))
LINE = Line(v("1.5"), date(2030, 1, 1))
LATER = Line(v("1.5"), date(2030, 1, 2))
BEFORE, AT, AFTER = LINE.timestamp - 1.0, float(LINE.timestamp), float(LATER.timestamp)
TEXT = "toy: the sunset of the versions below 1.5 has come; they are still served"


def with_sunset(sunset: Line | None) -> Service:
    return service("a", lifecycle=Lifecycle(DEPRECATED, sunset))


@pytest.mark.parametrize(
    "moments, errors",
    [
        ([(LINE, BEFORE), (LINE, BEFORE)], 0),
        ([(LINE, BEFORE), (LINE, AT), (LINE, AT), (LINE, AFTER)], 1),
        ([(LINE, AT), (LINE, AFTER)], 0),
        ([(LINE, BEFORE), (LATER, BEFORE), (LATER, AT)], 0),
        ([(LINE, BEFORE), (LATER, BEFORE), (LATER, AT), (LATER, AFTER)], 1),
        ([(LATER, AT), (None, AT), (LINE, AT), (LINE, AFTER)], 0),
        ([(LINE, BEFORE), (LINE, AFTER), (LATER, AFTER)], 1),
    ],
    ids=["ahead", "comes", "before the start", "moved", "moved and comes", "before a reload", "asleep"],
)
async def test_it_is_logged_once_when_it_comes(
    moments: list[tuple[Line | None, float]], errors: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Each moment: the configuration, in force from then on, and the time."""
    (first, now), *rest = moments
    holder = SnapshotHolder(Snapshot.configured([with_sunset(first)], now=0.0))
    watch = CalendarWatch(holder, lambda: now)
    watch.look()
    before = first
    for sunset, now in rest:  # noqa: B007 - the clock of the watch reads it
        if sunset is before:
            watch.look()
        else:
            holder.put_in_force(holder.configured([with_sunset(sunset)]))
            holder.notify_now()
        before = sunset
    watch.close()

    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [(logging.ERROR, TEXT)] * errors


async def test_an_own_pace_ends_with_its_last_day(caplog: pytest.LogCaptureFixture) -> None:
    """The watch looks at the moment itself, not a minute later."""
    paces = (Pace(("cron", "loop"), v("1.5"), date(1970, 1, 2)), Pace(("slow",), v("1.2")))
    holder = SnapshotHolder(Snapshot.configured([service("a", paces=paces)], now=0.0))
    started = monotonic()
    watch = CalendarWatch(holder, lambda: 2 * DAY - 0.05 + monotonic() - started)
    watch.look()
    await until(lambda: caplog.records)
    watch.close()

    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "toy: the own pace of cron, loop has ended: offered what all others are from now on")
    ]


def test_a_bridge_is_warned_of_30_and_7_days_before_and_at_its_end() -> None:
    bridge = Bridge(("ci", "old"), BridgeMatch.NEAREST_LATER, date(1970, 4, 10))
    entries = [*calendar(service("a", bridges=(bridge,)), 0.0)]

    is_bridged = "ci and old are bridged to the nearest later version until 1970-04-10"
    assert [(entry.at / DAY, entry.level, entry.sentence) for entry in entries] == [
        (70, "warning", f"in 30 days the bridge ends: {is_bridged}; then what they ask for is refused"),
        (93, "warning", f"in 7 days the bridge ends: {is_bridged}; then what they ask for is refused"),
        (100, "warning", "the bridge of ci, old has ended: what they ask for is refused now"),
    ]


@pytest.mark.parametrize("alone", [True, False])
async def test_an_enforced_sunset_raises_the_floor_when_it_comes(
    alone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Unless the gateway is one of several replicas, which do that together."""
    one, now = service("a", lifecycle=Lifecycle(None, LINE, enforce=True)), BEFORE
    holder = SnapshotHolder(Snapshot.configured([one], now=0.0))
    watch = CalendarWatch(holder, lambda: now, alone=alone)
    watch.look()
    assert holder.current.views["toy"].offer.floor is None
    now = AT
    watch.look()
    assert holder.current.views["toy"].offer.floor == (LINE.below if alone else None)
    holder.apply("toy", Raise(None))
    watch.look()
    watch.close()

    assert holder.current.views["toy"].offer.floor is None
    text = "toy: the sunset of the versions below 1.5 has come: it raises the floor"
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("WARNING", text)]
