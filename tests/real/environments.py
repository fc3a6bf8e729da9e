"""The environments that the real servers and the real clients live in.

What it does: turns one exact version list (`constraints/NAME.txt`) into one virtual environment in a
cache outside the checkout, once. The folder's name carries a hash of the list and of the interpreter, so
a changed list is a new folder and an old one is never half right.

Rules: a build happens under a temporary name and is renamed when it is whole, so an interrupted one
leaves nothing that looks finished. Because of the rename the `#!` lines inside are wrong: programs are
always started as `bin/python bin/PROGRAM` (`Environment.command`). Nothing is installed into the
environment that runs the tests.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.real import repairs

LISTS = Path(__file__).resolve().parent / "constraints"

# The releases in the lists have compiled parts that exist for 3.11 and not for every later Python.
NEEDED_PYTHON = (3, 11)

# The list of the environment that has uv: with pip alone a bare machine is busy for seven minutes.
INSTALLER = "installer"

# A build that takes longer than this (seconds) hangs: pip on a slow line needs about 60.
BUILD_LIMIT = 600


class MissingPrerequisite(RuntimeError):
    """Something this machine must have for the real servers is not there. The text says what and why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One built environment: `name` of its list, `home` its folder."""

    name: str
    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command line that starts `bin/PROGRAM` of this environment."""
        return [str(self.python), str(self.home / "bin" / program), *arguments]


def cache_folder() -> Path:
    """Where environments are kept between runs: `$SKEWGATE_REAL_CACHE`, else below the user's cache."""
    chosen = os.environ.get("SKEWGATE_REAL_CACHE")
    if chosen:
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "skewgate-real"


def build_all(names: Iterable[str]) -> dict[str, Environment]:
    """The environments of these lists, those that are missing built side by side."""
    wanted = list(names)
    python = find_python()
    if find_uv() is None and not all(_home(name, python).exists() for name in wanted):
        # Once, before the others are built side by side with it.
        build(INSTALLER, python)
    # Old sources are full of what Python warns about now, and warnings are errors in this project's tests.
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        built = pool.map(lambda name: build(name, python), wanted)
        return {environment.name: environment for environment in built}


def build(name: str, python: Path) -> Environment:
    """The environment of `constraints/NAME.txt` for this interpreter, from the cache or built now.

    Raises MissingPrerequisite, with the installer's last words, when the installation fails.
    """
    exact_list = LISTS / f"{name}.txt"
    home = _home(name, python)
    environment = Environment(name, home)
    if environment.python.exists():
        return environment
    home.parent.mkdir(parents=True, exist_ok=True)
    workshop = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=home.parent))
    try:
        unfinished = workshop / "environment"
        _install(python, unfinished, exact_list, f"building the environment {name}")
        if packages := repairs.wanted_by(exact_list):
            (site_packages,) = unfinished.glob("lib/python*/site-packages")
            repairs.repair(site_packages, packages)
        try:
            unfinished.rename(home)
        except OSError:
            # Another run of this group was quicker; its result is as good as ours.
            if not environment.python.exists():
                raise
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return environment


def _home(name: str, python: Path) -> Path:
    return cache_folder() / f"{name}-{_fingerprint(LISTS / f'{name}.txt', python)}"


def find_python() -> Path:
    """A Python 3.11: the running one, one on the PATH, or one that uv knows.

    Raises MissingPrerequisite when there is none.
    """
    if sys.version_info[:2] == NEEDED_PYTHON:
        return Path(sys.executable)
    text = ".".join(map(str, NEEDED_PYTHON))
    candidates = [shutil.which(f"python{text}")]
    if uv := find_uv():
        answer = subprocess.run(
            [*uv, "python", "find", "--no-python-downloads", text],
            capture_output=True,
            text=True,
            check=False,
        )
        candidates.append(answer.stdout.strip() if answer.returncode == 0 else None)
    for candidate in candidates:
        if candidate and _is_needed_python(candidate):
            return Path(candidate)
    raise MissingPrerequisite(
        f"the real servers' releases run on Python {text}; the tests run on {platform.python_version()} and"
        f" no python{text} was found on the PATH{' or by uv' if uv else ''}. Install one (Debian:"
        f" python{text} and python{text}-venv; uv: `uv python install {text}`) and run the group again."
    )


def find_uv() -> list[str] | None:
    """The command that starts uv: on the PATH, beside the interpreter, or as a module; None without it."""
    beside = Path(sys.executable).with_name("uv")
    if found := shutil.which("uv"):
        return [found]
    if beside.exists():
        return [str(beside)]
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    return None


def _installer(python: Path) -> list[str] | None:
    """The command that starts uv: the machine's own, or that of the environment `INSTALLER` once built."""
    if own := find_uv():
        return own
    program = _home(INSTALLER, python) / "bin" / "uv"
    return [str(program)] if program.exists() else None


def _install(python: Path, target: Path, exact_list: Path, what: str) -> None:
    """With uv where there is one. Where uv cannot (it may know less of this machine's index and certificates
    than pip does) with pip, which takes minutes."""
    if uv := _installer(python):
        try:
            for step in _uv_steps(uv, python, target, exact_list):
                _run(step, what)
        except MissingPrerequisite:
            shutil.rmtree(target, ignore_errors=True)
        else:
            return
    for step in _pip_steps(python, target, exact_list):
        _run(step, what)


# `--no-deps`: a list is whole, some of its releases contradict each other, and it is taken as written.


def _uv_steps(uv: list[str], python: Path, target: Path, exact_list: Path) -> list[list[str]]:
    inside = str(target / "bin" / "python")
    return [
        [*uv, "venv", "--quiet", "--no-project", "--python", str(python), str(target)],
        [*uv, "pip", "install", "--quiet", "--no-deps", "--python", inside, "-r", str(exact_list)],
    ]


def _pip_steps(python: Path, target: Path, exact_list: Path) -> list[list[str]]:
    pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[str(python), "-m", "venv", str(target)], [*pip, "--no-deps", "-r", str(exact_list)]]


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT, check=False)
    except subprocess.TimeoutExpired as slow:
        raise MissingPrerequisite(f"{what}: no end after {BUILD_LIMIT} s: {' '.join(command)}") from slow
    if done.returncode != 0:
        raise MissingPrerequisite(
            f"{what} failed (exit {done.returncode}): {' '.join(command)}\n"
            f"{(done.stdout + done.stderr)[-3000:]}\n"
            "The group installs real servers and clients from the package index that pip or uv is set up"
            " with; it cannot run without it."
        )


def _fingerprint(exact_list: Path, python: Path) -> str:
    text = f"{_version_of(str(python))}\n{exact_list.read_text()}"
    if repairs.wanted_by(exact_list):
        text += Path(repairs.__file__).read_text()
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _version_of(python: str) -> str:
    asked = subprocess.run(
        [python, "-c", "import sys; print(*sys.version_info[:2], sys.implementation.cache_tag)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout.strip()


def _is_needed_python(python: str) -> bool:
    return _version_of(python).split()[:2] == [str(part) for part in NEEDED_PYTHON]
