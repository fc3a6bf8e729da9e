"""`skewgate build`: compiles the hot path of a checkout into its environment, if a C compiler is installed.

It has hatchling make the compiled wheel and keeps its compiled modules, which `runtime.compiled` finds. With
`--matcher` it compiles one C file, with the flags of the interpreter's own extension modules and without any
tool: `./run` does so when it sets up an environment. Running gateways are not touched.
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
from itertools import dropwhile
from pathlib import Path
from typing import Final

import click

from gateway.cli.command import verb
from gateway.errors import BuildError
from gateway.runtime.compiled import BUILDS, MATCHER, MATCHERS, SOURCES, matcher_source, matcher_stamp, stamp

ENABLED: Final = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "1"}
REMEDY: Final = "On Debian and Ubuntu: apt-get install gcc libc6-dev python3-dev"


@verb("build")
@click.option(
    "--check", is_flag=True, help="build nothing; exit with 1 and the reason if a build is not possible here"
)
@click.option(
    "--matcher",
    is_flag=True,
    help="compile only the matcher of message heads: one C file, in about a second, with no further tool",
)
def build(*, check: bool, matcher: bool) -> int:
    """Compile the hot path. Raises `BuildError` if that is not possible here, or fails."""
    if not (SOURCES / "requirements" / "build.txt").exists():
        raise BuildError(
            f"{SOURCES} is not a checkout: nothing to compile (a wheel was compiled when it was built)"
        )
    wanted = MATCHERS / matcher_stamp(SOURCES) if matcher else BUILDS / stamp(SOURCES)
    if not wanted.is_dir():
        require_compiler()
    if check:
        return 0
    what = "matcher" if matcher else "build"
    wanted.parent.mkdir(exist_ok=True)
    with (wanted.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        if wanted.is_dir():
            print(f"the compiled {what} is up to date: {wanted}")
            return 0
        began = time.monotonic()
        # Renamed last, so the folder is complete if it exists.
        with tempfile.TemporaryDirectory(prefix=".", dir=wanted.parent) as name:
            made = Path(name, "made")
            made.mkdir()
            number = make_matcher(made) if matcher else make(made, wanted.name)
            made.rename(wanted)
        for old in wanted.parent.iterdir():
            if old.is_dir() and old != wanted:
                shutil.rmtree(old)
    what = "the matcher of message heads" if matcher else f"{number} modules"
    print(f"compiled {what} in {time.monotonic() - began:.1f} s: {wanted}")
    return 0


def require_compiler() -> None:
    """Check the compiler and Python's headers by compiling one line. Raises `BuildError`."""
    command = compiler()
    if shutil.which(command[0]) is None:
        raise BuildError(f"no compiled build: the C compiler `{command[0]}` is not installed. {REMEDY}")
    if not any((Path(folder) / "Python.h").exists() for folder in includes()):
        raise BuildError(
            f"no compiled build: the headers of {sys.executable} are missing"
            f" ({sysconfig.get_path('include')}/Python.h). {REMEDY}"
        )
    check = [*command, *(f"-I{folder}" for folder in includes()), "-fsyntax-only", "-x", "c", "-"]
    ended = subprocess.run(check, input="#include <Python.h>\n", capture_output=True, text=True, check=False)
    if ended.returncode:
        reason = ended.stderr.strip().partition("\n")[0] or f"`{command[0]}` ends with {ended.returncode}"
        raise BuildError(f"no compiled build: the C compiler does not work: {reason}. {REMEDY}")


def compiler() -> list[str]:
    """The command of the C compiler."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def includes() -> tuple[str, ...]:
    """The folders of Python's headers."""
    return tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("include", "platinclude")))


def make_matcher(made: Path) -> int:
    """Compile the matcher into the folder `made`, and return the number of modules, one."""
    flags = [
        word for name in ("CFLAGS", "CCSHARED") for word in shlex.split(sysconfig.get_config_var(name) or "")
    ]
    # It begins with the interpreter's own compiler.
    linked = dropwhile(
        lambda word: not word.startswith("-"), shlex.split(sysconfig.get_config_var("LDSHARED"))
    )
    module = made / f"{MATCHER.replace('.', '/')}{EXTENSION_SUFFIXES[0]}"
    module.parent.mkdir(parents=True)
    folders = (f"-I{folder}" for folder in includes())
    source = str(matcher_source(SOURCES))
    _execute([*compiler(), *flags, *linked, *folders, source, "-o", str(module)], SOURCES, {})
    return 1


def install_tools(text: str) -> None:
    """Install the locked build tools, but only into an environment that requirements/install.py has made."""
    if not (Path(sys.prefix) / ".skewgate-runtime").exists():
        return
    # Run by the base interpreter, because the environment itself may be recreated.
    program = getattr(sys, "_base_executable", sys.executable)
    _execute([program, str(SOURCES / "requirements" / "install.py"), sys.prefix, "build", text], SOURCES, {})


def make(made: Path, text: str) -> int:
    """Build the wheel of the sources with the stamp `text`, put its compiled modules into the folder `made`,
    and return how many of them are the gateway's."""
    install_tools(text)
    with tempfile.TemporaryDirectory() as scratch:
        _execute([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", scratch], SOURCES, ENABLED)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            modules = [member for member in archive.namelist() if member.endswith(EXTENSION_SUFFIXES[0])]
            archive.extractall(made, modules)
    if stamp(SOURCES) != text:
        raise BuildError("the sources were changed during the build; run the command again")
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
