"""What the log of a whole gateway says of an upgrade and of the way back: lines to act on."""

# ruff: noqa: N802 -- ids of scenarios are written with capitals

from __future__ import annotations

import logging

import pytest

from tests.scenarios.upgrading import FROM, NEW, OLD, TO, from_ver, to_ver, upgrade_of

ABOVE = f"1.{OLD + 1}-1.{NEW}"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about the offer."""
    records = [record for record in caplog.records if record.name == "skewgate.offer"]
    return [f"{record.levelname} {record.getMessage()}" for record in records]


async def test_UPGRADE_B_each_step_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    async with upgrade_of(from_ver(), from_ver()) as upgrade:
        assert said(caplog)[0] == "INFO baremetal: offer none, phase unknown"
        assert said(caplog)[-1] == f"INFO baremetal: offer none -> {FROM}, phase uniform"
        caplog.clear()
        await upgrade.becomes(1, to_ver())
        await upgrade.becomes(2, to_ver())
        await upgrade.until(TO, "uniform")
        held, settling, risen = said(caplog)

    assert held == (
        f"INFO baremetal: offer {FROM}, phase mixed; {ABOVE} is held back by api-2 ({FROM}): upgrade or drain"
    )
    assert settling.startswith(f"INFO baremetal: offer {FROM}, phase settling; {ABOVE} will be offered in ")
    assert risen == f"INFO baremetal: offer {FROM} -> {TO}, phase uniform"


async def test_UPGRADE_C_a_pin_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        caplog.clear()
        await upgrade.order("PUT", "/ceiling", {"version": f"1.{OLD}"})
        await upgrade.order("DELETE", "/ceiling")

    assert said(caplog) == [
        (
            f"INFO baremetal: pinned to 1.{OLD}, offer {TO} -> {FROM}, phase capped; "
            f"the pin holds it; `skewgate unpin baremetal` offers {TO}"
        ),
        f"INFO baremetal: unpinned, no ceiling, offer {FROM} -> {TO}, phase uniform",
    ]


async def test_UPGRADE_back_late_the_warning_says_whom_it_meets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        for version, times in ((f"1.{NEW}", 3), ("latest", 2), (f"1.{OLD + 1}", 2), (f"1.{OLD}", 4)):
            for _ in range(times):
                assert (await upgrade.stand.at(version)).status == 200
        await upgrade.becomes(1, from_ver())
        await upgrade.becomes(2, from_ver())
        assert upgrade.now()[0] == FROM

    assert [line for line in said(caplog) if not line.startswith("INFO ")] == [
        (
            f"WARNING baremetal: offer {TO} -> {FROM}, phase uniform; nobody serves {ABOVE} any more, "
            f"7 requests above 1.{OLD} served since the start: their clients are refused now"
        )
    ]
