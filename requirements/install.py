"""Builds the project's virtual environment; `run` and `test` call it when their stamp does not match, and
`skewgate build` for its tools.

    python requirements/install.py VENV LEVEL STAMP

LEVEL is `runtime`, `build` (adds what compiling needs) or `dev`, and names the lock beside this file. STAMP
is the text by which the callers recognise a finished environment; it is written last, so an interrupted
set-up never passes for a finished one.

This file runs before anything is installed: the standard library only. It must not write to standard output,
which belongs to the command that follows.

The project itself is linked, not built, because a build would need the network: a path file, a `skewgate`
command and the metadata by which importlib.metadata finds both. Its one C file is compiled if it can be.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEELS_VARIABLE = "SKEWGATE_WHEELS"
"""A folder of wheels to install from, instead of the package registry."""
LEVELS = ("runtime", "build", "dev")
"""The lock of each contains those before it, pin for pin."""


class SetupError(Exception):
    """Set-up cannot go on; the text says what the user can do about it."""


def say(text: str) -> None:
    """Tell the user what is going on, away from standard output."""
    print(f"skewgate: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def only_one(venv: Path) -> Iterator[None]:
    """Let one set-up at a time work on `venv`; the kernel ends the lock with its holder."""
    try:
        venv.parent.mkdir(parents=True, exist_ok=True)
        file = venv.with_name(f"{venv.name}.lock").open("w", encoding="utf-8")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise SetupError(
            f"{venv} cannot be made here: {error.strerror}. Name a place for it that can be written:"
            " SKEWGATE_VENV=$HOME/.cache/skewgate ./run"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another set-up of {venv} is under way, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def stamp_file(venv: Path, level: str) -> Path:
    """Where the stamp of `level` is kept; the shell scripts know the same place."""
    return venv / f".skewgate-{level}"


def holds(venv: Path, level: str, stamp: str) -> bool:
    """Whether `venv` is finished for `level`."""
    try:
        return stamp_file(venv, level).read_text(encoding="utf-8") == stamp
    except OSError:
        return False


def lock_stamp(level: str) -> str:
    """What the installed packages depend on: the lock, the interpreter, the place (scripts name both)."""
    lock = (ROOT / "requirements" / f"{level}.txt").read_text(encoding="utf-8")
    return f"{sys.version}\n{sys.base_prefix}\n{ROOT}\n{lock}"


def create(venv: Path, uv: str | None) -> None:
    """Make an empty environment in the place of whatever stood there.

    Raises:
        SetupError: the place holds something else than an environment, or Python lacks its ensurepip.
    """
    if venv.exists():
        if not (venv / "pyvenv.cfg").exists() and any(venv.iterdir()):
            raise SetupError(f"{venv} exists and is no virtual environment; it is left alone")
        shutil.rmtree(venv)
    if uv is None and find_spec("ensurepip") is None:
        package = f"python3.{sys.version_info.minor}-venv"
        raise SetupError(
            f"{sys.executable} has no ensurepip, which setting up needs. Install what your system calls it"
            f" (Debian, Ubuntu: apt-get install {package}), or install uv."
        )
    execute([sys.executable, "-m", "venv", *([] if uv is None else ["--without-pip"]), str(venv)])


def install(venv: Path, lock: Path, uv: str | None) -> None:
    """Install exactly what `lock` names; every file must have one of the hashes given there.

    Raises:
        SetupError: that was not possible. The text says what was missing, and how to bring it.
    """
    python = str(venv / "bin" / "python")
    arguments = ["--require-hashes", "--requirement", str(lock)]
    if (folder := wheels()) is not None:
        arguments += ["--no-index", "--find-links", str(folder)]
    if uv is not None:
        command = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *arguments]
    else:
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
        command = [python, "-m", "pip", "install", *quiet, *arguments]
    try:
        execute(command)
    except SetupError as error:
        raise SetupError(f"{str(error).rstrip()}\n\n{advice(lock, folder)}") from None


def wheels() -> Path | None:
    """The folder to install from, or None for the package registry.

    Raises:
        SetupError: it is not there.
    """
    text = os.environ.get(WHEELS_VARIABLE)
    if not text:
        return None
    folder = Path(text).absolute()
    if not folder.is_dir():
        raise SetupError(f"{WHEELS_VARIABLE} is {text}, which is no folder")
    return folder


def needs() -> str:
    """Where packages come from, for the user."""
    folder = wheels()
    return "needs the package registry" if folder is None else f"from {folder}"


def advice(lock: Path, folder: Path | None) -> str:
    """What the user can do when packages cannot be had."""
    name = lock.relative_to(ROOT)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    bring = (
        f"    {python} -m pip download --require-hashes -r {name} -d wheels\n"
        "on a machine with a network (the same system, the same Python), bring the folder, and start with\n"
        f"    {WHEELS_VARIABLE}=wheels ./run"
    )
    if folder is not None:
        return f"{folder} lacks packages of {name}, or has other files of them. Make it anew:\n{bring}"
    return (
        f"The packages of {name} could not be installed from the registry, or from its mirror\n"
        "if the settings of pip or uv name one. Without a network, make a folder of wheels:\n"
        f"{bring}"
    )


def execute(command: list[str]) -> str:
    """Run a command and keep quiet about it unless it fails. Returns what it printed.

    Raises:
        SetupError: it failed; the text holds everything that it said.
    """
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True, check=False
    )
    if done.returncode:
        raise SetupError(f"failed with exit code {done.returncode}: {' '.join(command)}\n{done.stdout}")
    return done.stdout


def link(venv: Path) -> None:
    """Put the project on the environment's path, with its command and its metadata, without building it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    site = venv / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / f"{name}.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    for old in site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(old)
    metadata = site / f"{name}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
    )
    (metadata / "INSTALLER").write_text("requirements/install.py\n", encoding="utf-8")
    scripts = "".join(f"{command} = {entry}\n" for command, entry in project["scripts"].items())
    (metadata / "entry_points.txt").write_text(f"[console_scripts]\n{scripts}", encoding="utf-8")
    for command, entry in project["scripts"].items():
        write_command(venv / "bin" / command, venv, entry)


def write_command(path: Path, venv: Path, entry: str) -> None:
    """Write one command. /bin/sh finds the interpreter: a #! line allows neither blanks nor a long path."""
    module, function = entry.split(":")
    path.write_text(
        "#!/bin/sh\n"
        f"'''exec' '{venv}/bin/python' -P \"$0\" \"$@\"\n"
        "' '''\n"
        "import sys\n\n"
        f"from {module} import {function}\n\n"
        f"sys.exit({function}())\n",
        encoding="utf-8",
    )
    path.chmod(0o755)


def compile_matcher(venv: Path) -> None:
    """Compile the one C file of the project into the environment if a C compiler is installed, and say so.
    Without one the gateway does the same in Python, so this never fails."""
    command = [str(venv / "bin" / "python"), "-P", "-m", "gateway", "build", "--matcher"]
    with contextlib.suppress(SetupError):
        execute([*command, "--check"])
        try:
            said = execute(command)
        except SetupError as error:
            said = str(error)
        if "up to date" not in said:
            say(said.rstrip())


def set_up(venv: Path, level: str, stamp: str) -> None:
    """Bring `venv` to `level`: anew where its packages are others than the lock's, otherwise by adding."""
    uv = shutil.which("uv")
    packages = {name: lock_stamp(name) for name in LEVELS[: LEVELS.index(level) + 1]}
    usable = (venv / "bin" / "python").exists() and holds(venv, "lock-runtime", packages["runtime"])
    # What an older lock left behind cannot be told from what the new one wants.
    usable = usable and all(
        holds(venv, f"lock-{name}", text)
        for name, text in packages.items()
        if stamp_file(venv, f"lock-{name}").exists()
    )
    if not usable:
        say(f"setting up {venv} with {'uv' if uv else 'pip'} (once; {needs()})")
        create(venv, uv)
    if not holds(venv, f"lock-{level}", packages[level]):
        if usable:
            say(f"adding the {level} tools to {venv} (once; {needs()})")
        install(venv, ROOT / "requirements" / f"{level}.txt", uv)
        for name, text in packages.items():
            stamp_file(venv, f"lock-{name}").write_text(text, encoding="utf-8")
    link(venv)
    compile_matcher(venv)
    stamp_file(venv, level).write_text(stamp, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Set up and return the exit code: 0, 1 (set-up failed) or 2 (called wrongly)."""
    if len(arguments) != 3 or arguments[1] not in LEVELS:
        print(__doc__, file=sys.stderr)
        return 2
    venv, level, stamp = Path(arguments[0]).absolute(), arguments[1], arguments[2]
    try:
        with only_one(venv):
            if not holds(venv, level, stamp):
                set_up(venv, level, stamp)
    except (SetupError, OSError) as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
