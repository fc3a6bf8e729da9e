"""The common parts of all launchers of real servers.

What it does: `Release` and `RunningServer`, configuration files, and databases. A release's own tool makes
its databases once, and they are kept beside its environment (`databases`).

Rules: all files of a run are in the folder that the caller gives. The range of a release is stated as data
and never read from it, so that a test can compare the two.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.kit.networks import LOOPBACK
from tests.real.environments import Environment, kept
from tests.real.processes import Process, StartFailed, responds, stop_all

SCRIPTS = Path(__file__).resolve().parent / "scripts"

Number = tuple[int, int]
Options = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a server, by the name of its package, with the range that it serves."""

    package: str
    number: str
    minimum: Number
    maximum: Number

    @property
    def environment(self) -> str:
        return f"{self.package}-{self.number}"

    @property
    def bottom(self) -> str:
        return "{}.{}".format(*self.minimum)

    @property
    def top(self) -> str:
        return "{}.{}".format(*self.maximum)

    @property
    def range(self) -> tuple[str, str]:
        return self.bottom, self.top

    def serves(self, version: str) -> bool:
        """True when this text is a version that a server of this release serves."""
        major, dot, minor = version.partition(".")
        if not (dot and major.isdecimal() and minor.isdecimal()):
            return False
        return self.minimum <= (int(major), int(minor)) <= self.maximum


class RunningServer:
    def __init__(self, release: Release, process: Process, port: int) -> None:
        self.release = release
        self.process = process
        self.port = port

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start, also after `stop`. Return when it responds."""
        self.process.start()
        self.process.wait_until(lambda: responds(self.port), "responding to HTTP")

    def stop(self) -> None:
        self.process.stop()


Launcher = Callable[[Release, Environment, Path], RunningServer]


@contextlib.contextmanager
def run_all(
    releases: Mapping[str, Release],
    environments: Mapping[str, Environment],
    folder: Path,
    launcher: Launcher,
) -> Iterator[dict[str, RunningServer]]:
    """Start all of these in parallel, and end them afterwards."""
    started: dict[str, RunningServer] = {}

    def launch(member: str) -> None:
        release = releases[member]
        home = folder / f"{release.package}-{member}"
        home.mkdir(parents=True)
        started[member] = launcher(release, environments[release.environment], home)
        started[member].start()

    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(launch, releases))
        yield {member: started[member] for member in releases}
    finally:
        stop_all(server.process for server in started.values())


def write_options(target: Path, options: Options) -> Path:
    text = ""
    for section, entries in options.items():
        text += f"[{section}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
    target.write_text(text)
    return target


def databases(
    environment: Environment, folder: Path, names: tuple[str, ...], commands: list[list[str]]
) -> None:
    """Put these SQLite files into `folder`. `commands` make them once, later calls copy them.

    The commands must not write the path of `folder` into a database: the next run has another folder.
    """

    def make(made: Path) -> None:
        for command in commands:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            if ended.returncode != 0:
                text = (ended.stdout + ended.stderr)[-3000:]
                raise StartFailed(f"{environment.name}: {' '.join(command)} failed\n{text}")
        made.mkdir()
        for name in names:
            shutil.copyfile(folder / name, made / name)

    stored = kept(environment.home / "databases", make)
    for name in names:
        shutil.copyfile(stored / name, folder / name)
        # With a write-ahead log, readers do not block the commit of a writer.
        with sqlite3.connect(folder / name) as connection:
            connection.execute("pragma journal_mode=wal")
        connection.close()


def python_process(
    name: str,
    environment: Environment,
    folder: Path,
    arguments: list[str],
    log: Path,
    variables: Mapping[str, str] | None = None,
) -> Process:
    """A process of the environment's Python, without the Python variables of this run."""
    own_variables = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("OS_", "PYTHON")) and "proxy" not in key.lower()
    }
    # The module of the paste filter that replaces the one of the identity service.
    own_variables |= {"PYTHONPATH": str(SCRIPTS / "standin")} | dict(variables or {})
    process = Process(name, [str(environment.python), *arguments], folder, own_variables)
    process.logs.append(log)
    return process
