"""What the tests of packages are made with: the tools, the locked libraries, and a Debian of their own.

All of it is built once and kept in the cache of the real servers' environments (tests/real/environments.py),
complete or not at all. The tests are root's, as they start systemd: see `Machine`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, Self, final

from tests.real import environments
from tests.real.environments import Environment

ROOT: Final = Path(__file__).resolve().parents[2]
SUITE: Final = "bookworm"
INCLUDED: Final = ("python3-minimal", "python3-venv", "libstdc++6", "systemd", "dbus", "logrotate", "procps")
"""Beyond Debian's essential packages."""
COMPILER: Final = ("gcc", "libc6-dev", "python3-dev")
"""Included where something is compiled."""
LEFT_OUT: Final = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMIT: Final = 600.0
"""Seconds after which a command hangs. To compile the hot path takes half a minute on two idle cores."""


def run(
    *command: object, check: bool = True, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command outside the checkout, with nothing of the tests' own environment that could reach Python.

    Raises AssertionError with its output if it fails and `check` is set.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SKEWGATE_", "PYTHON", "VIRTUAL_ENV"))
    }
    path = f"{os.environ['PATH']}:{SYSTEM_PATH}"
    ended = subprocess.run(
        [str(word) for word in command],
        cwd="/",
        env={**kept, "PATH": path, **(variables or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert not check or ended.returncode == 0, (
        f"exit code {ended.returncode}: {' '.join(map(str, command))}\n{ended.stdout}\n{ended.stderr}"
    )
    return ended


@cache
def tools() -> Environment:
    """The programs of `constraints/packaging.txt`."""
    return environments.build_all(["packaging"])["packaging"]


def tool(name: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run one of them that is a Python script."""
    return run(*tools().command(name, *map(str, arguments)), check=check)


def kept(name: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills, from the cache or made now."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    return environments.kept(environments.cache_folder() / f"{name}-{digest}", make)


def npm_packages(name: str, lock: Path) -> Path:
    """The folder with the npm packages of a folder with a lock, from the cache or installed now."""

    def install(folder: Path) -> None:
        shutil.copytree(lock, folder)
        options = (
            "--loglevel=error",
            "--fetch-retries=5",
            "--fetch-retry-mintimeout=2000",
            "--prefer-offline",
        )
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-progress")
        run("npm", "ci", *options, *quiet, "--prefix", folder)

    return kept(name, (lock / "package-lock.json").read_text(encoding="utf-8"), install)


@cache
def wheelhouse() -> Path:
    """The locked libraries, and what builds the wheel, as files. To install from it needs no network."""
    lock = ROOT / "requirements" / "build.txt"

    def download(folder: Path) -> None:
        arguments = ("download", "--quiet", "--require-hashes", "--dest", folder, "--requirement", lock)
        run(tools().python, "-m", "pip", *arguments)

    return kept("wheelhouse", f"{tools().home}\n{lock.read_text(encoding='utf-8')}", download)


def offline() -> Mapping[str, str]:
    """Variables by which pip installs from the wheelhouse and asks nobody."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheelhouse())}


@cache
def debian(*more: str) -> Path:
    """The root of a small Debian with systemd, Python and `more` packages."""
    options = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    # force-unsafe-io: a root that a power cut spoils is made anew.
    options += [
        "--variant=essential",
        "--mode=root",
        f"--include={','.join((*INCLUDED, *more))}",
        "--dpkgopt=force-unsafe-io",
    ]
    return kept(f"debian-{SUITE}", "\n".join(options), lambda root: _debootstrap(root, options))


def _debootstrap(root: Path, options: list[str]) -> None:
    # 0755 whatever the folder around it has: services of other users live in it.
    run("mmdebstrap", *options, SUITE, root)
    root.chmod(0o755)


@final
class Machine:
    """A Debian that systemd has started, in a container: with a network that is only its own loopback, above
    the root `debian()`, of which it sees a copy in memory. Nothing of it remains."""

    def __init__(self) -> None:
        self._ready = Path(tempfile.mkdtemp(prefix="machine-")) / "ready"
        self._leader = 0

    def __enter__(self) -> Self:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(self._ready))
            ready.settimeout(LIMIT)
            self._process = subprocess.Popen(
                [
                    "systemd-nspawn",
                    "--quiet",
                    "--boot",
                    "--register=no",
                    "--keep-unit",
                    "--console=pipe",
                    "--machine=skewgate-test",
                    "--private-network",
                    "--volatile=overlay",
                    "--notify-ready=yes",
                    "--link-journal=no",
                    f"--directory={debian()}",
                ],
                env={"PATH": SYSTEM_PATH, "NOTIFY_SOCKET": str(self._ready)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                self._wait(ready)
            except BaseException:
                self.__exit__()
                raise
        return self

    def _wait(self, ready: socket.socket) -> None:
        lines: set[str] = set()
        while "READY=1" not in lines:
            lines |= set(ready.recv(4096).decode().splitlines())
        (leader,) = (line for line in lines if line.startswith("X_NSPAWN_LEADER_PID="))
        self._leader = int(leader.partition("=")[2])

    def __exit__(self, *_: object) -> None:
        # Its first process: with it, the kernel ends all others. Nothing there is worth a shutdown.
        if self._leader:
            os.kill(self._leader, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait(LIMIT)
        shutil.rmtree(self._ready.parent)

    def run(self, *command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command inside, as root."""
        inside = (
            "nsenter",
            f"--target={self._leader}",
            "--all",
            "env",
            "-i",
            f"PATH={SYSTEM_PATH}",
            "LANG=C.UTF-8",
        )
        return run(*inside, *command, check=check)

    def write(self, path: str, text: str) -> None:
        """A file inside, readable by everybody."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "file"
            file.write_text(text, encoding="utf-8")
            self.copy(file, path)

    def copy(self, file: Path, path: str) -> None:
        """A file of ours, inside."""
        with file.open("rb") as source:
            write = ("sh", "-c", 'cat >"$0"; chmod 644 "$0"', path)
            inside = ("nsenter", f"--target={self._leader}", "--all", *write)
            subprocess.run(inside, stdin=source, check=True, timeout=LIMIT)


@contextmanager
def machine_with_gateway(wheel: Path, configuration: str) -> Iterator[Machine]:
    """One that has booted, with the gateway in /opt and its configuration in /etc."""
    with Machine() as machine:
        machine.run("systemctl", "is-system-running", "--wait")
        machine.run("mkdir", "/root/wheels", "/etc/skewgate")
        for file in (wheel, *wheelhouse().iterdir()):
            machine.copy(file, f"/root/wheels/{file.name}")
        machine.run("/usr/bin/python3", "-m", "venv", "/opt/skewgate")
        offline = ("--no-index", "--find-links", "/root/wheels")
        machine.run("/opt/skewgate/bin/pip", "install", "--quiet", *offline, "skewgate[uvloop]")
        machine.write("/etc/skewgate/skewgate.yaml", configuration)
        yield machine
