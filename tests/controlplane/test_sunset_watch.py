"""The day of a sunset comes while the gateway runs: one error in the log, and nothing else."""

from __future__ import annotations

import logging
from datetime import date

import pytest

from gateway.controlplane.sunset_watch import log_sunsets
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.snapshot import Snapshot
from tests.core.builders import snapshot, upto, v

LINE = Line(v("1.5"), date(2030, 1, 1))
LATER = Line(v("1.5"), date(2030, 1, 2))
BEFORE, AT, AFTER = LINE.timestamp - 1.0, LINE.timestamp, LATER.timestamp
TEXT = "toy: the sunset of the versions below 1.5 has come; they are still served"


def service(sunset: Line | None) -> Snapshot:
    return snapshot({"a": upto(9)}, lifecycle=Lifecycle(Line(v("1.5"), date(2020, 1, 1)), sunset))


@pytest.mark.parametrize(
    "moments, errors",
    [
        ([(LINE, BEFORE), (LINE, BEFORE)], 0),
        ([(LINE, BEFORE), (LINE, AT), (LINE, AT), (LINE, AFTER)], 1),
        ([(LINE, AT), (LINE, AFTER)], 0),
        ([(LINE, BEFORE), (LATER, AT)], 0),
        ([(LINE, BEFORE), (LATER, AT), (LATER, AFTER)], 1),
        ([(LATER, AT), (None, AT), (LINE, AT), (LINE, AFTER)], 0),
    ],
    ids=["ahead", "comes", "before the start", "moved", "moved and comes", "before a reload"],
)
def test_it_is_logged_once_when_it_comes(
    moments: list[tuple[Line | None, float]], errors: int, caplog: pytest.LogCaptureFixture
) -> None:
    ahead: set[tuple[str, Line]] = set()
    for sunset, now in moments:
        ahead = log_sunsets(service(sunset), ahead, now)

    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [(logging.ERROR, TEXT)] * errors
