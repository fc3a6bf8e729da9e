"""The log of a whole gateway during an upgrade and a roll-back: lines that operators can act on."""

# ruff: noqa: N802 -- ids of scenarios are written with capitals

from __future__ import annotations

import logging

import pytest

from tests.scenarios.upgrade import FROM, NEW, OLD, TO, from_ver, to_ver, upgrade_of

ABOVE = f"1.{OLD + 1}-1.{NEW}"


def offer_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log lines about the offer."""
    records = [record for record in caplog.records if record.name == "skewgate.offer"]
    return [f"{record.levelname} {record.getMessage()}" for record in records]


async def test_UPGRADE_B_every_step_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    async with upgrade_of(from_ver(), from_ver()) as upgrade:
        assert offer_lines(caplog)[0] == "INFO baremetal: offer none, phase unknown"
        assert offer_lines(caplog)[-1] == f"INFO baremetal: offer none -> {FROM}, phase uniform"
        caplog.clear()
        await upgrade.replace_backend(1, to_ver())
        await upgrade.replace_backend(2, to_ver())
        await upgrade.until(TO, "uniform")
        held, stabilizing, raised = offer_lines(caplog)

    assert held == (
        f"INFO baremetal: offer {FROM}, phase mixed; {ABOVE} is held back by api-2 ({FROM}): upgrade or drain"
    )
    assert stabilizing.startswith(
        f"INFO baremetal: offer {FROM}, phase stabilizing; {ABOVE} will be offered in "
    )
    assert raised == f"INFO baremetal: offer {FROM} -> {TO}, phase uniform"


async def test_UPGRADE_C_pin_and_unpin_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        caplog.clear()
        await upgrade.command("PUT", "/ceiling", {"version": f"1.{OLD}"})
        await upgrade.command("DELETE", "/ceiling")

    assert offer_lines(caplog) == [
        (
            f"INFO baremetal: pinned to 1.{OLD}, offer {TO} -> {FROM}, phase capped; "
            f"held by the pin; `skewgate unpin baremetal` offers {TO}"
        ),
        f"INFO baremetal: unpinned, no ceiling, offer {FROM} -> {TO}, phase uniform",
    ]


async def test_UPGRADE_back_late_the_warning_counts_the_affected_requests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "skewgate.offer")
    async with upgrade_of(to_ver(), to_ver()) as upgrade:
        for version, times in ((f"1.{NEW}", 3), ("latest", 2), (f"1.{OLD + 1}", 2), (f"1.{OLD}", 4)):
            for _ in range(times):
                assert (await upgrade.testbed.at(version)).status == 200
        await upgrade.replace_backend(1, from_ver())
        await upgrade.replace_backend(2, from_ver())
        assert upgrade.summary()[0] == FROM

    assert [line for line in offer_lines(caplog) if not line.startswith("INFO ")] == [
        (
            f"WARNING baremetal: offer {TO} -> {FROM}, phase uniform; no backend serves {ABOVE} any more, "
            f"requests for these versions are refused now; 7 requests above 1.{OLD} served since the start"
        )
    ]
