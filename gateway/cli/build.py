"""`skewgate build`: compiles the hot path of a checkout into its environment, if a C compiler is installed.

It has hatchling make the wheel from a copy of the sources, because hatchling's hook puts compiled modules
beside them, and keeps those modules, which `runtime.compiled` finds. Running gateways are not touched.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

import click

from gateway.cli.command import verb
from gateway.errors import BuildError
from gateway.runtime.compiled import BUILDS, SOURCES, builds, stamp

COPIED: Final = ("pyproject.toml", "README.md", "LICENSE", "requirements/build.txt", "docs/skewgate.1")
"""Files outside of `FOLDERS` that the wheel and its stamp are made from."""
FOLDERS: Final = ("gateway", "config", "deploy")
ENABLED: Final = {"HATCH_BUILD_HOOK_ENABLE_MYPYC": "1"}
REMEDY: Final = "On Debian and Ubuntu: apt-get install gcc libc6-dev python3-dev"


@verb("build")
@click.option(
    "--check", is_flag=True, help="build nothing; exit with 1 and the reason if a build is not possible here"
)
def build(*, check: bool) -> int:
    """Compile the hot path. Raises `BuildError` if that is not possible here, or fails."""
    if not (SOURCES / "requirements" / "build.txt").exists():
        raise BuildError(
            f"{SOURCES} is not a checkout: nothing to compile (a wheel was compiled when it was built)"
        )
    wanted = BUILDS / stamp(SOURCES)
    if not wanted.is_dir():
        require_compiler()
    if check:
        return 0
    BUILDS.mkdir(exist_ok=True)
    with (BUILDS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if wanted.is_dir():
            print(f"the compiled build is up to date: {wanted}")
            return 0
        began = time.monotonic()
        install_tools(wanted.name)
        number = make(wanted)
        for old in builds():
            if old != wanted:
                shutil.rmtree(old)
    print(f"compiled {number} modules in {time.monotonic() - began:.0f} s: {wanted}")
    return 0


def require_compiler() -> None:
    """Check the compiler and Python's headers by compiling one line. Raises `BuildError`."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(command[0]) is None:
        raise BuildError(f"no compiled build: the C compiler `{command[0]}` is not installed. {REMEDY}")
    folders = dict.fromkeys(sysconfig.get_path(name) for name in ("include", "platinclude"))
    if not any((Path(folder) / "Python.h").exists() for folder in folders):
        raise BuildError(
            f"no compiled build: the headers of {sys.executable} are missing"
            f" ({sysconfig.get_path('include')}/Python.h). {REMEDY}"
        )
    check = [*command, *(f"-I{folder}" for folder in folders), "-fsyntax-only", "-x", "c", "-"]
    ended = subprocess.run(check, input="#include <Python.h>\n", capture_output=True, text=True, check=False)
    if ended.returncode:
        reason = ended.stderr.strip().partition("\n")[0]
        raise BuildError(f"no compiled build: the C compiler does not work: {reason}. {REMEDY}")


def install_tools(text: str) -> None:
    """Install the locked build tools, but only into an environment that requirements/install.py has made."""
    if not (Path(sys.prefix) / ".skewgate-runtime").exists():
        return
    # Run by the base interpreter, because the environment itself may be recreated.
    program = getattr(sys, "_base_executable", sys.executable)
    _execute([program, str(SOURCES / "requirements" / "install.py"), sys.prefix, "build", text], SOURCES, {})


def make(wanted: Path) -> int:
    """Build the wheel, keep its compiled modules in the folder `wanted`, and return how many of them are the
    gateway's. The folder is renamed last, so it is complete if it exists."""
    with tempfile.TemporaryDirectory(prefix=".", dir=BUILDS) as name:
        scratch = Path(name)
        copy, unpacked = scratch / "copy", scratch / "unpacked"
        for folder in FOLDERS:
            ignored = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(SOURCES / folder, copy / folder, ignore=ignored)
        for file in COPIED:
            (copy / file).parent.mkdir(exist_ok=True)
            shutil.copy(SOURCES / file, copy / file)
        if stamp(copy) != wanted.name:
            raise BuildError("the sources were changed during the build; run the command again")
        _execute(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch)], copy, ENABLED
        )
        (wheel,) = scratch.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            modules = [member for member in archive.namelist() if member.endswith(EXTENSION_SUFFIXES[0])]
            archive.extractall(unpacked, modules)
        unpacked.rename(wanted)
    return sum(module.startswith("gateway/") for module in modules)


def _execute(command: Sequence[str], folder: Path, variables: dict[str, str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise BuildError(f"no compiled build: {' '.join(command)} failed:\n{ended.stdout.rstrip()}")
