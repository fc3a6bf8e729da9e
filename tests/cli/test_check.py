"""`check`: the problems, their positions, and the exit code."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import io
import json
import sys
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


def test_a_file_that_is_not_there_is_a_problem_with_its_path_and_reader(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "absent.yaml"

    code = main(["check", str(file)])

    out, err = capfd.readouterr()
    assert (code, err) == (2, "")
    headline, hint = out.splitlines()
    assert headline == f"{file}:1:1: error[unreadable]: the file cannot be read: No such file or directory"
    assert hint.endswith(f" reads it at {file}")


def test_strict_a_warning_is_exit_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good, warned = tmp_path / "good.yaml", tmp_path / "warned.yaml"
    good.write_text(GOOD)
    warned.write_text(GOOD + "    offer: {ceiling: 1.90}\n")

    assert main(["check", "--strict", str(good)]) == 0
    assert main(["check", "--strict", str(good), str(warned)]) == 2
    assert capfd.readouterr().out.endswith(f"{warned}: fine, 1 warning\n")


def test_several_files_are_all_checked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bad, good = tmp_path / "bad.yaml", tmp_path / "good.yaml"
    bad.write_text("listen: x\n")
    good.write_text(GOOD)

    assert main(["check", str(bad), str(tmp_path / "absent.yaml"), str(good)]) == 2

    out = capfd.readouterr().out
    assert f"{bad}:1:9: error[" in out
    assert f"{tmp_path}/absent.yaml:1:1: error[unreadable]" in out
    assert out.endswith(f"{good}: fine\n")


@pytest.mark.parametrize("data, code", [(GOOD.encode(), 0), (b"\xff", 2), (b"", 2)])
def test_standard_input(
    data: bytes, code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    assert main(["check", "-"]) == code
    assert capfd.readouterr().out.startswith("<stdin>:")


def test_as_json_every_problem_is_an_object(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bad, good = tmp_path / "bad.yaml", tmp_path / "good.yaml"
    bad.write_text(GOOD.replace("dialect: ironic", "dialect: iron"))
    good.write_text(GOOD)

    assert main(["check", "-o", "json", str(bad), str(good)]) == 2

    assert json.loads(capfd.readouterr().out) == {
        "files": [
            {
                "file": str(bad),
                "usable": False,
                "problems": [
                    {
                        "file": str(bad),
                        "line": 4,
                        "column": 14,
                        "severity": "error",
                        "code": "unknown-dialect",
                        "message": "there is no dialect of this name",
                        "hint": "did you mean ironic?",
                    }
                ],
                "notes": [],
            },
            {"file": str(good), "usable": True, "problems": [], "notes": []},
        ]
    }


def test_without_a_file_the_usual_places_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SKEWGATE_CONFIG", raising=False)
    monkeypatch.setattr("gateway.cli.command.DEFAULT_FILES", ("skewgate.yaml", str(tmp_path / "etc.yaml")))
    assert main(["check"]) == 2
    err = capfd.readouterr().err
    assert "no configuration found: give -c FILE, set SKEWGATE_CONFIG" in err

    (tmp_path / "etc.yaml").write_text(GOOD)
    assert main(["check"]) == 0
    (tmp_path / "skewgate.yaml").write_text(GOOD)
    assert main(["check"]) == 0
    (tmp_path / "named.yaml").write_text(GOOD)
    monkeypatch.setenv("SKEWGATE_CONFIG", "named.yaml")
    assert main(["check"]) == 0
    assert capfd.readouterr().out.splitlines() == [
        f"{tmp_path / 'etc.yaml'}: fine",
        "skewgate.yaml: fine",
        "named.yaml: fine",
    ]
    monkeypatch.setenv("SKEWGATE_CONFIG", "absent.yaml")
    assert main(["check"]) == 2
    assert "absent.yaml:1:1: error[unreadable]" in capfd.readouterr().out


CUSTOM = """\
listen: 127.0.0.1:8080
services:
  orders:
    dialect: custom
    custom:
      places: [{path: "/api/{version}"}]
      learn: {path: /api/versions, minimum: $.oldest, maximum: $.newest}
    backends:
      - url: http://127.0.0.1:7001
"""


@pytest.mark.parametrize(
    "default, says",
    [
        ("", "gets the oldest one on offer; `default_version` changes that"),
        ("minimum", "gets the oldest one on offer"),
        ("maximum", "gets the newest one on offer"),
        ("refused", "is refused"),
        ("2", "gets 2, or is refused if that is not on offer"),
    ],
)
def test_R3_N2_what_a_request_without_a_version_gets_is_said_in_one_line(
    default: str, says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "custom.yaml"
    text = CUSTOM + (f"    default_version: '{default}'\n" if default else "")

    code, out, _ = check(file, text, capfd)

    assert code == 0
    assert out.splitlines()[:2] == [f"{file}: fine", f"  orders: a request without a version {says}"]
    assert main(["check", "--strict", str(file)]) == 0, "it is no warning"
    capfd.readouterr()
    main(["check", "--output", "json", str(file)])
    [read] = json.loads(capfd.readouterr().out)["files"]
    assert read["notes"][0] == f"orders: a request without a version {says}"


def test_R3_N1_check_proposes_to_list_paths_that_need_no_version(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = check(tmp_path / "custom.yaml", CUSTOM + "    probe: {health: {path: /api/health}}\n", capfd)

    assert "unversioned: [/api/health, /api/versions]" in out.splitlines()[2]


def test_R3_N3_check_warns_of_a_document_of_one_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "custom.yaml"
    text = CUSTOM.replace("$.newest}", '$.newest, spelling: "{version}.*"}')

    _, out, _ = check(file, text, capfd)

    assert f"{file}:7:21: warning[misleading]: clients that read this document see the versions" in out
    _, out, _ = check(file, text.replace("    backends:", "      documents: []\n    backends:"), capfd)
    assert "misleading" not in out
