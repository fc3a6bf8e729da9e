"""`check`: the problems, their positions, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli import main

GOOD = """\
listen: 127.0.0.1:8080
services:
  baremetal:
    dialect: ironic
    backends:
      - url: http://127.0.0.1:6385
"""


def check(file: Path, text: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    file.write_text(text)
    code = main(["check", str(file)])
    out, err = capfd.readouterr()
    return code, out, err


def test_a_good_file_is_fine(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "good.yaml"

    assert check(file, GOOD, capfd) == (0, f"{file}: fine\n", "")


def test_every_problem_has_its_position_line_caret_and_hint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    text = GOOD.replace("dialect: ironic", "dialect: iron") + "workrs: 2\n"

    code, out, err = check(file, text, capfd)

    assert (code, err) == (2, "")
    assert (
        out
        == f"""\
{file}:4:14: error[unknown-dialect]: there is no dialect of this name
    4 |     dialect: iron
      |              ^^^^
      = hint: did you mean ironic?
{file}:7:1: error[unknown-key]: there is no key 'workrs' here
    7 | workrs: 2
      | ^^^^^^
      = hint: did you mean `workers`?
"""
    )


def test_warnings_alone_leave_a_file_fine(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "warned.yaml"

    code, out, err = check(file, GOOD + "    offer: {ceiling: 1.90}\n", capfd)

    assert (code, err) == (0, "")
    assert f"{file}:7:22: warning[" in out
    assert out.endswith(f"{file}: fine, 1 warning\n")


def test_a_file_that_is_not_there_is_a_problem_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "absent.yaml"

    code = main(["check", str(file)])

    out, err = capfd.readouterr()
    assert (code, err) == (2, "")
    assert out == f"{file}:1:1: error[unreadable]: the file cannot be read: No such file or directory\n"
