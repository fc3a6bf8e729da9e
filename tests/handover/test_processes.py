"""The command: `run --take-over`, SIGUSR2, and what an operator reads when it fails. Requests come all the
time, and none is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.demo.ironic import SERVED
from tests.handover.conftest import House
from tests.kit.networks import free_port
from tests.kit.processes import finish, ready, start
from tests.kit.waiting import until

pytestmark = pytest.mark.processes

RATE = 150
"""Requests per second."""


class Requests:
    """Sent at a steady rate, whatever becomes of those before: half of them on connections that are kept."""

    def __init__(self, port: int, version: str = "1.31") -> None:
        self.url = f"http://127.0.0.1:{port}/v1/nodes"
        self.headers = {SERVED: version}
        self.results: list[int | str] = []

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        # So few that none is idle for long: a gateway that ends would wait for it (`worker.IDLE_GRACE`).
        kept, fresh = aiohttp.TCPConnector(limit=2), aiohttp.TCPConnector(limit=0, force_close=True)
        async with (
            aiohttp.ClientSession(connector=kept) as keeping,
            aiohttp.ClientSession(connector=fresh) as closing,
            asyncio.TaskGroup() as group,
        ):
            sending = group.create_task(self._send(group, keeping, closing, stop))
            try:
                yield
            finally:
                stop.set()
                await sending

    async def count(self, more: int) -> None:
        wanted = len(self.results) + more

        async def enough() -> bool:
            return len(self.results) >= wanted

        await until(enough, f"{more} responses")

    async def _send(
        self,
        group: asyncio.TaskGroup,
        keeping: aiohttp.ClientSession,
        closing: aiohttp.ClientSession,
        stop: asyncio.Event,
    ) -> None:
        loop = asyncio.get_running_loop()
        due, number = loop.time(), 0
        while not stop.is_set():
            group.create_task(self._get((keeping, closing)[number % 2]))
            number, due = number + 1, due + 1 / RATE
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _get(self, session: aiohttp.ClientSession) -> None:
        try:
            async with session.get(self.url, headers=self.headers) as response:
                await response.read()
                self.results.append(response.status)
        except aiohttp.ClientError as error:
            self.results.append(repr(error))


@pytest.fixture
def ports(house: House) -> tuple[int, int]:
    """Of the listener for clients, and of the one for operators."""
    found = free_port(), free_port()
    file = house.write(f"127.0.0.1:{found[0]}")
    file.write_text(
        file.read_text().replace("{listen: '127.0.0.1:0'}", f"{{listen: '127.0.0.1:{found[1]}'}}")
    )
    return found


async def begin(house: House, ports: tuple[int, int], *options: str) -> Process:
    process = await start("run", *options, "-c", str(house.folder / "skewgate.yaml"))
    await ready(house.session, f"http://127.0.0.1:{ports[1]}")
    return process


def command_line(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def stop(process: Process) -> None:
    process.send_signal(signal.SIGTERM)
    assert (await finish(process)).code == 0


async def take_overs(house: House, ports: tuple[int, int], *, wait: int, times: int) -> list[int | str]:
    """The results of all requests, some before, between and after the take-overs."""
    requests, process = Requests(ports[0]), await begin(house, ports, "--take-over")
    first = process
    async with requests.under_way():
        await requests.count(wait)
        for _ in range(times):
            following = await start("run", "--take-over", "-c", str(house.folder / "skewgate.yaml"))
            ended = await finish(process)
            assert ended.code == 0, ended.err
            assert f"process {following.pid} serves now" in ended.err
            nobody = "no gateway to take over from: starting" in ended.err
            assert nobody is (process is first)
            process = following
            await requests.count(wait)
    await stop(process)
    return requests.results


async def test_no_request_is_lost(house: House, ports: tuple[int, int]) -> None:
    results = await take_overs(house, ports, wait=30, times=1)

    assert set(results) == {200}
    assert len(results) >= 60


async def test_a_raised_floor_and_a_lowered_one_stand(house: House, ports: tuple[int, int]) -> None:
    """The clock has raised it: no version beneath it is served meanwhile. Once it is lowered, the successor
    does not raise it again for the same sunset."""
    file = house.folder / "skewgate.yaml"
    sunset = "lifecycle: {sunset: {below: '1.20', at: 2001-01-01, enforce: true}}"
    keys = f"    default_version: minimum\n    {sunset}\n    probe:"
    file.write_text(file.read_text().replace("    probe:", keys))
    above, beneath = Requests(ports[0]), Requests(ports[0], "1.19")
    first = await begin(house, ports)
    async with above.under_way(), beneath.under_way():
        await beneath.count(30)
        second = await start("run", "--take-over", "-c", str(file))
        assert (await finish(first)).code == 0
        await beneath.count(30)
    assert set(above.results) == {200}
    assert set(beneath.results) <= {406, 503}

    async def is_refused() -> bool:
        async with house.session.get(beneath.url, headers=beneath.headers) as response:
            return response.status == 406

    await until(is_refused, "a refusal by the successor")
    async with house.session.delete(f"http://127.0.0.1:{ports[1]}/services/baremetal/floor") as response:
        assert (response.status, (await response.json())["kept"]) == (200, True)
    lowered = Requests(ports[0], "1.19")
    async with lowered.under_way():
        await lowered.count(30)
        third = await start("run", "--take-over", "-c", str(file))
        assert (await finish(second)).code == 0
        await lowered.count(30)
    await stop(third)
    assert set(lowered.results) == {200}


@pytest.mark.load
async def test_none_of_2100_requests_is_lost_in_two_take_overs(house: House, ports: tuple[int, int]) -> None:
    results = await take_overs(house, ports, wait=700, times=2)

    assert set(results) == {200}
    assert len(results) >= 2100


async def test_a_signal_starts_the_next_one(house: House, ports: tuple[int, int]) -> None:
    """It is no child of the old one, and outlives it."""
    log = house.folder / "log"
    with log.open("wb") as stderr:
        process = await start("run", "-c", str(house.folder / "skewgate.yaml"), stderr=stderr)
    await ready(house.session, f"http://127.0.0.1:{ports[1]}")
    process.send_signal(signal.SIGUSR2)

    async def ended() -> bool:
        return "skewgate: stopped" in log.read_text()

    await until(ended, "the end of the old gateway")
    pid = int(log.read_text().partition("started process ")[2].partition(",")[0])
    try:
        async with house.session.get(f"http://127.0.0.1:{ports[0]}/v1/nodes") as response:
            assert response.status == 200
        assert "--take-over" in command_line(pid)
    finally:
        os.kill(pid, signal.SIGTERM)
    assert (await finish(process)).code == 0  # both are gone now: they share its output
    assert not house.path.exists()


async def test_one_that_cannot_start_says_why_and_the_old_one_goes_on(
    house: House, ports: tuple[int, int]
) -> None:
    process = await begin(house, ports)
    right = (house.folder / "skewgate.yaml").read_text()
    wrong = {
        "broken": ("listn: []\n" + right, 2, "broken.yaml:1:1"),
        "stateless": (
            right.replace(f"state: {house.state}\n", ""),
            1,
            "--take-over needs the key `state`",
        ),
    }
    for name, (text, _, _) in wrong.items():
        (house.folder / f"{name}.yaml").write_text(text)

    for name, (_, code, reason) in wrong.items():
        ended = await finish(await start("run", "--take-over", "-c", str(house.folder / f"{name}.yaml")))
        assert (ended.code, reason in ended.err) == (code, True), ended.err
        async with house.session.get(f"http://127.0.0.1:{ports[0]}/v1/nodes") as response:
            assert response.status == 200
    await stop(process)


async def test_one_that_is_killed_leaves_no_worker_and_no_address(
    house: House, ports: tuple[int, int]
) -> None:
    file = house.folder / "skewgate.yaml"
    file.write_text("workers: 2\n" + file.read_text())
    killed = await begin(house, ports)
    async with house.session.get(f"http://127.0.0.1:{ports[1]}/status") as response:
        workers = [each["pid"] for each in (await response.json())["workers"]]
    killed.kill()

    async def none_is_left() -> bool:
        return not any(map(lives, workers))

    await until(none_is_left, "the end of its workers")
    process = await begin(house, ports)
    async with house.session.get(f"http://127.0.0.1:{ports[0]}/v1/nodes") as response:
        assert response.status == 200
    await stop(process)
