"""Setting up a checkout where there is no network, or where nothing can be written: what is said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.runtime.compiled import matcher_source
from tests.kit.processes import ROOT

pytestmark = pytest.mark.processes


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `./run` reads before anything is installed. Its only package is in no registry."""
    root = tmp_path / "checkout"
    shutil.copytree(
        ROOT / "requirements", root / "requirements", ignore=shutil.ignore_patterns("__pycache__")
    )
    matcher_source(root).parent.mkdir(parents=True)
    for name in ("pyproject.toml", "run", matcher_source(Path())):
        shutil.copy(ROOT / name, root / name)
    (root / "requirements" / "runtime.txt").write_text(f"skewgate-nowhere==1 --hash=sha256:{'0' * 64}\n")
    return root


def run(checkout: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SKEWGATE_", "PIP_", "UV_"))
    }
    return subprocess.run(
        [checkout / "run", "version"],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "SKEWGATE_PYTHON": sys.executable, **environ},
    )


def test_without_a_network_it_says_what_is_missing_and_how_to_bring_it(checkout: Path) -> None:
    ended = run(checkout, PIP_INDEX_URL="http://127.0.0.1:1/", PIP_RETRIES="0", UV_OFFLINE="1")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "skewgate-nowhere" in ended.stderr
    assert "The packages of requirements/runtime.txt could not be installed" in ended.stderr
    assert "-m pip download --require-hashes -r requirements/runtime.txt -d wheels\n" in ended.stderr
    assert ended.stderr.endswith("    SKEWGATE_WHEELS=wheels ./run\n")


def test_a_folder_of_wheels_that_lacks_one_is_named(checkout: Path, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    absent = run(checkout, SKEWGATE_WHEELS=str(wheels))
    wheels.mkdir()
    lacking = run(checkout, SKEWGATE_WHEELS=str(wheels))

    assert absent.stderr.endswith(f"skewgate: SKEWGATE_WHEELS is {wheels}, which is no folder\n")
    assert "skewgate-nowhere" in lacking.stderr
    assert f"{wheels} lacks packages of requirements/runtime.txt" in lacking.stderr
    assert absent.returncode == lacking.returncode == 1


def test_where_nothing_can_be_written_it_says_what_to_do(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write everywhere, but not below a file system that takes nothing."""
    ended = run(checkout, SKEWGATE_VENV="/sys/skewgate/venv")

    assert ended.returncode == 1
    assert "SKEWGATE_VENV" in ended.stderr
    assert "Traceback" not in ended.stderr
