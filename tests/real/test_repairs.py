"""Old releases are made to load without a change to the files of an installer's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.repairs import START_UP, BeyondRepair, repair, requested_by

pytestmark = pytest.mark.real

OLD_TEXT = "def run(async=False):\n    return {'async': async, 'asynchronous': 1}\n"
NEW_TEXT = "def run(async_=False):\n    return {'async': async_, 'asynchronous': 1}\n"


def test_a_name_that_is_a_keyword_now_is_renamed_and_its_hard_link_is_not(tmp_path: Path) -> None:
    package = tmp_path / "site" / "old"
    package.mkdir(parents=True)
    cached = tmp_path / "cached.py"
    cached.write_text(OLD_TEXT)
    os.link(cached, package / "module.py")
    (package / "fine.py").write_text("async def run(): ...\n")
    repair(tmp_path / "site", ["old"])
    assert (package / "module.py").read_text() == NEW_TEXT
    assert cached.read_text() == OLD_TEXT
    assert (package / "fine.py").read_text() == "async def run(): ...\n"


def test_what_cannot_be_repaired_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "module.py").write_text("print 'hello'\n")
    with pytest.raises(BeyondRepair, match=r"module\.py does not parse"):
        repair(tmp_path, ["old"])


def test_names_that_were_dropped_are_back_from_the_start(tmp_path: Path) -> None:
    repair(tmp_path, [])
    assert (tmp_path / START_UP).exists()
    program = (
        "import sitecustomize, collections, inspect, platform;"
        "print(collections.Mapping.__name__, inspect.getargspec(lambda a, b=1: 0).args,"
        " len(platform.linux_distribution()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (0, "Mapping ['a', 'b'] 3\n"), done.stderr


def test_a_list_says_which_packages_it_wants_repaired(tmp_path: Path) -> None:
    exact_list = tmp_path / "list.txt"
    exact_list.write_text("# Some release.\n# repair: one two\nthree==1\n")
    assert requested_by(exact_list) == ["one", "two"]
    exact_list.write_text("# Some release.\nthree==1\n")
    assert requested_by(exact_list) == []
