"""The state file on a real disk: the old text or the new one, whatever goes wrong in between."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.controlplane.state.file import MAX_SIZE, StateFile, StateFileError
from tests.architecture.source import ROOT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


@pytest.fixture
def file(path: Path) -> Iterator[StateFile]:
    subject = StateFile(path)
    yield subject
    subject.close()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_is_written_is_there_and_nothing_else(file: StateFile, path: Path) -> None:
    assert file.read() is None
    for text in ("one", "two, which is longer", "3"):
        file.replace(text)
        assert (file.read(), path.read_text()) == (text, text)
    assert names(path.parent) == {"state.json", "state.json.lock"}


@pytest.mark.parametrize("mask, mode", [(0o022, 0o600), (0o077, 0o600), (0o277, 0o400)])
def test_only_its_owner_can_read_it(file: StateFile, path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        file.replace("x")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode


def failure_of(file: StateFile, text: str) -> str | None:
    """Why `text` could not be written."""
    try:
        file.replace(text)
    except StateFileError as problem:
        return str(problem)
    return None


STEPS = ["os.open", "os.fdopen", "os.fsync", "fcntl.flock", "Path.replace", "Path.unlink"]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS)
def test_a_failure_at_any_step_leaves_the_old_text_or_the_new_one(
    file: StateFile, path: Path, step: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full or broken disk: the n-th call of this step fails, and later ones succeed."""
    file.replace("old")
    file.close()
    owner, _, name = step.partition(".")
    target = {"os": os, "fcntl": fcntl, "Path": Path}[owner]
    function = getattr(target, name)
    calls = 0

    def fails(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number:
            raise OSError(28, "No space left on device")
        return function(*arguments, **options)

    with monkeypatch.context() as broken:
        broken.setattr(target, name, fails)
        failure = failure_of(file, "new")
    assert failure in (None, "no space left on device")
    assert path.read_text() in ({"new"} if failure is None else {"old", "new"})

    file.replace("later")
    assert path.read_text() == "later"
    assert names(path.parent) == {"state.json", "state.json.lock"}


def test_the_text_is_synced_before_the_rename_and_the_rename_before_it_returns(
    file: StateFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Needed for a power cut; killing a process would not show it."""
    order = []
    sync, rename = os.fsync, Path.replace

    def syncs(fd: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else f"text of {os.fstat(fd).st_size}")
        sync(fd)

    def renames(self: Path, target: Path) -> Path:
        order.append(f"{self.name} to {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(Path, "replace", renames)
    file.replace("twelve bytes")
    assert order == ["text of 12", "state.json.new to state.json", "folder"]


ENDLESS_WRITER = """
import itertools, sys
from gateway.controlplane.state.file import StateFile
file = StateFile(sys.argv[1])
for number in itertools.count():
    file.replace(f"{number} " * 5000 + "end")
    if number == 3:
        print("writing", flush=True)
"""


def test_a_process_killed_while_it_writes_leaves_a_whole_text(file: StateFile, path: Path) -> None:
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", ENDLESS_WRITER, str(path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"writing\n"
            process.kill()
        text = file.read()
        assert text is not None
        numbers, _, end = text.rpartition(" ")
        assert end == "end"
        assert len(numbers.split()) == 5000
        assert len(set(numbers.split())) == 1
    file.replace("next")
    assert names(path.parent) == {"state.json", "state.json.lock"}, "what the killed processes left is gone"


def test_of_two_gateways_the_second_writes_when_the_first_has_ended(file: StateFile, path: Path) -> None:
    other = StateFile(path)
    file.replace("mine")
    with pytest.raises(StateFileError, match="another gateway writes it"):
        other.replace("yours")
    assert other.read() == "mine"
    file.close()
    other.replace("yours")
    with pytest.raises(StateFileError, match="another gateway writes it"):
        file.replace("mine")
    other.close()


def test_a_link_stays_one_and_its_target_is_written(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "disk"
    real.mkdir()
    (real / "kept.json").write_text("old")
    path.symlink_to(real / "kept.json")
    file = StateFile(path)
    assert file.read() == "old"
    file.replace("new")
    file.close()
    assert path.is_symlink()
    assert (real / "kept.json").read_text() == "new"
    assert names(real) == {"kept.json", "kept.json.lock"}


@pytest.mark.parametrize("suffix", [".new", ".lock"])
def test_nothing_is_written_through_a_link_of_a_neighbouring_name(
    file: StateFile, path: Path, tmp_path: Path, suffix: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.with_name(path.name + suffix).symlink_to(victim)
    if suffix == ".new":
        file.replace("x")
        assert path.read_text() == "x"
    else:
        with pytest.raises(StateFileError):
            file.replace("x")
    assert victim.read_text() == "precious"


def test_a_file_that_is_not_text_is_refused(file: StateFile, path: Path) -> None:
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StateFileError, match="it is not UTF-8 text"):
        file.read()


def test_a_huge_file_is_refused_without_being_read_whole(file: StateFile, path: Path) -> None:
    with path.open("wb") as sparse:
        sparse.truncate(MAX_SIZE + 1)
    with pytest.raises(StateFileError, match="larger than 4 MiB"):
        file.read()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_folder_or_pipe_neither_blocks_nor_is_moved(file: StateFile, path: Path, make: object) -> None:
    make(path)  # type: ignore[operator]
    with pytest.raises(StateFileError, match="it is not a regular file"):
        file.read()
    file.mark_damaged()
    with pytest.raises(StateFileError, match="it is not a regular file"):
        file.replace("x")
    assert "state.json" in names(path.parent)
    assert "state.json.damaged" not in names(path.parent)


def test_a_damaged_file_is_moved_before_the_first_write(file: StateFile, path: Path) -> None:
    path.write_text("broken")
    assert file.mark_damaged() == path.with_name("state.json.damaged")
    assert path.read_text() == "broken", "nothing is moved before something is written"
    file.replace("one")
    file.replace("two")
    assert path.read_text() == "two"
    assert path.with_name("state.json.damaged").read_text() == "broken"


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "nowhere" / "state.json")
    assert file.read() is None
    with pytest.raises(StateFileError, match="no such file or directory"):
        file.replace("x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave files to somebody else")
@pytest.mark.parametrize("of_root", ["folder", "state.json.lock"])
def test_what_belongs_to_another_user_is_named_with_what_to_do(of_root: str) -> None:
    """As after a start by hand as root. The folder is one that any user can reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755 if of_root == "folder" else 0o777)
        if of_root != "folder":
            (folder / of_root).touch(0o600)
        os.seteuid(65534)
        try:
            with pytest.raises(StateFileError) as raised:
                StateFile(folder / "state.json").replace("x")
        finally:
            os.seteuid(0)
    assert str(raised.value) == (
        f"permission denied; let user 65534, as whom this gateway runs, write {folder} "
        "and own all files there whose names begin with state.json"
    )
