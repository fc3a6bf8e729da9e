"""docs/cli.md and the man page agree with the commands; the scripts of shells know them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from gateway.cli import main
from gateway.cli.verbs import VERBS
from tests.docs.command_pages import COMMAND, MAN_PAGE, PAGE, man_page, page_as_it_should_be, verbs
from tests.kit.processes import ROOT, call


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / PAGE).read_text()
    assert page_as_it_should_be(page) == page, COMMAND


def test_the_man_page_is_up_to_date() -> None:
    assert (ROOT / MAN_PAGE).read_text() == man_page(), COMMAND


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_the_man_page_is_roff() -> None:
    ended = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", "-rLL=100n"],
        input=man_page(),
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stderr == ""
    assert "skewgate check [OPTIONS] [FILE]..." in re.sub(".\x08", "", ended.stdout)  # bold is overstruck


def test_every_verb_has_a_section() -> None:
    assert [name for name, _, _ in verbs()] == list(VERBS)


@pytest.mark.processes
@pytest.mark.parametrize(
    "line, wanted",
    [
        ("skewgate st", {"status"}),
        ("skewgate status --w", {"--watch"}),
        ("skewgate completion ", {"bash", "zsh", "fish"}),
        ("skewgate check -o ", {"text", "json"}),
        ("skewgate ", set(VERBS)),
    ],
)
async def test_completion_knows_verbs_options_and_words(line: str, wanted: set[str]) -> None:
    words = line.split(" ")
    ended = await call(
        _SKEWGATE_COMPLETE="bash_complete", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1)
    )

    assert (ended.code, ended.err) == (0, "")
    assert {found.partition(",")[2] for found in ended.out.split()} == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_is_one_of_its_shell(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0

    out = capfd.readouterr().out
    assert f"{shell}_complete" in out
    if shutil.which(shell) is not None:
        checked = subprocess.run([shell, "-n"], input=out, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The script and the command together, as a shell uses them."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "skewgate"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m gateway "$@"\n')
    program.chmod(0o755)
    script = (
        f'PATH={folder}:$PATH; cd {ROOT}; eval "$(skewgate completion bash)"; complete -p skewgate >&2;'
        " COMP_WORDS=(skewgate unp); COMP_CWORD=1; _skewgate_completion skewgate; echo ${COMPREPLY[@]}"
    )

    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)

    assert ended.stdout.split() == ["unpin"]
