"""HAProxy in front of a fleet of the demonstration, for comparison with the gateway.

It is a plain round-robin balancer in a process of its own, configured as its manual recommends: it checks its
servers as often as the gateway probes them, and retries a failed connection at another server. It knows
nothing of versions, which is the point of the comparison. So nothing of `gateway.engines` may be used here.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Final, final

import aiohttp

from gateway.demo.fleet import EmbeddedFleet, ServiceFleet
from gateway.demo.servers import LOOPBACK
from gateway.errors import StartupError
from gateway.runtime.terminal import plain

CONFIGURATION: Final = """\
global
    nbthread 1
    maxconn 1000

defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 1s    # as `timeouts.backend_head` in config.yaml
    timeout check 1s
    option forwardfor
    option httpchk GET /
    option redispatch 1
    retries 3
"""
ALIVE: Final = "/.haproxy-alive"
"""Path that HAProxy answers itself, to show that it runs."""
START_WITHIN: Final = 10.0
"""Maximum seconds until HAProxy answers. It takes milliseconds."""
STOP_WITHIN: Final = 5.0
"""Maximum seconds for requests in flight when HAProxy stops."""
SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Folders that are searched after `PATH`, which lacks `sbin` for ordinary users."""


def find_program() -> str:
    """Return the path of HAProxy. Raises `StartupError` if it is not installed."""
    path = shutil.which("haproxy") or shutil.which("haproxy", path=SEARCH_PATH)
    if path is None:
        raise StartupError(
            "--compare needs HAProxy, which is not installed: `apt-get install haproxy`, "
            "`dnf install haproxy` or `brew install haproxy`"
        )
    return path


def version_of(path: str) -> str:
    """Return HAProxy's version, such as `2.6.12`; empty if the program does not show it."""
    with suppress(OSError, subprocess.SubprocessError):
        shown = subprocess.run([path, "-v"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
        if found := re.match(r"HA-?Proxy version ([0-9]+(?:\.[0-9]+)*)", shown.stdout):
            return found[1]
    return ""


def configuration(
    services: Sequence[ServiceFleet], sockets: Mapping[str, socket.socket], interval: float
) -> str:
    """Return HAProxy's configuration. `sockets`: listening sockets by service, which HAProxy inherits."""
    lines = [CONFIGURATION]
    for each in services:
        lines += [
            f"listen {each.name}",
            f"    bind fd@{sockets[each.name].fileno()}",
            f"    monitor-uri {ALIVE}",
            "    balance roundrobin",
            f"    default-server check inter {round(interval * 1000)}ms fall 3 rise 2",
            *(f"    server {server.name} {LOOPBACK}:{server.port}" for server in each.servers),
            "",
        ]
    return "\n".join(lines)


@final
class HAProxyFront:
    """HAProxy in front of a fleet. `path`: the program. `interval`: seconds between two health checks."""

    def __init__(self, path: str, fleet: EmbeddedFleet, *, interval: float) -> None:
        self.name = f"HAProxy {version_of(path)}".strip() + ", round robin"
        self._path = path
        self._services = fleet.services
        self._interval = interval
        self._ports: dict[str, int] = {}

    def url(self, service: str) -> str:
        return f"http://{LOOPBACK}:{self._ports[service]}"

    def status(self, service: str) -> None:
        """Return None, where the gateway's front returns a service's status: HAProxy knows no versions."""

    async def start(self, stack: AsyncExitStack) -> None:
        """Start HAProxy, wait until it serves, and stop it when `stack` ends. Raises `StartupError`."""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skewgate-demo-")))
        with ExitStack() as inherited:
            sockets = {
                each.name: inherited.enter_context(socket.create_server((LOOPBACK, 0)))
                for each in self._services
            }
            self._ports = {name: each.getsockname()[1] for name, each in sockets.items()}
            text = configuration(self._services, sockets, self._interval)
            (folder / "haproxy.cfg").write_text(text, encoding="utf-8")
            process = await self._spawn(folder, [each.fileno() for each in sockets.values()])
        stack.push_async_callback(_end, process)
        await self._await_answer(folder)

    async def _spawn(self, folder: Path, descriptors: Sequence[int]) -> Process:
        command = [self._path, "-db", "-f", str(folder / "haproxy.cfg")]
        # On Linux, HAProxy ends with this process even if this one is killed.
        if guard := shutil.which("setpriv"):
            command = [guard, "--pdeathsig", "TERM", *command]
        with (folder / "messages").open("wb") as messages:
            try:
                return await asyncio.create_subprocess_exec(
                    *command,
                    stdin=subprocess.DEVNULL,
                    stdout=messages,
                    stderr=messages,
                    pass_fds=descriptors,
                    start_new_session=True,  # so that Ctrl-C ends the demonstration first, not HAProxy
                )
            except OSError as problem:
                raise StartupError(f"HAProxy cannot be started: {problem}") from None

    async def _await_answer(self, folder: Path) -> None:
        """Wait until HAProxy answers. Raises `StartupError` with its own message if it does not."""
        try:
            async with asyncio.timeout(START_WITHIN), aiohttp.ClientSession() as session:
                for service in self._ports:
                    async with session.get(f"{self.url(service)}{ALIVE}", raise_for_status=True):
                        pass
        except (aiohttp.ClientError, TimeoutError):
            messages = (folder / "messages").read_text(encoding="utf-8", errors="replace").splitlines()
            alert = next((line for line in messages if "ALERT" in line), "it does not answer")
            raise StartupError(f"HAProxy cannot be started: {plain(alert)}") from None


async def _end(process: Process) -> None:
    """Stop HAProxy gracefully, then by force."""
    for number, seconds in ((signal.SIGUSR1, STOP_WITHIN), (signal.SIGTERM, 1.0), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            process.send_signal(number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
            return
