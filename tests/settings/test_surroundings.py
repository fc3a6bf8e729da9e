"""What the file says about the machine, hints for common slips, and how long lines are shown."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.settings.yaml.problem import MAX_SHOWN, Problem, Severity
from tests.settings.texts import BASE, load_text


def state_problems(path: Path | str) -> list[tuple[str, Severity]]:
    return [(each.code, each.severity) for each in load_text(f"{BASE}state: {path}\n").problems]


def test_a_state_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "state.json")

    assert state_problems(tmp_path / "new.json") == []
    assert state_problems(tmp_path / "file") == []
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "nowhere/x", tmp_path / "file/x", tmp_path / "link"):
        assert state_problems(path) == [("bad-value", Severity.ERROR)], path
    monkeypatch.setattr(os, "access", lambda *_: False)  # the user of the tests may be root
    assert state_problems(tmp_path / "new.json") == [("not-writable", Severity.WARNING)]
    assert not list(tmp_path.glob("new*")), "nothing is written"


@pytest.mark.parametrize("left", ["state.json", "state.json.lock"])
def test_a_state_file_that_somebody_else_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """As after one start by hand as root, in the folder of the user of the gateway."""
    (tmp_path / "state.json").touch()
    (tmp_path / "state.json.lock").touch()
    monkeypatch.setattr(os, "access", lambda path, use: use == os.F_OK or Path(path) != tmp_path / left)
    (problem,) = load_text(f"{BASE}state: {tmp_path}/state.json\n").problems
    assert (problem.code, problem.severity) == ("not-writable", Severity.WARNING)
    assert f"cannot use {tmp_path / left}, which" in problem.message


def test_a_state_file_whose_name_is_too_long_for_the_files_beside_it(tmp_path: Path) -> None:
    assert state_problems(tmp_path / ("s" * 246)) == []
    for name in ("s" * 247, "ü" * 124, "s" * 256):
        assert state_problems(tmp_path / name) == [("bad-value", Severity.ERROR)]


@pytest.mark.parametrize("text, told", [("1", False), ("2", False), ("3", True), ("auto", False)])
def test_more_workers_than_cpus(monkeypatch: pytest.MonkeyPatch, text: str, told: bool) -> None:
    monkeypatch.setattr("gateway.settings.sections.workers.usable_cpus", lambda: 2)
    problems = load_text(f"{BASE}workers: {text}\n").problems
    warning = ("too-many-workers", Severity.WARNING, "3 workers share 2 CPUs here")
    assert [(each.code, each.severity, each.message) for each in problems] == [warning] * told


@pytest.mark.parametrize(
    "text, hint",
    [
        ("listen: https://0.0.0.0:8443\n", "tls: {certificates: [...]}"),
        ("listen: http://0.0.0.0:8080\n", "write 127.0.0.1:8080"),
        ("listen: /run/x.sock\n", "write unix:/run/skewgate/http.sock"),
        ("listen: unix:///run/x.sock\n", "write unix:/run/skewgate/http.sock"),
        ("listen: '8080'\n", "write a host before the port"),
        ("listen: 127.0.0.1\n", "write one after the host"),
        ("listen: gateway.example\n", "write one after the host"),
        ("listen: 127.0.0.1:80800\n", "write it at the end"),
        ("listen: 127.0.0.1:x\n", "write it at the end"),
        ("listen: 127.0.0.1\u200b:8080\n", "it has an invisible character, U+200B: write the text anew"),
        ("listen: 127.0.0.1:8080\ufeff\n", "an invisible character, U+FEFF"),
        ("listen: 127.0.0.1:8080\u00a0\n", "an invisible character, U+00A0"),
        (
            "listen: 127.0.0.1:8080\nwor\u200bkers: 1\n",
            "did you mean `workers`?; it has an invisible character",
        ),
    ],
)
def test_hints_for_addresses(text: str, hint: str) -> None:
    loaded = load_text(BASE.replace("listen: 127.0.0.1:8080\n", text))

    assert [hint in (each.hint or "") for each in loaded.problems] == [True], loaded.render()


@pytest.mark.parametrize(
    "url, hint",
    [
        ("htps://a", "did you mean https://?"),
        ("ftp://a", "write http://HOST:PORT or https://HOST:PORT"),
        ("unix://run/api.sock", "write unix:/"),
        ("/run/api.sock", "for a Unix socket write unix:/PATH"),
        ("a:6385", "write http://HOST:PORT"),
        ("http://a:163850", "write it at the end"),
        ("http://a\u200b:6385", "an invisible character, U+200B"),
    ],
)
def test_hints_for_urls(url: str, hint: str) -> None:
    loaded = load_text(BASE.replace("http://127.0.0.1:6385", url))

    assert [hint in (each.hint or "") for each in loaded.problems] == [True], loaded.render()


@pytest.mark.parametrize("column", [1, 20, 60, 100, 150, 195, 200])
def test_a_long_line_is_cut_around_the_caret(column: int) -> None:
    line = "".join(f"{number:>5}" for number in range(40))
    shown = Problem(3, column, "bad-value", "no", width=5).render("x", ["", "", line])
    _, source, carets = shown.splitlines()
    cut, marked = source.partition("| ")[2], carets.partition("| ")[2]

    assert len(cut) == MAX_SHOWN
    assert (cut[0] == "…", cut[-1] == "…") == (column > 31, column < 141)
    width = len(marked) - len(marked.lstrip())
    assert cut[width : width + len(marked.strip())] == line[column - 1 :][: len(marked.strip())]
    assert marked.strip() == "^" * min(5, 200 - column + 1)


def test_a_line_that_fits_is_shown_whole() -> None:
    line = "x" * MAX_SHOWN

    assert line in Problem(1, 1, "bad-value", "no").render("x", [line])


def test_R3_T4_check_warns_of_a_folder_that_others_may_write_and_of_what_is_in_it(tmp_path: Path) -> None:
    """Only that: another user than the gateway's may run it."""
    state = tmp_path / "state.json"
    assert state_problems(state) == []
    tmp_path.chmod(0o777)
    assert state_problems(state) == [("untrusted", Severity.WARNING)]
    state.touch()
    state.chmod(0o666)
    tmp_path.chmod(0o755)
    assert state_problems(state) == [("untrusted", Severity.WARNING)]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other users")
def test_R3_T4_check_takes_the_owner_of_the_folder_for_the_user_of_the_gateway(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.touch()
    os.chown(state, 65534, 65534)
    assert state_problems(state) == [("untrusted", Severity.WARNING)]
    os.chown(tmp_path, 65534, 65534)
    assert state_problems(state) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other users")
def test_R3_T4_check_warns_of_a_link_of_another_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "link").symlink_to("state.json")
    os.chown(tmp_path / "link", 65534, 65534, follow_symlinks=False)
    assert state_problems(tmp_path / "link") == [("untrusted", Severity.WARNING)]
