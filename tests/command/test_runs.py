"""Runs of pytest under the rules of tests/conftest.py, on tests that fail, die and leave processes behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.processes import ROOT

pytestmark = pytest.mark.processes

PREAMBLE = """
import os, signal, subprocess
from pathlib import Path
import pytest

STARTED = []

def start(seconds):
    STARTED.append(subprocess.Popen(["sleep", str(seconds)], start_new_session=True))
    return STARTED[-1].pid
"""


def run(folder: Path, text: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a file with `text`, and wait until it has ended."""
    file = folder / "test_sample.py"
    file.write_text(PREAMBLE + text)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)),
            *("-p", "no:cacheprovider", "-p", "tests.conftest", str(file), *argv),
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("SKEWGATE_")},
        capture_output=True,
        text=True,
        check=False,
    )


def runs(pid: int) -> bool:
    """Whether the process `pid` is there and has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"


def test_what_a_test_starts_ends_with_it(tmp_path: Path) -> None:
    ended = run(
        tmp_path,
        f"""
@pytest.fixture(scope="module")
def server():
    return start(1000)

def test_leaves_one(server):
    Path({str(tmp_path / "left")!r}).write_text(str(start(1001)))

def test_sees_that_it_has_ended_and_the_server_has_not(server):
    assert STARTED[1].wait(30) == -signal.SIGKILL
    assert STARTED[0].poll() is None
""",
    )

    assert ended.returncode == 0, ended.stdout
    assert "ended: test_sample.py::test_leaves_one left process" in ended.stdout
    assert "sleep 1000" in ended.stdout, "what fixtures start ends with the run"
    assert not runs(int((tmp_path / "left").read_text()))


def test_a_worker_that_dies_is_an_error_that_names_its_test_and_leaves_nothing(tmp_path: Path) -> None:
    left = tmp_path / "left"
    ended = run(
        tmp_path,
        f"""
@pytest.mark.parametrize("number", range(8))
def test_numbered(number):
    if number == 3:
        Path({str(left)!r}).write_text(str(start(1000)))
        os.kill(os.getpid(), signal.SIGKILL)
""",
        *("-n", "2", "--dist", "worksteal"),
    )

    assert ended.returncode == 1, ended.stdout
    assert "FAILED test_sample.py::test_numbered[3]" in ended.stdout
    assert "FAILED worker gw" in ended.stdout
    assert "7 passed" in ended.stdout
    assert not runs(int(left.read_text()))


def test_a_failure_is_named_before_the_next_test_runs(tmp_path: Path) -> None:
    """What is printed until the run is killed names the failure."""
    ended = run(
        tmp_path,
        """
def test_fails():
    assert False

def test_kills_the_run():
    os.kill(os.getpid(), signal.SIGKILL)
""",
    )

    assert ended.returncode == -9
    assert "FAILED test_sample.py::test_fails (call)" in ended.stdout
