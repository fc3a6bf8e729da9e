"""The matcher in C under AddressSanitizer and UBSan, and that they find what is there."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.dataplane.matcher_in_c import COMPILER, SOURCE, compile_matcher

pytestmark = pytest.mark.fuzz

SECONDS = 7
SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def fuzz(folder: Path, source: Path) -> subprocess.CompletedProcess[str]:
    """A process of its own, which begins with the sanitizer's library. Each object is an allocation of its
    own there, so that nothing that is read or written beside one goes unnoticed."""
    file = compile_matcher(folder, *SANITIZERS, source=source)
    library = subprocess.check_output([COMPILER, "-print-file-name=libasan.so"], text=True).strip()
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.matcher", str(file), str(SECONDS)],
        cwd=ROOT,
        env={
            **os.environ,
            "LD_PRELOAD": library,
            "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps what it needs until it ends
            "PYTHONMALLOC": "malloc",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS + 120,
    )


def test_S20_the_sanitizers_find_nothing(tmp_path: Path) -> None:
    done = fuzz(tmp_path, SOURCE)

    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-8000:]}"
    assert "heads" in done.stdout


def test_S20_a_missing_check_is_found(tmp_path: Path) -> None:
    check, text = "end - at < step->size || ", SOURCE.read_text(encoding="ascii")
    assert text.count(check) == 1
    broken = tmp_path / SOURCE.name
    broken.write_text(text.replace(check, ""), encoding="ascii")
    done = fuzz(tmp_path, broken)

    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
