"""The peers of the bench: the command, configuration, version and checks of each.

Every peer is one process on one core in front of the same two backends. The configurations are in peers/.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from bench.check import check_forwarding, check_refusal, check_relay, check_routing
from bench.envoy import envoy_binary
from bench.processes import BenchError, find_program

HERE = Path(__file__).parent
CONFIGURATIONS = HERE / "peers"
#: The Debian package of each program.
PACKAGES = {"nginx": "nginx", "haproxy": "haproxy", "wrk": "wrk", "taskset": "util-linux"}


@dataclass(frozen=True)
class Slot:
    """The parameters of one start of a peer: its ports, those of the backends, a directory for its files."""

    directory: Path
    port: int
    admin: int
    old: int
    new: int

    def fill(self, template: Path) -> Path:
        """Write the template with the values of `@PORT@`, `@ADMIN@`, `@OLD@`, `@NEW@` and `@DIR@`."""
        text = template.read_text()
        values = {
            "PORT": self.port,
            "ADMIN": self.admin,
            "OLD": self.old,
            "NEW": self.new,
            "DIR": self.directory,
        }
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        filled = self.directory / template.name
        filled.write_text(text)
        return filled


Check = Callable[[str, int], None]


@dataclass(frozen=True)
class Peer:
    """One proxy in the bench. `package`: the Debian package that it needs."""

    name: str
    command: Callable[[Slot], list[str]]
    version: Callable[[], str]
    checks: tuple[Check, ...] = (check_routing, check_forwarding)
    package: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    #: The goal for the ratio of the gateway's CPU per request to this peer's: at most this.
    target: float | None = None


def nginx_command(configuration: Path, directory: Path) -> list[str]:
    program = find_program("nginx") or "nginx"
    return [program, "-e", "stderr", "-p", str(directory), "-c", str(configuration)]


def backends_command(slot: Slot) -> list[str]:
    slot.fill(HERE / "backends" / "backend.conf")
    # The peer's file is called nginx.conf too, so this one gets another name.
    filled = slot.fill(HERE / "backends" / "nginx.conf")
    return nginx_command(filled.rename(slot.directory / "backends.conf"), slot.directory)


def missing_packages(peers: list[Peer]) -> list[str]:
    """Debian packages that are missing. nginx is always needed, for the backends."""
    needed = {"nginx", "wrk", "taskset"} | {peer.package for peer in peers if peer.package}
    return [package for name, package in PACKAGES.items() if name in needed and not find_program(name)]


@cache
def program_version(name: str, *arguments: str) -> str:
    """The first text in the output of a program that looks like a version."""
    try:
        printed = subprocess.run(
            [find_program(name) or name, *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except OSError as error:
        raise BenchError(f"{name}: {error}") from error
    found = re.search(r"\d+\.\d+\.\d+", printed.stdout + printed.stderr)
    return found.group() if found else "unknown"


def _envoy_command(slot: Slot) -> list[str]:
    configuration = slot.fill(CONFIGURATIONS / "envoy.yaml")
    options = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
    return [envoy_binary(), "-c", str(configuration), *options]


def loop_name(wanted: str | None) -> str:
    """The event loop of the Python programs: the option, else SKEWGATE_LOOP, else uvloop if installed."""
    if found := wanted or os.environ.get("SKEWGATE_LOOP"):
        return found
    return "uvloop" if find_spec("uvloop") else "asyncio"


def _gateway_command(override: str | None) -> Callable[[Slot], list[str]]:
    def command(slot: Slot) -> list[str]:
        configuration = str(slot.fill(CONFIGURATIONS / "skewgate.yaml"))
        if override:
            return [part.replace("{config}", configuration) for part in shlex.split(override)]
        return [sys.executable, "-P", "-m", "gateway", "run", "-c", configuration]

    return command


def _distribution(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "from the checkout"


def _python_peer(module: str, *ports: str) -> Callable[[Slot], list[str]]:
    def command(slot: Slot) -> list[str]:
        numbers = [str(getattr(slot, port)) for port in ("port", *ports)]
        return [sys.executable, "-P", "-m", f"bench.peers.{module}", *numbers]

    return command


def earlier_gateway(checkout: Path, loop: str) -> Peer:
    """The gateway of another checkout, in this environment and with this configuration."""
    return Peer(
        "earlier",
        _gateway_command(None),
        lambda: str(checkout),
        checks=(check_routing, check_forwarding, check_refusal),
        environment={"SKEWGATE_LOOP": loop, "PYTHONPATH": str(checkout)},
    )


def lineup(loop: str, gateway_command: str | None, earlier: Path | None = None) -> list[Peer]:
    """All peers, the gateway first. The Python programs run on the same event loop."""
    environment = {"SKEWGATE_LOOP": loop}
    loop_version = f"uvloop {_distribution('uvloop')}" if loop == "uvloop" else loop
    return [
        Peer(
            "gateway",
            _gateway_command(gateway_command),
            lambda: f"{_distribution('skewgate')}, {loop_version}",
            checks=(check_routing, check_forwarding, check_refusal),
            environment=environment,
        ),
        *([earlier_gateway(earlier, loop)] if earlier else []),
        Peer(
            "nginx",
            lambda slot: nginx_command(slot.fill(CONFIGURATIONS / "nginx.conf"), slot.directory),
            lambda: program_version("nginx", "-v"),
            package="nginx",
            target=2.0,
        ),
        Peer(
            "haproxy",
            lambda slot: [
                find_program("haproxy") or "haproxy",
                "-db",
                "-f",
                str(slot.fill(CONFIGURATIONS / "haproxy.cfg")),
            ],
            lambda: program_version("haproxy", "-v"),
            package="haproxy",
        ),
        Peer("envoy", _envoy_command, lambda: program_version(envoy_binary(), "--version"), target=0.85),
        Peer(
            "aiohttp",
            _python_peer("aiohttp_proxy", "old", "new"),
            lambda: f"{_distribution('aiohttp')}, {loop_version}",
            environment=environment,
            target=0.35,
        ),
        Peer(
            "relay",
            _python_peer("tcp_relay", "new"),
            lambda: f"asyncio protocols, {loop_version}",
            checks=(check_relay,),
            environment=environment,
        ),
    ]
