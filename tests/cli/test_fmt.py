"""`fmt`: what is written where, and that a file is never lost. The layout itself: test_layout."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from gateway.cli import main

OTHER = "listen:   127.0.0.1:8080   # here\nservices: {}\n"
LAID_OUT = "listen: 127.0.0.1:8080     # here\nservices: {}\n"


def test_a_file_is_replaced_and_keeps_its_permissions(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, link = tmp_path / "a.yaml", tmp_path / "link.yaml"
    file.write_text(OTHER)
    file.chmod(0o640)
    link.symlink_to(file)

    assert main(["fmt", str(link)]) == 0
    assert capfd.readouterr().out == f"{link}: laid out anew\n"
    assert main(["fmt", str(link)]) == 0
    assert capfd.readouterr().out == ""

    assert file.read_text() == LAID_OUT
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml", "link.yaml"]


def test_check_and_diff_change_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(OTHER)

    assert main(["fmt", "--check", str(file)]) == 1
    assert main(["fmt", "--diff", str(file)]) == 0

    out, err = capfd.readouterr()
    assert err == f"skewgate: {file} has another layout\n"
    assert "-listen:   127" in out
    assert "+listen: 127" in out
    assert file.read_text() == OTHER


def test_standard_input_goes_to_standard_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(OTHER.encode())))

    assert main(["fmt", "-"]) == 0
    assert capfd.readouterr() == (LAID_OUT, "")


@pytest.mark.parametrize(
    "data, words",
    [
        (b"a: [", ":1:5: error[yaml-syntax]"),
        (b"a: &x 1\n", "error[alias]"),
        (b"", "error[empty-file]"),
        (b"\xff", "is not UTF-8"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_configuration_stays_as_it_is(
    data: bytes | None, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    if data is not None:
        file.write_bytes(data)

    assert main(["fmt", str(file)]) == 2

    out, err = capfd.readouterr()
    assert out == ""
    assert words in err
    assert data is None or file.read_bytes() == data


def test_a_folder_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(OTHER)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.mkstemp", refuse)

    assert main(["fmt", str(file)]) == 1
    assert capfd.readouterr().err == f"skewgate: {file} cannot be written: Read-only file system\n"
    assert file.read_text() == OTHER
