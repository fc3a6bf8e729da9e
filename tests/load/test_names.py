"""Backends with names, and name servers that answer, go silent, deny and change their mind.

The gateway is a process, as users start it. A mount namespace of its own gives it a /etc/resolv.conf that
names the name server of the test. That takes root, and so does port 53. With several workers each of them
looks names up, and their main process does.
"""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import pytest

from gateway.demo.ironic import SERVED
from tests.cli.closing_backend import backend
from tests.kit.name_servers import NXDOMAIN, SILENT, NameServer, name_server
from tests.kit.networks import free_port
from tests.kit.processes import ROOT, Ended, finish, ready
from tests.kit.waiting import until

pytestmark = [pytest.mark.load, pytest.mark.timeout(300)]

NAME_SERVER: Final = "127.0.53.53"
FIRST, SECOND = "127.0.53.1", "127.0.53.2"
"""Two addresses of one backend."""
NAME: Final = "api.fleet.test"
REQUESTS: Final = 150
"""Requests in each state of the name server. Each of them needs a new connection to the backend."""
GIVE_UP: Final = 10
"""Lost requests after which a state has failed: each of them may take a whole `timeouts.connect`."""
PROMPT: Final = 10.0
"""Seconds in which nothing should take as long as a lookup that gets no answer: these take 15."""


SAMPLE: Final = 20
"""Connections of which each worker has one, but in one case of a million."""
SILENT_NAMES: Final = 16


class Running(NamedTuple):
    """A gateway as a process."""

    process: asyncio.subprocess.Process
    url: str
    admin: str


def resolvers(workers: int) -> int:
    """Processes of the gateway that look names up."""
    return 1 if workers == 1 else workers + 1


@asynccontextmanager
async def gateway(folder: Path, workers: int, services: Sequence[str]) -> AsyncIterator[Running]:
    """A gateway whose only name server is that of the test."""
    port, admin_port = free_port(), free_port()
    resolv_conf = folder / "resolv.conf"
    resolv_conf.write_text(f"nameserver {NAME_SERVER}\noptions timeout:5 attempts:3\n")
    file = folder / "gateway.yaml"
    lines = [
        f"workers: {workers}",
        f"listen: 127.0.0.1:{port}",
        f"admin: {{listen: 127.0.0.1:{admin_port}}}",
        "access_log: {format: off}",
        "services:",
        *services,
    ]
    file.write_text("\n".join(lines) + "\n")
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', resolv_conf),
        *(sys.executable, "-P", "-m", "gateway", "run", "-c", file),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield Running(process, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}")
    finally:
        if process.returncode is None:
            process.terminate()  # killed, it would leave its workers
            await finish(process)


async def terminate(running: Running) -> Ended:
    running.process.terminate()
    return await finish(running.process)


def service(name: str, *urls: str) -> list[str]:
    """A service of one dialect, whose host and backends have its name."""
    return [
        f"  {name}:",
        "    dialect: ironic",
        f"    match: {{host: {name}.example}}",
        "    probe: {interval: 100ms, timeout: 2s}",
        "    offer: {stabilization: 0s}",
        "    backends:",
        *(f"      - {{name: {name}-{number}, url: '{url}'}}" for number, url in enumerate(urls)),
    ]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        yield session


@asynccontextmanager
async def silent_names(folder: Path, workers: int) -> AsyncIterator[tuple[Running, NameServer]]:
    """A gateway with one service whose names are never answered, and one whose name is in /etc/hosts."""
    async with name_server(NAME_SERVER, 53) as names, backend("127.0.0.1") as (server, _):
        names.code = SILENT
        port = server.sockets[0].getsockname()[1]
        silent = service("silent", *(f"http://{number}.{NAME}:80" for number in range(SILENT_NAMES)))
        live = service("live", f"http://localhost:{port}")
        async with gateway(folder, workers, [*silent, *live]) as running:
            yield running, names


async def test_R_B9_a_name_server_that_never_answers_stops_no_probe_of_another_service(
    tmp_path: Path, workers: int, session: aiohttp.ClientSession
) -> None:
    async with silent_names(tmp_path, workers) as (running, names):
        await names.until(lambda: bool(names.queries))
        async with asyncio.timeout(PROMPT):
            await ready(session, running.admin)

            async def probed() -> float:
                async with session.get(f"{running.admin}/status") as response:
                    status = await response.json()
                    at: float | None = status["services"]["live"]["backends"]["live-0"]["last_probe_at"]
                    return at or 0.0

            for _ in range(3):  # at the interval of the service, not at the pace of the lookups
                before = await probed()

                async def probed_again(before: float = before) -> bool:
                    return await probed() > before

                await until(probed_again, "a further probe")


async def test_R_B9_the_exit_waits_for_no_lookup(tmp_path: Path, workers: int) -> None:
    async with silent_names(tmp_path, workers) as (running, names):
        await names.until(lambda: len(names.queries) >= 2 * SILENT_NAMES * resolvers(workers))
        async with asyncio.timeout(PROMPT):
            ended = await terminate(running)

    assert ended.code == 0
    assert "Traceback" not in ended.err


async def test_R_B9_no_request_is_lost_while_the_name_server_is_away_or_wrong(
    tmp_path: Path, workers: int, session: aiohttp.ClientSession
) -> None:
    """Good; no answer; no such name; another address, after which the old one closes."""
    lost: Counter[str] = Counter()

    async def send(state: str, number: int = REQUESTS) -> None:
        lost[state] += 0
        for _ in range(number):
            if lost[state] == GIVE_UP:
                break
            async with session.get(
                f"{running.url}/v1/nodes", headers={SERVED: "1.1", "Host": "live.example"}
            ) as response:
                await response.read()
                lost[state] += response.status != 200

    async with name_server(NAME_SERVER, 53) as names, backend(FIRST) as (first, at_first):
        names.addresses[NAME] = (FIRST,)
        port = first.sockets[0].getsockname()[1]
        async with (
            backend(SECOND, port) as (_, at_second),
            gateway(tmp_path, workers, service("live", f"http://{NAME}:{port}")) as running,
        ):
            await ready(session, running.admin)
            await send("good")
            for code, state in ((SILENT, "silent"), (NXDOMAIN, "no such name")):
                names.code = code
                await names.queried(NAME, resolvers(workers))
                await send(state)
            names.code = 0
            names.addresses[NAME] = (SECOND,)

            async def moved() -> bool:
                before = len(at_first)
                await send("moving", SAMPLE)
                return "/v1" in at_second and len(at_first) == before

            await names.queried(NAME, resolvers(workers))
            await until(moved, "probes, and the requests of every worker, at the new address")
            first.close()
            await send("moved")
            ended = await terminate(running)

    assert lost == {"good": 0, "silent": 0, "no such name": 0, "moving": 0, "moved": 0}
    assert ended.code == 0
