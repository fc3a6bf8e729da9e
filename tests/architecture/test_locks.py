"""The locks hold what pyproject.toml asks for, in one version each, and every file of it by its hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import ROOT

PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?: ;[^\\\n]*)? \\\n"
    r"(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+",
    re.MULTILINE,
)
LOCKS = ("runtime", "build", "dev")


def read_lock(path: Path) -> dict[str, str]:
    """The version of every package that the lock pins, by its canonical name."""
    return {
        canonicalize_name(pin["name"]): pin["version"]
        for pin in PIN.finditer(path.read_text(encoding="utf-8"))
    }


def project() -> dict[str, list[str]]:
    """The requirements of pyproject.toml for each lock."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = table["optional-dependencies"]
    runtime = [*table["dependencies"], *extras["uvloop"]]
    build = [*runtime, *extras["build"]]
    return {"runtime": runtime, "build": build, "dev": [*build, *extras["dev"]]}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_satisfies_the_project(name: str) -> None:
    pinned = read_lock(ROOT / "requirements" / f"{name}.txt")

    for text in project()[name]:
        requirement = Requirement(text)
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{text}: not locked, run requirements/compile"
        assert requirement.specifier.contains(version), (
            f"{text}: locked is {version}, run requirements/compile"
        )


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_nothing_but_hashed_pins(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")

    rest = [line for line in PIN.sub("", text).splitlines() if line and not line.startswith("#")]

    assert rest == []


def test_each_lock_only_adds() -> None:
    runtime, build, dev = (read_lock(ROOT / "requirements" / f"{name}.txt") for name in LOCKS)

    assert runtime.items() <= build.items() <= dev.items()


def test_a_wheel_is_compiled_with_what_is_locked() -> None:
    """Whoever builds the compiled wheel gets the hook from its table, and `./run build` from the lock."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = table["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]

    assert set(hook["dependencies"]) <= set(table["project"]["optional-dependencies"]["build"])
