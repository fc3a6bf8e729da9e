"""Machines with a network between them: each is a network namespace, so that files of a deployment are run
with the addresses, ports and names that they have.

    async with machines("192.0.2.", {"gw-1": 11, "api": 21}) as found:
        process = await found["gw-1"].start("prometheus", …)     # sees all names in its /etc/hosts
        status, body = await found["api"].get("http://192.0.2.11:9901/readyz")

Needs root. Nothing of it remains: every process that a machine has started ends with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from threading import Thread
from typing import Final

from tests.architecture.source import ROOT
from tests.kit import processes
from tests.kit.waiting import until
from tests.scenarios.fakes import Ironic

SEARCHED: Final = f"{os.environ['PATH']}:/usr/sbin:/sbin"
MOUNT: Final = 'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 99; shift 2; done; shift; exec "$@"'
"""A shell's: pairs of a file and the place where the program finds it, `--`, the program."""
NETWORKS: Final = 0x40000000
"""`CLONE_NEWNET` of setns(2)."""
LIMIT: Final = 10
"""Seconds for one answer."""


class Machine:
    """One network namespace with an interface `eth0`."""

    def __init__(self, namespace: str, name: str, folder: Path, hosts: Path) -> None:
        self.name = name
        self.namespace = namespace
        self._folder = folder
        self._hosts = hosts
        self._started: list[asyncio.subprocess.Process] = []

    def log(self, process: asyncio.subprocess.Process) -> str:
        return self._log(self._started.index(process)).read_text(errors="replace")

    async def start(
        self, *command: str | Path, mounts: Mapping[str, Path] | None = None, **environ: str
    ) -> asyncio.subprocess.Process:
        """A program of this machine. `mounts`: what it finds at a place that exists here, too."""
        found = {"/etc/hosts": self._hosts, **(mounts or {})}
        pairs = [str(each) for place, file in found.items() for each in (file, place)]
        with self._log(len(self._started)).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *("ip", "netns", "exec", self.namespace, "sh", "-c", MOUNT, "sh", *pairs, "--"),
                *map(str, command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PATH": SEARCHED, **environ},
            )
        self._started.append(process)
        return process

    async def gateway(self, file: Path, **environ: str) -> asyncio.subprocess.Process:
        """A gateway with this configuration."""
        command = (sys.executable, "-P", "-m", "gateway", "run", "-c", file)
        return await self.start(*command, mounts=None, PYTHONPATH=str(ROOT), **environ)

    async def call(self, *command: str | Path) -> tuple[int, str]:
        """Exit code and output of a short command of this machine."""
        process = await asyncio.create_subprocess_exec(
            *("ip", "netns", "exec", self.namespace, *map(str, command)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PATH": SEARCHED},
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def get(self, url: str, *options: str) -> tuple[int, str]:
        """Status and body of the response to a GET from here; 0: there is none."""
        command = ("curl", "--silent", "--max-time", str(LIMIT), "--write-out", "%{http_code}", *options)
        _, output = await self.call(*command, url)
        return int(output[-3:]), output[:-3]

    async def answers(self, url: str, status: int = 200) -> None:
        """Wait until a GET from here has this status."""

        async def has_it() -> bool:
            return (await self.get(url))[0] == status

        await until(has_it, f"{url} is {status} for {self.name}")

    async def kill(self) -> None:
        """End what was started here and still runs."""
        for process in self._started:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def listening(self, address: str, port: int) -> socket.socket:
        """A bound socket of this machine, which the loop of the test may serve."""
        made: list[socket.socket] = []

        def make() -> None:
            # setns concerns this thread only, and a socket stays where it was made.
            with Path(f"/run/netns/{self.namespace}").open("rb") as namespace:
                assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), NETWORKS) == 0
            bound = socket.socket()
            made.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((address, port))

        thread = Thread(target=make)
        thread.start()
        thread.join()
        return made[0]

    def _log(self, number: int) -> Path:
        return self._folder / f"{self.name}-{number}.log"


class Api(Ironic):
    async def listen(self, machine: Machine, address: str, port: int) -> None:
        self.port = port
        await self._server.start(sock=machine.listening(address, port))


@asynccontextmanager
async def apis(machine: Machine, *addresses: str, port: int = 6385, highest: int = 90) -> AsyncIterator[None]:
    """An Ironic at each of these addresses of a machine, which gets those that it lacks."""
    async with AsyncExitStack() as stack:
        for address in addresses:
            await _ip("-n", machine.namespace, "addr", "replace", f"{address}/24", "dev", "eth0")
            server = Api(highest)
            await server.listen(machine, address, port)
            stack.push_async_callback(server.close)
        yield


@asynccontextmanager
async def machines(
    network: str, hosts: Mapping[str, int], folder: Path, more: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Machine]]:
    """One for each name, at that number of `network` (its first three numbers and a dot). Each knows the
    names of all, and those of `more`."""
    file = folder / "hosts"
    names = {name: f"{network}{number}" for name, number in hosts.items()} | dict(more or {})
    file.write_text("127.0.0.1 localhost\n" + "".join(f"{at} {name}\n" for name, at in names.items()))
    switch = f"skewgate-{os.getpid()}-switch"
    async with AsyncExitStack() as stack:
        await _namespace(stack, switch)
        await _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        await _ip("-n", switch, "link", "set", "bridge", "up")
        found: dict[str, Machine] = {}
        for at, (name, number) in enumerate(hosts.items()):
            namespace = f"skewgate-{os.getpid()}-{at}"
            await _namespace(stack, namespace)
            far = ("type", "veth", "peer", "name", "eth0", "netns", namespace)
            await _ip("-n", switch, "link", "add", f"port-{at}", *far)
            await _ip("-n", switch, "link", "set", f"port-{at}", "master", "bridge", "up")
            await _ip("-n", namespace, "addr", "add", f"{network}{number}/24", "dev", "eth0")
            await _ip("-n", namespace, "link", "set", "eth0", "up")
            found[name] = Machine(namespace, name, folder, file)
            stack.push_async_callback(found[name].kill)
        yield found


async def _namespace(stack: AsyncExitStack, name: str) -> None:
    await _ip("netns", "add", name)
    stack.push_async_callback(_ip, "netns", "delete", name)
    await _ip("-n", name, "link", "set", "lo", "up")


async def _ip(*words: str) -> None:
    process = await asyncio.create_subprocess_exec("ip", *words)
    async with asyncio.timeout(processes.TIMEOUT):
        assert await process.wait() == 0, " ".join(words)
