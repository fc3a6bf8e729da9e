"""A time-boxed search for each target (group `fuzz`), and that the search finds what is there.

It takes the same way each time, so that what it finds is about the change that is tested. Other ways are for
whoever searches by hand (`python -m tests.fuzz`): what they find is kept in the corpus.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.fuzz import targets

SECONDS = 7
"""For each target."""
SEED = "1"
FINDINGS = ROOT / "findings"
"""Where inputs are written that break a property; not in git."""


def search(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: atheris instruments what it imports, and ends its process without cleaning up
    (`folder`)."""
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "TMPDIR": str(folder),
        },
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=SECONDS + 60,
    )


@pytest.mark.fuzz
@pytest.mark.parametrize("name", targets.NAMES)
def test_a_search_finds_nothing(name: str, tmp_path: Path) -> None:
    arguments = ("--seconds", str(SECONDS), "--seed", SEED, "--findings", str(FINDINGS))
    done = search(tmp_path, name, *arguments)

    with contextlib.suppress(OSError):  # it holds findings
        FINDINGS.rmdir()
    assert done.returncode == 0, f"see {FINDINGS}\n{done.stdout[-2000:]}\n{done.stderr[-8000:]}"


@pytest.mark.fuzz
def test_without_atheris_hypothesis_searches(tmp_path: Path) -> None:
    arguments = ("--seconds", "1", "--findings", str(tmp_path), "--without-atheris")
    done = search(tmp_path, "chunked", *arguments)

    assert done.returncode == 0, done.stderr
    assert "inputs" in done.stderr


@pytest.mark.fuzz
@pytest.mark.parametrize("how", [[], ["--without-atheris"]], ids=["as installed", "without atheris"])
def test_what_breaks_a_property_is_written_to_a_file(tmp_path: Path, how: list[str]) -> None:
    findings = tmp_path / "findings"
    done = search(tmp_path, "broken", "--seconds", "30", "--findings", str(findings), *how)

    (found,) = findings.iterdir()
    assert found.name.startswith("broken-crash-")
    assert b"%" in found.read_bytes()
    assert done.returncode != 0
    assert search(tmp_path, "broken", str(found)).returncode != 0
