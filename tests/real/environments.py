"""The virtual environments of the real servers and the real clients.

What it does: for each list of exact versions (`constraints/NAME.txt`), it builds one environment in a cache
outside the checkout, once. The name of the folder contains a hash of the list and of the interpreter, so that
a changed list gets a new folder.

Rules: a build has a temporary name and is renamed when it is complete, so that an interrupted one never looks
complete. Because of the rename, the `#!` lines inside are wrong: programs are always started as
`bin/python bin/PROGRAM` (`Environment.command`). Nothing is installed into the environment of the tests.
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
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.real import repairs

LISTS = Path(__file__).resolve().parent / "constraints"

# The compiled packages in the lists exist for 3.11, but not for every later Python.
NEEDED_PYTHON = (3, 11)

# The list of the environment with uv: with pip only, a fresh machine needs seven minutes.
INSTALLER = "installer"

# Seconds after which a build is considered to hang. pip on a slow network needs about 60.
BUILD_LIMIT = 600


class MissingPrerequisite(RuntimeError):
    """Something that the real servers need is missing on this machine. The text says what and why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One built environment. `name`: that of its list. `home`: its folder."""

    name: str
    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    def command(self, program: str, *arguments: str) -> list[str]:
        return [str(self.python), str(self.home / "bin" / program), *arguments]


def cache_folder() -> Path:
    """The cache of environments: `$SKEWGATE_REAL_CACHE`, else a folder in the user's cache."""
    configured = os.environ.get("SKEWGATE_REAL_CACHE")
    if configured:
        return Path(configured).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().resolve() / "skewgate-real"


def build_all(names: Iterable[str]) -> dict[str, Environment]:
    """The environments of these lists. Missing ones are built in parallel."""
    wanted = list(names)
    python = find_python()
    if find_uv() is None and not all(_home(name, python).exists() for name in wanted):
        # Build it first: the parallel builds use it.
        build(INSTALLER, python)
    # Old sources cause many warnings, and warnings are errors in the tests of this project.
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        built = pool.map(lambda name: build(name, python), wanted)
        return {environment.name: environment for environment in built}


def build(name: str, python: Path) -> Environment:
    """The environment of `constraints/NAME.txt` for this interpreter, from the cache or built now.

    Raises MissingPrerequisite, with the end of the installer's output, when the installation fails.
    """
    exact_list = LISTS / f"{name}.txt"

    def make(home: Path) -> None:
        _install(python, home, exact_list, f"building the environment {name}")
        if packages := repairs.requested_by(exact_list):
            (site_packages,) = home.glob("lib/python*/site-packages")
            repairs.repair(site_packages, packages)

    return Environment(name, kept(_home(name, python), make))


def kept(home: Path, make: Callable[[Path], None]) -> Path:
    """The folder or file that `make` makes, from the cache or made now: complete, or not at all."""
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as folder:
            made = Path(folder) / home.name
            make(made)
            try:
                made.rename(home)
            except OSError:
                # Another run of this group was faster. Its result is as good.
                if not home.exists():
                    raise
    return home


def _home(name: str, python: Path) -> Path:
    return cache_folder() / f"{name}-{_fingerprint(LISTS / f'{name}.txt', python)}"


def find_python() -> Path:
    """Find a Python 3.11: the running one, one on the PATH, or one that uv knows.

    Raises MissingPrerequisite when there is none.
    """
    if sys.version_info[:2] == NEEDED_PYTHON:
        return Path(sys.executable)
    text = ".".join(map(str, NEEDED_PYTHON))
    candidates = [shutil.which(f"python{text}")]
    if uv := find_uv():
        found = subprocess.run(
            [*uv, "python", "find", "--no-python-downloads", text],
            capture_output=True,
            text=True,
            check=False,
        )
        candidates.append(found.stdout.strip() if found.returncode == 0 else None)
    for candidate in candidates:
        if candidate and _is_needed_python(candidate):
            return Path(candidate)
    raise MissingPrerequisite(
        f"the releases of the real servers need Python {text}; the tests run on"
        f" {platform.python_version()} and no python{text} was found on the PATH{' or by uv' if uv else ''}."
        f" Install one (Debian: python{text} and python{text}-venv; uv: `uv python install {text}`) and run"
        " the group again."
    )


def find_uv() -> list[str] | None:
    """The command that starts uv: on the PATH, beside the interpreter, or as a module; None: no uv."""
    beside = Path(sys.executable).with_name("uv")
    if found := shutil.which("uv"):
        return [found]
    if beside.exists():
        return [str(beside)]
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    return None


def _installer(python: Path) -> list[str] | None:
    """The command that starts uv: the machine's own, or the one in the environment `INSTALLER`."""
    if own := find_uv():
        return own
    program = _home(INSTALLER, python) / "bin" / "uv"
    return [str(program)] if program.exists() else None


def _install(python: Path, target: Path, exact_list: Path, purpose: str) -> None:
    """Install with uv if possible, else with pip, which takes minutes.

    uv may fail where pip works, because it knows less of the machine's index and certificates.
    """
    inside = str(target / "bin" / "python")
    # A list is complete. Some of its releases contradict each other, and are installed anyway.
    packages = ["install", "--quiet", "--no-deps", "-r", str(exact_list)]
    if uv := _installer(python):
        try:
            _run([*uv, "venv", "--quiet", "--no-project", "--python", str(python), str(target)], purpose)
            _run([*uv, "pip", *packages, "--python", inside], purpose)
        except MissingPrerequisite:
            shutil.rmtree(target, ignore_errors=True)
        else:
            return
    _run([str(python), "-m", "venv", str(target)], purpose)
    _run([inside, "-m", "pip", "--disable-pip-version-check", *packages], purpose)


def _run(command: list[str], purpose: str) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT, check=False)
    except subprocess.TimeoutExpired as slow:
        raise MissingPrerequisite(f"{purpose}: not done after {BUILD_LIMIT} s: {' '.join(command)}") from slow
    if ended.returncode != 0:
        raise MissingPrerequisite(
            f"{purpose} failed (exit {ended.returncode}): {' '.join(command)}\n"
            f"{(ended.stdout + ended.stderr)[-3000:]}\n"
            "The group installs real servers and clients from the configured package index. It cannot run"
            " without that."
        )


def _fingerprint(exact_list: Path, python: Path) -> str:
    text = f"{_version_of(str(python))}\n{exact_list.read_text()}"
    if repairs.requested_by(exact_list):
        text += Path(repairs.__file__).read_text()
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _version_of(python: str) -> str:
    printed = subprocess.run(
        [python, "-c", "import sys; print(*sys.version_info[:2], sys.implementation.cache_tag)"],
        capture_output=True,
        text=True,
        check=False,
    )
    return printed.stdout.strip()


def _is_needed_python(python: str) -> bool:
    return _version_of(python).split()[:2] == [str(part) for part in NEEDED_PYTHON]
