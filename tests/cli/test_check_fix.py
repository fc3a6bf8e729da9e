"""`check --fix`: what it mends, that it keeps every other byte, and that no file is lost."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli import main
from gateway.settings import Loaded, read_file

WRITTEN = """\
listen:   127.0.0.1:8080   # here
services:
  baremetal:
    dialect: ironic
    offer: { ceiling: 1.90 ,stabilization: 5s}
    backends:
    - url: http://127.0.0.1:6385
"""
MENDED = WRITTEN.replace("1.90", '"1.90"')


def test_it_mends_in_place_and_says_what_and_then_what_check_says(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(WRITTEN)

    assert main(["check", "--fix", str(file)]) == 0
    assert capfd.readouterr().out.splitlines() == [
        f'{file}:5:23: fixed[number]: replaced 1.90 with "1.90"',
        f"{file}: fine",
    ]
    assert file.read_text() == MENDED

    assert main(["check", "--fix", str(file)]) == 0
    assert capfd.readouterr() == (f"{file}: fine\n", "")


def test_what_it_cannot_mend_stays_and_decides_the_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(WRITTEN + "workrs: 2\n")

    assert main(["check", "--fix", str(file)]) == 2

    out = capfd.readouterr().out
    assert f"{file}:5:23: fixed[number]: " in out
    assert f"{file}:8:1: error[unknown-key]: there is no key 'workrs' here" in out, "a suggestion is a guess"
    assert file.read_text() == MENDED + "workrs: 2\n"


@pytest.mark.parametrize(
    "offer",
    [
        'ceiling: "1.90"',
        "ceiling: '1.90'",
        "ceiling: ${CEILING:-1.90}",
        "ceiling: ${CEILING}",
        "ceiling: !!str 1.90",
    ],
)
def test_only_what_is_written_plainly_is_mended(
    offer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEILING", "1.90")
    file = tmp_path / "a.yaml"
    text = MENDED.replace('ceiling: "1.90" ,stabilization: 5s', offer)
    file.write_text(text)

    main(["check", "--fix", str(file)])

    assert file.read_text() == text


def test_included_files_are_mended_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main_file, included = tmp_path / "a.yaml", tmp_path / "conf.d" / "b.yaml"
    included.parent.mkdir()
    main_file.write_text("listen: 127.0.0.1:8080\ninclude: conf.d/*.yaml\n")
    included.write_text(WRITTEN.split("\n", 1)[1])

    assert main(["check", "--fix", str(main_file)]) == 0

    assert capfd.readouterr().out.startswith(f"{included}:4:23: fixed[number]: ")
    assert included.read_text() == MENDED.split("\n", 1)[1]


def test_as_json_what_was_fixed_stands_beside_what_is_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(WRITTEN)

    for expected in (
        [{"file": str(file), "line": 5, "column": 23, "code": "number", "was": "1.90", "now": '"1.90"'}],
        [],
    ):
        assert main(["check", "--fix", "-o", "json", str(file)]) == 0
        [found] = json.loads(capfd.readouterr().out)["files"]
        assert (found["fixed"], found["problems"]) == (expected, [])
    main(["check", "-o", "json", str(file)])
    assert "fixed" not in json.loads(capfd.readouterr().out)["files"][0]


def test_standard_input_and_pipes_are_bad_usage_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(WRITTEN)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(WRITTEN.encode())))

    for other in ("-", os.devnull):
        assert main(["check", "--fix", str(file), other]) == 2
        out, err = capfd.readouterr()
        assert (out, err.splitlines()[-1]) == (
            "",
            f"skewgate check: error: --fix needs a regular file; {other} cannot be changed in place",
        )
    assert file.read_text() == WRITTEN


# -- how a file is written


def test_the_file_keeps_its_permissions_and_a_link_stays_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "a.yaml", tmp_path / "link.yaml"
    file.write_text(WRITTEN)
    file.chmod(0o640)
    link.symlink_to(file)
    before = file.stat()

    assert main(["check", "--fix", str(link)]) == 0

    after = file.stat()
    assert file.read_text() == MENDED
    assert link.is_symlink()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_mtime_ns >= before.st_mtime_ns
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml", "link.yaml"]


def test_nothing_to_mend_does_not_touch_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(MENDED)
    before = file.stat()

    assert main(["check", "--fix", str(file)]) == 0

    after = file.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("call", ["tempfile.mkstemp", "os.fsync", "os.fchown", "pathlib.Path.replace"])
def test_a_file_that_cannot_be_written_stays_as_it_was(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(WRITTEN)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(call, refuse)

    assert main(["check", "--fix", str(file)]) == 1
    assert capfd.readouterr() == ("", f"skewgate: {file} cannot be written: Read-only file system\n")
    assert file.read_text() == WRITTEN
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


def test_a_file_that_changed_since_it_was_checked_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As by an editor, or by whoever puts a link to another file there."""
    file = tmp_path / "a.yaml"
    file.write_text(WRITTEN)

    def read_and_change(path: Path, **_: object) -> Loaded:
        loaded = read_file(path, environ={})
        file.write_text("# changed\n" + WRITTEN)
        return loaded

    monkeypatch.setattr("gateway.cli.check.read_file", read_and_change)

    assert main(["check", "--fix", str(file)]) == 1
    assert capfd.readouterr() == ("", f"skewgate: {file} was changed meanwhile; run the command again\n")
    assert file.read_text() == "# changed\n" + WRITTEN


# -- the law

remarks = st.sampled_from(["", " # why", "   #x: 1.90", "  # ceiling: 1.90"])
gaps = st.sampled_from(["", "# own 1.90", "      # deep", "  ", "# é — \U0001f600 ceiling: 1.90"])
versions = st.sampled_from(["1.90", "1.1", "1.58", '"1.90"', "'1.90'", "1.1-1.58"])
keys = st.sampled_from(["stabilization", "'stabilization'"])
ends = st.sampled_from(["\n", "\r\n", "\r", "\x85", "\u2028"])


def mended(token: str) -> str:
    """A token as it shall be."""
    return f'"{token}"' if token.replace(".", "").isdigit() else token


@given(st.data(), st.booleans(), st.booleans())
def test_every_other_byte_is_kept_and_the_second_time_nothing_changes(
    data: st.DataObject, mark: bool, last: bool
) -> None:
    pieces: list[tuple[str, bool]] = [("\ufeff", False)] if mark else []

    def line(*parts: str, token: int = -1) -> None:
        """One line of parts, the one at `token` a token that is perhaps mended; perhaps another line."""
        pieces.extend((part, number == token) for number, part in enumerate(parts))
        pieces.append((data.draw(remarks) + data.draw(ends), False))
        if gap := data.draw(gaps):
            pieces.append((gap + data.draw(ends), False))

    indent = " " * data.draw(st.integers(1, 4))
    line("listen:   127.0.0.1:8080")
    line("services:")
    for name in data.draw(st.sampled_from(["a", "ab"])):
        line(f"{indent}{name}:")
        line(f"{indent * 2}dialect: ironic")
        line(f"{indent * 2}match: ", f"{{path: /{name}1.90 }}")
        line(f"{indent * 2}offer:")
        line(f"{indent * 3}ceiling:  ", data.draw(versions.filter(lambda each: "-" not in each)), token=1)
        line(f"{indent * 3}", data.draw(keys), ":  5s", token=1)
        line(f"{indent * 2}releases: {{'1.90': ", data.draw(versions), " ,}", token=1)
        line(f"{indent * 2}backends:")
        for number in range(data.draw(st.integers(1, 2))):
            line(f"{indent * 2}-   url: http://h{number}:1/1.90")
            line(f"{indent * 2}    versions:  ", data.draw(versions), token=1)
    if last:
        pieces.append(("# the last line has no end: 1.90", False))
    written = "".join(text for text, _ in pieces).encode()
    expected = "".join(mended(text) if is_token else text for text, is_token in pieces).encode()

    with TemporaryDirectory() as folder:
        file = Path(folder, "a.yaml")
        file.write_bytes(written)
        main(["check", "--fix", str(file)])
        assert file.read_bytes() == expected
        inode = file.stat().st_ino
        main(["check", "--fix", str(file)])
        assert file.read_bytes() == expected
        assert file.stat().st_ino == inode
