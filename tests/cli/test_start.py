"""What a start costs before it serves, and in which order it does things (R3-V12)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from gateway.assembly import Gateway
from gateway.controlplane.state.keeper import StateKeeper
from gateway.settings import read_file
from gateway.workers.supervisor import WorkerProcesses
from tests.cli.conftest import Fleet, Write
from tests.cli.processes import ROOT
from tests.patience import PATIENCE

NOT_AT_THE_START = ("cryptography", "dns", "gateway.demo", "jinja2", "opentelemetry", "rich")
"""What many gateways never need, or only when they are asked for something."""
PROGRAMS = ("gateway.cli.run", "gateway.workers.process")


@pytest.mark.parametrize("module", PROGRAMS)
def test_R3_V12_a_start_imports_nothing_that_it_may_not_need(module: str) -> None:
    program = (
        f"import sys, {module}\n"
        "from gateway.controlplane.resolver import Resolver\n"
        "Resolver()\n"
        f"print([name for name in {NOT_AT_THE_START!r} if name in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize("slow", [WorkerProcesses, StateKeeper])
async def test_R3_V12_the_first_probes_are_sent_before_anything_that_waits(
    write: Write, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, slow: type[WorkerProcesses | StateKeeper]
) -> None:
    """Each of these waits, here until both backends are known."""
    file = write()
    file.write_text(f"workers: 2\nstate: {file.parent}/state.json\n{file.read_text()}")
    gateway = Gateway(read_file(file, environ=os.environ).require())

    async def waits(self: object) -> None:
        async with asyncio.timeout(PATIENCE):
            while not all(
                member.advertisement
                for pool in gateway.snapshot_holder.current.fleet.pools.values()
                for member in pool.members
            ):
                await asyncio.sleep(0.01)
                gateway.snapshot_holder.let_in()
        raise _StopsHereError

    monkeypatch.setattr(slow, "start", waits)
    with pytest.raises(_StopsHereError):
        async with gateway:
            pass


class _StopsHereError(Exception):
    """The backends were known."""
