"""What contributors rely on: CONTRIBUTING.md, the hosted CI, the hooks, and the list of the test folders.

Nothing here starts the tools it checks, except the check of commit messages, which is a short shell script.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.architecture.source import ROOT, project_files
from tests.conftest import GROUPS, HEAVY_GROUPS
from tests.docs.pages import blocks, mentioned, page, rows, section

ENVIRONMENT: Final = ".venv/bin/"
"""Where pages and hooks find the tools; the tests may run in another environment (SKEWGATE_VENV)."""

EXTERNAL: Final = frozenset({"git", "ln", "pre-commit"})
"""Programs that a contributor may have and the project does not bring."""

SCRIPTS: Final = ("./run", "./test", ".ci/", "bench/run", "requirements/compile", ENVIRONMENT)

OPTIONS_OF: Final = {"./test": "test", "bench/run": "bench/options.py"}
"""Commands whose own options are looked up, and the file that defines them."""


def is_executable(program: str) -> bool:
    path = ROOT / program
    if program.startswith(ENVIRONMENT):
        path = Path(sys.executable).parent / program.removeprefix(ENVIRONMENT)
    return path.is_file() and path.stat().st_mode & 0o111 != 0


# --- the hosted CI -----------------------------------------------------------------------------------------


def workflow() -> dict[str, Any]:
    document = yaml.safe_load(page(".github/workflows/ci.yml"))
    assert isinstance(document, dict)
    return document


def steps(job: str) -> list[str]:
    """The commands of one line that a job runs."""
    commands = [step.get("run", "") for step in workflow()["jobs"][job]["steps"]]
    return [each for each in commands if each and "\n" not in each]


def test_the_hosted_ci_runs_what_everybody_can_run() -> None:
    assert steps("python") == ["./test", "./test --processes", ".venv/bin/mkdocs build --strict --quiet"]
    assert steps("group") == [".ci/run --${{ matrix.group }}"]
    assert is_executable(".ci/run")


def test_the_hosted_ci_runs_every_group_in_a_job_of_its_own() -> None:
    job = workflow()["jobs"]["group"]

    assert tuple(job["strategy"]["matrix"]["group"]) == HEAVY_GROUPS
    assert job["env"]["SKEWGATE_NO_SKIP"] == "1"
    assert job["container"]["image"] == "debian:12"


def test_the_hosted_ci_runs_a_compiled_build_and_every_release_of_python() -> None:
    matrix = workflow()["jobs"]["python"]["strategy"]["matrix"]

    assert matrix["python"] == promised_releases()
    assert {"python": matrix["python"][-1], "build": "compiled"} in matrix["include"]


def test_the_hosted_ci_has_limits() -> None:
    assert workflow()["on"].keys() == {"push", "pull_request"}
    assert workflow()["permissions"] == {"contents": "read"}
    for job in workflow()["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert not job["strategy"]["fail-fast"]


def test_the_hosted_ci_uses_one_major_version_of_each_action() -> None:
    for job in workflow()["jobs"].values():
        actions = [step["uses"] for step in job["steps"] if "uses" in step]

        assert actions
        assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in actions), actions


def test_no_failed_test_is_run_again() -> None:
    script = page("test")

    assert not re.search("--last-failed|--lf|--reruns|lastfailed", script)


def promised_releases() -> list[str]:
    [tested] = re.findall(r'^releases="(.*)"$', page("test"), re.MULTILINE)
    return str(tested).split()


def test_the_releases_of_python_that_are_claimed_are_those_that_are_tested() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    claimed = re.findall(r"Python :: (3\.\d+)$", "\n".join(classifiers), re.MULTILINE)

    assert claimed == promised_releases()
    assert f"Python {claimed[0]}, {claimed[1]} or {claimed[2]} " in page("README.md")
    for other in ("CONTRIBUTING.md", "docs/tutorial.md"):
        assert f"Python {claimed[0]} to {claimed[-1]} " in page(other)


# --- the hooks ---------------------------------------------------------------------------------------------


def hooks() -> list[dict[str, Any]]:
    [repository] = yaml.safe_load(page(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local"
    found: list[dict[str, Any]] = repository["hooks"]
    return found


@pytest.mark.parametrize("hook", hooks(), ids=lambda hook: hook["id"])
def test_a_hook_starts_what_is_there(hook: dict[str, Any]) -> None:
    program, *_ = shlex.split(hook["entry"])

    assert hook["language"] == "system"
    assert program in EXTERNAL or is_executable(program)


def test_the_yaml_hook_accepts_our_files_and_refuses_others(tmp_path: Path) -> None:
    [hook] = [hook for hook in hooks() if hook["id"] == "yaml"]
    command = [sys.executable, *shlex.split(hook["entry"])[1:]]
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("a: [1, 2", encoding="utf-8")
    names = [
        path.relative_to(ROOT).as_posix() for path in project_files() if path.suffix in (".yaml", ".yml")
    ]
    ours = [ROOT / name for name in names if not re.search(hook["exclude"], name)]

    assert len(ours) > 3
    assert subprocess.run([*command, *ours], check=False).returncode == 0
    assert subprocess.run([*command, wrong], capture_output=True, check=False).returncode != 0


# --- commit messages ---------------------------------------------------------------------------------------

AREA: Final = "Area: "
SUBJECT: Final = f"{AREA}effect"
BODY: Final = "Why the change is needed, in lines that may be longer than a subject: " + "x" * 20
COMMENTS: Final = "# Please enter the commit message for your changes.\n"
DIFF: Final = "# ------------------------ >8 ------------------------\ndiff --git a/a b/a\n"


def check_message(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    file = folder / "message"
    file.write_text(text, encoding="utf-8")
    return subprocess.run([ROOT / ".ci/commit-message", file], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "text",
    [
        f"{AREA}{'x' * 66}",
        f"{AREA}{'x' * 66}\n",
        f"{AREA}{'é→' * 33}\n",
        f"{SUBJECT}\n\n{BODY}\n",
        f"\n{COMMENTS}{SUBJECT}  \n   \n{BODY}\n",
        f"{SUBJECT}\n{COMMENTS}\n{BODY}\n",
        f"{SUBJECT}\n{DIFF}",
        f"Core, control plane: `look()` is tick\n\n{BODY}\n",
        f"fixup! {'x' * 72}\n",
        f'Revert "{SUBJECT}"\n\n{BODY}\n',
    ],
    ids=[
        "72",
        "72, line end",
        "72, not ASCII",
        "body",
        "blanks",
        "comments",
        "diff",
        "two areas",
        "autosquash",
        "revert",
    ],
)
def test_a_commit_message_is_accepted(tmp_path: Path, text: str) -> None:
    result = check_message(tmp_path, text)

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "text, reason",
    [
        (f"{AREA}{'x' * 67}", "the subject has 73 characters, the limit is 72"),
        (f"{AREA}{'é' * 67}\n\n{BODY}\n", "the subject has 73 characters, the limit is 72"),
        (f"{SUBJECT}\n{BODY}\n", "the second line must be empty"),
        (f"{SUBJECT}\n{COMMENTS}{BODY}\n", "the second line must be empty"),
        (f"Fixes a bug\n\n{BODY}\n", "the form `Area: effect`"),
        (f"retries: a small letter\n\n{BODY}\n", "the form `Area: effect`"),
        (f"Retries:\n\n{BODY}\n", "the form `Area: effect`"),
        (f"Retries:no blank\n\n{BODY}\n", "the form `Area: effect`"),
        ("", "it has no subject"),
        (f"\n\n{COMMENTS}{DIFF}", "it has no subject"),
    ],
    ids=[
        "73",
        "73, not ASCII",
        "body",
        "body below comments",
        "no area",
        "small letter",
        "no effect",
        "no blank",
        "empty",
        "comments only",
    ],
)
def test_a_commit_message_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    result = check_message(tmp_path, text)

    assert result.returncode == 1
    assert reason in result.stderr


def test_the_check_of_messages_needs_a_file(tmp_path: Path) -> None:
    script = ROOT / ".ci/commit-message"
    for arguments in ([], [tmp_path / "missing"]):
        result = subprocess.run([script, *arguments], capture_output=True, text=True, check=False)
        assert result.returncode == 2
        assert result.stderr.startswith("usage: ")


# --- pages -------------------------------------------------------------------------------------------------


def test_every_test_folder_has_one_row() -> None:
    paths = [path.relative_to(ROOT).parts for path in project_files()]
    folders = {f"`{parts[1]}/`" for parts in paths if parts[0] == "tests" and len(parts) > 2}
    listed = [row[0] for row in rows(section(page("tests/README.md"), "Folders"))]

    assert listed == sorted(folders)


def test_every_group_is_explained() -> None:
    explained = [row[0] for row in rows(section(page("tests/README.md"), "Groups"))]
    settings = tomllib.loads(page("pyproject.toml"))["tool"]["pytest"]["ini_options"]
    markers = [marker.partition(":")[0] for marker in settings["markers"]]
    assert set(GROUPS) <= set(markers)

    assert explained == [f"`{name}`" for name in ("quick", GROUPS[-1], *HEAVY_GROUPS)]


def commands(text: str) -> Iterator[list[str]]:
    """The words of every command that a page shows or mentions."""
    shown = [line[2:] for block in blocks(text) for line in block.text.splitlines() if line[:2] == "$ "]
    mentions = [line for line in mentioned(text) if line.startswith(SCRIPTS) and line != ".ci/"]
    for line in [*shown, *mentions]:
        yield shlex.split(line, comments=True)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "tests/README.md"])
def test_commands_exist(name: str) -> None:
    found = list(commands(page(name)))

    assert found
    for program, *arguments in found:
        assert program in EXTERNAL or is_executable(program), program
        if program in OPTIONS_OF:
            known = set(re.findall(r"(?<![\w-])--[a-z-]+", page(OPTIONS_OF[program])))
            assert {word for word in arguments if word.startswith("--")} <= known, arguments
        if arguments[:1] == ["-m"]:
            module = ROOT / arguments[1].replace(".", "/")
            assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file(), arguments[1]


def test_the_pages_are_part_of_a_release() -> None:
    included = tomllib.loads(page("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]

    for path in included:
        assert (ROOT / path.lstrip("/")).exists(), path
    assert {"/CONTRIBUTING.md", "/SECURITY.md"} <= set(included)
