"""The systemd unit, as systemd reads it: `systemd-analyze verify` of the version in Debian."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

pytestmark = pytest.mark.engines

UNIT = ROOT / "deploy" / "skewgate.service"


async def verify(folder: Path, text: str) -> tuple[int, str]:
    """Exit code and output. The program of the unit is one that exists."""
    program = folder / "opt" / "skewgate" / "bin" / "skewgate"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.unlink(missing_ok=True)
    program.symlink_to("/bin/true")
    unit = folder / "skewgate.service"
    unit.write_text(text.replace("/opt/skewgate", f"{folder}/opt/skewgate"))
    process = await asyncio.create_subprocess_exec(
        *("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    assert await verify(tmp_path, UNIT.read_text()) == (0, "")


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("Type=notify", "Typ=notify"),
        ("WatchdogSec=30", "WatchdogSec=x"),
        ("ExecReload=/", "ExecReload=/nowhere/"),
    ],
)
async def test_systemd_finds_what_is_wrong(tmp_path: Path, right: str, wrong: str) -> None:
    text = UNIT.read_text()
    assert right in text
    code, output = await verify(tmp_path, text.replace(right, wrong))

    assert (code, "skewgate" in output) == (1, True)


def test_the_unit_speaks_the_protocol() -> None:
    """systemd 252 knows no Type=notify-reload: the reload is a command, and its exit code the answer."""
    lines = UNIT.read_text().splitlines()

    assert "Type=notify" in lines
    assert any(line.startswith("ExecReload=") and " reload -c " in line for line in lines)
    assert any(line.startswith("WatchdogSec=") for line in lines)
