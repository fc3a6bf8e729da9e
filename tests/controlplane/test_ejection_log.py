"""One line for each ejection, told together when they come too often."""

from __future__ import annotations

import logging

import pytest

from gateway.controlplane.ejection_log import EjectionLog
from gateway.controlplane.flap_damping import BURST
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.snapshot import Snapshot
from tests.controlplane.fakes import service


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    caplog.clear()
    return found


async def test_each_change_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.ejection")
    log = EjectionLog(lambda: 0.0)

    log.changed("api/a", "ejected for 10 s: no response came in time", ejected=True)
    log.changed("api/a", "no longer ejected", ejected=False)

    assert lines(caplog) == [
        "WARNING api/a: ejected for 10 s: no response came in time",
        "INFO api/a: no longer ejected",
    ]
    log.close()
    assert lines(caplog) == []


async def test_one_that_goes_to_and_fro_is_told_together(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.ejection")
    now = 0.0
    log = EjectionLog(lambda: now)
    for _ in range(BURST):
        log.changed("api/a", "ejected", ejected=True)
    lines(caplog)
    for number in range(20):
        now += 0.1
        log.changed("api/a", f"change {number}", ejected=number % 2 == 1)
    assert lines(caplog) == []

    log.close()

    assert lines(caplog) == ["WARNING api/a: changed 20 times in the last 2 s, now change 19"]


async def test_what_a_reload_removed_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    log = EjectionLog(lambda: 0.0)
    for _ in range(BURST + 1):
        log.changed("baremetal/b", "ejected", ejected=True)
    before, after = (
        Snapshot.configured([service(Backend(name, "127.0.0.1", 1))], now=0.0) for name in ("b", "c")
    )
    log.on_change(before, before)
    log.on_change(before, after)
    lines(caplog)

    log.close()

    assert lines(caplog) == []
