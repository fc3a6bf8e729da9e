"""HAProxy as a plain round-robin balancer, configured as its manual has it: the usual tool at its best.

It checks the health of its servers, and a request whose connection fails is tried on another server at once.
Nothing in its configuration knows versions, which is the point of the comparison. It runs in a process of
its own, with its configuration in a temporary directory. `gateway.engines` has the HAProxy that does know
versions: nothing of that may be used here.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import tempfile
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Final, final

import aiohttp

from gateway.demo.balancer import FALL, LOOPBACK, RETRIES, RISE, Pool, Timing, listening_socket
from gateway.errors import StartupError
from gateway.runtime.terminal import plain

ALIVE: Final = "/.haproxy-alive"
"""The path that HAProxy answers itself."""
START_WITHIN: Final = 10.0
"""Seconds until it answers. It takes milliseconds."""
STOP_WITHIN: Final = 5.0
"""Seconds for requests in flight to end when it stops."""
SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where it is looked for when it is not on `PATH`: ordinary users have no `sbin` there."""


def program() -> str | None:
    """The path of HAProxy; None: it is not installed."""
    return shutil.which("haproxy") or shutil.which("haproxy", path=SEARCH_PATH)


def version_of(path: str) -> str:
    """`2.6.12`; empty when the program does not tell."""
    with suppress(OSError, subprocess.SubprocessError):
        shown = subprocess.run([path, "-v"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
        if found := re.match(r"HA-?Proxy version ([0-9]+(?:\.[0-9]+)*)", shown.stdout):
            return found[1]
    return ""


def configuration(pools: Sequence[Pool], timing: Timing, descriptors: Sequence[int]) -> str:
    """The configuration file. `descriptors`: for each pool that of the socket that HAProxy inherits to listen
    on. Names are not written into it, so that none can break it."""
    milliseconds = round(timing.check_interval * 1000)
    timeout = round(timing.timeout * 1000)
    lines = [
        "global",
        "    nbthread 1",
        "    maxconn 1000",
        "",
        "defaults",
        "    mode http",
        f"    timeout connect {timeout}ms",
        f"    timeout client {10 * timeout}ms",
        f"    timeout server {timeout}ms",
        f"    timeout check {timeout}ms",
        "    option forwardfor",
        "    option httpchk GET /",
        "    option redispatch 1",
        f"    retries {RETRIES}",
    ]
    for number, (pool, descriptor) in enumerate(zip(pools, descriptors, strict=True)):
        lines += ["", f"listen pool-{number}", f"    bind fd@{descriptor}", f"    monitor-uri {ALIVE}"]
        lines += ["    balance roundrobin"]
        lines += [f"    default-server check inter {milliseconds}ms fall {FALL} rise {RISE}"]
        lines += [
            f"    server server-{place} {LOOPBACK}:{target.port}" for place, target in enumerate(pool.targets)
        ]
    return "\n".join(lines) + "\n"


@final
class HAProxy:
    """A process of HAProxy. `path` is the program."""

    def __init__(self, path: str, pools: Sequence[Pool], timing: Timing) -> None:
        self._path = path
        self._pools = tuple(pools)
        self._timing = timing
        self._running = AsyncExitStack()
        self._ports: dict[str, int] = {}
        self.name = f"HAProxy {version_of(path)}".strip() + ", round robin"

    def port(self, pool: str) -> int:
        return self._ports[pool]

    async def start(self) -> None:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skewgate-demo-")))
            with ExitStack() as inherited:
                sockets = [inherited.enter_context(listening_socket()) for _ in self._pools]
                for pool, each in zip(self._pools, sockets, strict=True):
                    self._ports[pool.name] = each.getsockname()[1]
                process = await self._spawn(folder, [each.fileno() for each in sockets])
            stack.push_async_callback(_end, process)
            await self._await_answer(folder)
            self._running = stack.pop_all()

    async def close(self) -> None:
        await self._running.aclose()

    async def _spawn(self, folder: Path, descriptors: Sequence[int]) -> Process:
        file = folder / "haproxy.cfg"
        file.write_text(configuration(self._pools, self._timing, descriptors), encoding="utf-8")
        command = [self._path, "-db", "-f", str(file)]
        # Should this process be killed, HAProxy ends with it, where the system can promise that.
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
        """Wait until HAProxy answers. When it has ended, nothing listens any more."""
        try:
            async with asyncio.timeout(START_WITHIN), aiohttp.ClientSession() as session:
                for port in self._ports.values():
                    async with session.get(f"http://{LOOPBACK}:{port}{ALIVE}", raise_for_status=True):
                        pass
        except (aiohttp.ClientError, TimeoutError):
            messages = (folder / "messages").read_text(encoding="utf-8", errors="replace").splitlines()
            alert = next((line for line in messages if "ALERT" in line), "it does not answer")
            raise StartupError(f"HAProxy cannot be started: {plain(alert)}") from None


async def _end(process: Process) -> None:
    """Let requests in flight end, then make sure that the process is gone."""
    for number, seconds in ((signal.SIGUSR1, STOP_WITHIN), (signal.SIGTERM, 1.0), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            process.send_signal(number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
            return
