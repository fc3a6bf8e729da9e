"""Several replicas as processes over a real etcd, a fleet behind them, and what clients are told.

    async with replicas(folder) as bed:
        await bed.offered("1.58")                # all replicas tell this maximum
        bed.links[0].up = False                  # replica 0 is cut off from etcd: its connections hang
        async with bed.watch() as watch: ...     # one client of each replica asks for 1.90 all the time
        watch.judge()

Every replica reaches etcd through relays of its own. Ports are fixed, so a replica can start again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from gateway.demo.ironic import HIGHEST, NEW, SERVED
from tests.engines.etcd_cluster import Cluster, Link, etcd_cluster, relay
from tests.kit.fleets import OLD, Fleet, brief_session, running_fleet
from tests.kit.gateways import GatewayProcess
from tests.kit.processes import TIMEOUT

TTL: Final = 2.0
STABILIZATION: Final = 1.0
COUNT: Final = 3
ASKED: Final = NEW.text
"""The version that an upgrade brings and a rollback takes away."""


class Answer(NamedTuple):
    status: int
    highest: str
    """That the response tells; empty: it tells none."""
    served: str


class Replica(GatewayProcess):
    """One process, and the file of its configuration."""

    def __init__(
        self, number: int, folder: Path, endpoints: Sequence[str], fleet: Fleet, workers: int = 1
    ) -> None:
        super().__init__(folder, f"replica-{number}")
        self.number = number
        self.workers = workers
        self._endpoints = endpoints
        self._fleet = fleet
        self.write()

    def write(self, offer: str = "", more: str = "") -> None:
        """The file. `offer`: more keys of `offer`; `more`: of the service."""
        self.configure(
            f"watch: false\nworkers: {self.workers}\n"
            f"agreement: {{etcd: {{endpoints: [{', '.join(self._endpoints)}]}}, cluster: c, ttl: {TTL:g}s}}\n"
            "services:\n  baremetal:\n    dialect: ironic\n    probe: {interval: 200ms}\n"
            f"    offer: {{stabilization: {STABILIZATION:g}s{offer}}}\n"
            f"{more}    backends: [{', '.join(self._fleet.entries)}]\n"
        )


class Namespace(NamedTuple):
    """A network of its own."""

    name: str
    near: str
    """The address of this network's end of the link to it, whose other end is `far`."""


@asynccontextmanager
async def namespace() -> AsyncIterator[Namespace]:
    """One with names and addresses that no other process has."""
    number = os.getpid()
    name, near = f"skewgate-{number}", f"sg-{number}"
    network = f"10.78.{number // 64 % 256}"
    first = number % 64 * 4
    await run("ip", "netns", "add", name)
    try:
        await run("ip", "link", "add", near, "type", "veth", "peer", "name", "far", "netns", name)
        await run("ip", "addr", "add", f"{network}.{first + 1}/30", "dev", near)
        await run("ip", "link", "set", near, "up")
        await run("ip", "-n", name, "addr", "add", f"{network}.{first + 2}/30", "dev", "far")
        await run("ip", "-n", name, "link", "set", "lo", "up")
        await run("ip", "-n", name, "link", "set", "far", "up")
        yield Namespace(name, f"{network}.{first + 1}")
    finally:
        await run("ip", "netns", "delete", name)


async def run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0, " ".join(command)


class Watch:
    """What clients of all replicas were told about `ASKED`, with times."""

    def __init__(self) -> None:
        self.tells: list[tuple[float, float, int]] = []
        """Begin and end of each request that was told it as on offer, and the replica."""
        self.refusals: list[tuple[float, float, int]] = []
        self.others: list[Answer] = []
        """What must never come."""
        self.pinned: list[tuple[float, float]] = []
        """When a pin may have kept `ASKED` from being on offer."""

    def judge(self) -> None:
        """A version that fell cannot be on offer again before it has stood for `STABILIZATION`. So between
        two tells that lie closer together nobody may have refused it, unless a pin came and went there. What
        an answer says was so at some moment of its request; on a loaded machine that takes a while."""
        assert not self.others
        for begin, end, replica in self.refusals:
            before = max((tell[0] for tell in self.tells if tell[1] <= begin), default=None)
            after = min((tell[1] for tell in self.tells if tell[0] >= end), default=None)
            if before is None or after is None:
                continue
            if not any(pin < after and unpinned > before for pin, unpinned in self.pinned):
                assert after - before >= STABILIZATION, (
                    f"refused by replica {replica} while it was on offer: {before} {begin} {end} {after}"
                )

    async def follow(self, replica: Replica, session: aiohttp.ClientSession) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begin = loop.time()
            answer = await ask(session, replica, ASKED)
            end = loop.time()
            if answer.status == 200:
                if answer.served != ASKED:
                    self.others.append(answer)
                if answer.highest == ASKED:
                    self.tells.append((begin, end, replica.number))
            elif answer.status == 406:
                self.refusals.append((begin, end, replica.number))
            elif answer.status not in {0, 502, 503}:
                self.others.append(answer)
            await asyncio.sleep(0.01)


async def ask(session: aiohttp.ClientSession, replica: Replica, version: str) -> Answer:
    """One request; status 0: nobody answered."""
    try:
        async with session.get(f"{replica.url}/v1/nodes", headers={SERVED: version}) as response:
            await response.read()
            headers = response.headers
            return Answer(response.status, headers.get(HIGHEST, ""), headers.get(SERVED, ""))
    except (aiohttp.ClientError, OSError, TimeoutError):
        return Answer(0, "", "")


class Bed:
    def __init__(
        self,
        cluster: Cluster,
        links: Sequence[Sequence[Link]],
        replicas: Sequence[Replica],
        fleet: Fleet,
        session: aiohttp.ClientSession,
    ) -> None:
        self.cluster, self.links, self.replicas, self.fleet, self.session = (
            cluster,
            links,
            replicas,
            fleet,
            session,
        )

    def connect(self, number: int, *, up: bool) -> None:
        """Cut a replica off from etcd, or end that."""
        for link in self.links[number]:
            link.up = up

    async def ask(self, version: str) -> list[Answer]:
        """Of each replica the answer to a request at `version`."""
        return [await ask(self.session, replica, version) for replica in self.replicas]

    async def until(self, condition: Callable[[], Any], description: str, within: float = TIMEOUT) -> None:
        """Wait until an awaitable of `condition` is true."""
        try:
            async with asyncio.timeout(within):
                while not await condition():  # noqa: ASYNC110 - another process sets no event here
                    await asyncio.sleep(0.05)
        except TimeoutError:
            statuses = [str(await self._status(replica))[:2_000] for replica in self.replicas]
            logs = [replica.log[-2_000:] for replica in self.replicas]
            raise AssertionError("\n".join([f"never happened: {description}", *statuses, *logs])) from None

    async def offered(
        self, highest: str, within: float = TIMEOUT, *, of: Sequence[int] = range(COUNT)
    ) -> None:
        """Wait until these replicas tell this maximum."""

        async def all_tell() -> bool:
            found = [await ask(self.session, self.replicas[number], "1.10") for number in of]
            return [(each.status, each.highest) for each in found] == [(200, highest)] * len(found)

        await self.until(all_tell, f"{highest} is the maximum of {list(of)}", within)

    async def refused(
        self, version: str, status: int, within: float = TIMEOUT, *, of: Sequence[int] = range(COUNT)
    ) -> None:
        """Wait until these replicas answer a request at `version` so."""

        async def all_answer() -> bool:
            found = [(await ask(self.session, self.replicas[number], version)).status for number in of]
            return found == [status] * len(found)

        await self.until(all_answer, f"{version} is answered {status} by {list(of)}", within)

    async def status(self, replica: Replica) -> dict[str, Any]:
        """What it tells of itself, as soon as it answers."""
        found: dict[str, Any] = {}

        async def answers() -> bool:
            nonlocal found
            found = await self._status(replica)
            return bool(found)

        await self.until(answers, f"replica {replica.number} tells its status")
        return found

    async def _status(self, replica: Replica) -> dict[str, Any]:
        """The same now; nothing: it does not answer."""
        try:
            async with self.session.get(f"{replica.admin}/status") as response:
                found = await response.json()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return {}
        return found if isinstance(found, dict) else {}

    async def command(self, replica: Replica, method: str, path: str, **body: str) -> int:
        """The status of the answer to a command of an operator; 0: nobody answered."""
        url = f"{replica.admin}/services/baremetal/{path}"
        try:
            async with self.session.request(method, url, json=body or None) as response:
                await response.read()
                return response.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0

    async def commanded(self, replica: Replica, method: str, path: str, **body: str) -> None:
        """Repeat it until it is in force."""

        async def taken() -> bool:
            return await self.command(replica, method, path, **body) == 200

        await self.until(taken, f"{method} {path} is taken by replica {replica.number}")

    async def runs(self) -> None:
        """Wait until everything that should run does: all members of etcd, and all replicas."""
        await self.cluster.answers()
        for replica in self.replicas:
            await self.status(replica)

    async def upgrade(self) -> None:
        for server in self.fleet:
            await server.stop()
            await server.start(NEW)

    async def roll_back(self) -> None:
        for server in self.fleet:
            await server.stop()
            await server.start(OLD)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watch]:
        """One client of each replica asks all the time."""
        watch = Watch()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(watch.follow(each, self.session)) for each in self.replicas]
            try:
                yield watch
            finally:
                for task in tasks:
                    task.cancel()


@asynccontextmanager
async def replicas(folder: Path, workers: int = 1) -> AsyncIterator[Bed]:
    """Three replicas that offer what the old release serves."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(running_fleet(OLD, OLD))
        cluster = await stack.enter_async_context(etcd_cluster(folder))
        links = [
            [await stack.enter_async_context(relay(member.port)) for member in cluster.members]
            for _ in range(COUNT)
        ]
        session = await stack.enter_async_context(brief_session(timeout=aiohttp.ClientTimeout(total=5.0)))
        members = [
            Replica(number, folder, [link.url for link in links[number]], fleet, workers)
            for number in range(COUNT)
        ]
        bed = Bed(cluster, links, members, fleet, session)
        for replica in members:
            stack.push_async_callback(replica.kill)
            await replica.start()
        await bed.offered(OLD.text)
        yield bed
