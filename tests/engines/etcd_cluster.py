"""A real etcd of three members, and what can happen to it.

    async with etcd_cluster(folder) as cluster:
        cluster.endpoints                        # what a store is given
        leader = await cluster.leader()
        leader.stop(); leader.go_on()            # SIGSTOP, SIGCONT
        await cluster.members[0].kill()          # SIGKILL; `start` again with what it has stored
        await cluster.wipe()                     # all members end, and are a new cluster
        async with relay(cluster.members[0].port) as link:
            link.delay = 0.5                     # seconds each way; link.up = False: everything hangs

Every member listens on all addresses, so that network namespaces reach it. Nothing is left behind.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import aiohttp

from tests.kit.networks import LOOPBACK, free_port
from tests.kit.servers import serving
from tests.kit.waiting import until

COUNT: Final = 3
ANSWERS: Final = 10.0
"""Seconds after which a member that says nothing is asked no longer, and may be asked again."""


class Member:
    def __init__(self, name: str, folder: Path, more: Sequence[str]) -> None:
        self.name = name
        self.port, self.peer_port = free_port(), free_port()
        self.scheme = "https" if any("cert-file" in each for each in more) else "http"
        self.process: Process | None = None
        self._folder = folder / name
        self._log = folder / f"{name}.log"
        self._more = more

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    async def start(self, members: Sequence[Member]) -> None:
        """With what it has stored, or as a new one of these members."""
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *("etcd", "--name", self.name, "--data-dir", str(self._folder)),
                *("--listen-client-urls", f"{self.scheme}://0.0.0.0:{self.port}"),
                *("--advertise-client-urls", self.url),
                *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
                *("--initial-cluster", ",".join(f"{each.name}={each.peer_url}" for each in members)),
                *("--initial-cluster-state", "new", "--logger", "zap", *self._more),
                stdout=log,
                stderr=log,
                stdin=DEVNULL,
            )

    def stop(self) -> None:
        """It says nothing any more, and its connections stay. The signal alone is not enough: until a thread
        has taken it, which lasts on a busy machine, others go on to answer."""
        self._signal(signal.SIGSTOP)
        end = monotonic() + ANSWERS
        while not self._stands_still():
            assert monotonic() < end, f"{self.name} does not stop"
            sleep(0.001)

    def _stands_still(self) -> bool:
        """Whether each of its threads is stopped, or it has ended."""
        if self.process is None or self.process.returncode is not None:
            return True
        try:
            threads = [*Path(f"/proc/{self.process.pid}/task").iterdir()]
            return all((each / "stat").read_text().rpartition(") ")[2][0] in "TZX" for each in threads)
        except FileNotFoundError:  # it, or one of its threads, ends
            return not Path(f"/proc/{self.process.pid}").exists()

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """At once; what it has stored stays."""
        if self.process is not None and self.process.returncode is None:
            self._signal(signal.SIGKILL)
            await self.process.wait()

    def forget(self) -> None:
        """What it has stored is gone."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Cluster:
    def __init__(self, folder: Path, more: Sequence[str] = ()) -> None:
        self.members = [Member(f"m{number}", folder, more) for number in range(COUNT)]

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members)

    async def start(self) -> None:
        """Without waiting until they agree."""
        for member in self.members:
            await member.start(self.members)

    async def answers(self) -> None:
        """Wait until each member knows a leader and answers."""
        for member in self.members:
            await until(partial(_has_leader, member), f"{member.name} knows a leader")

    async def leader(self) -> Member:
        """The member that leads now: one that was stopped may think of itself as leader for a while, in an
        older term. Waits while there is none."""
        leaders: list[Member] = []

        async def somebody_leads() -> bool:
            statuses = [await _status(member) for member in self.members]
            known = [each for each in statuses if each.get("leader", "0") != "0"]
            if known:
                last = max(known, key=lambda each: int(each.get("raftTerm", "0")))
                leaders[:] = [
                    member
                    for member, each in zip(self.members, statuses, strict=True)
                    if each.get("header", {}).get("member_id") == last["leader"]
                ]
            return bool(leaders)

        await until(somebody_leads, "a member of etcd leads")
        return leaders[0]

    async def followers(self) -> list[Member]:
        leader = await self.leader()
        return [member for member in self.members if member is not leader]

    async def wipe(self) -> None:
        """Everything stored is gone: a new cluster at the same addresses."""
        await self.end()
        for member in self.members:
            member.forget()
        await self.start()
        await self.answers()

    async def end(self) -> None:
        """Of all members, those that are stopped, too."""
        for member in self.members:
            await member.kill()


async def _status(member: Member) -> dict[str, Any]:
    url = f"{member.url}/v3/maintenance/status"
    timeout = aiohttp.ClientTimeout(total=ANSWERS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, data=b"{}", ssl=False) as response,
        ):
            found = await response.json(content_type=None)
    except (aiohttp.ClientError, OSError, TimeoutError):
        return {}
    return found if isinstance(found, dict) else {}


async def _has_leader(member: Member) -> bool:
    return str((await _status(member)).get("leader", "0")) != "0"


@asynccontextmanager
async def etcd_cluster(folder: Path, *more: str) -> AsyncIterator[Cluster]:
    """A running one. `more`: further options of every member."""
    cluster = Cluster(folder, more)
    try:
        await cluster.start()
        if not any("client-cert-auth" in each for each in more):
            await cluster.answers()
        yield cluster
    finally:
        await cluster.end()


async def etcdctl(endpoint: str, *words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *("etcdctl", "--endpoints", endpoint, *words),
        stdout=DEVNULL,
        stderr=DEVNULL,
        env={"ETCDCTL_API": "3"},
    )
    assert await process.wait() == 0, f"etcdctl {' '.join(words)}"


class Link:
    def __init__(self, port: int) -> None:
        self.port = port
        self.delay = 0.0
        """Seconds for which it holds what it passes on, each way."""
        self._up = asyncio.Event()
        self._up.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def up(self) -> bool:
        return self._up.is_set()

    @up.setter
    def up(self, up: bool) -> None:
        """Down: nothing passes, and no connection ends."""
        if up:
            self._up.set()
        else:
            self._up.clear()

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """All bytes of one direction, each as late as `delay` says, and in order."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        async def write() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._up.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            data = b"some"
            while data:
                data = await reader.read(65_536)
                waiting.put_nowait((loop.time() + self.delay, data))


async def _connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to this port. asyncio leaves a transport open whose making is cancelled."""
    connecting = asyncio.create_task(asyncio.open_connection(LOOPBACK, port))
    try:
        return await asyncio.shield(connecting)
    except asyncio.CancelledError:
        with suppress(OSError):
            (await connecting)[1].transport.abort()
        raise


@asynccontextmanager
async def relay(target: int) -> AsyncIterator[Link]:
    """A port on loopback whose connections lead to `target`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            other_reader, other_writer = await _connected(target)
            writers.append(other_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(link.pass_on(reader, other_writer))
                group.create_task(link.pass_on(other_reader, writer))
        except (OSError, ExceptionGroup):
            pass  # one side has ended: so does the other
        finally:
            for each in writers:
                each.transport.abort()

    async with serving(serve) as server:
        link = Link(server.port)
        yield link
