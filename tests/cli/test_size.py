"""A process with a thousand backends or services: known for a bounded price, and stopped at any moment."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.kit.networks import free_port
from tests.kit.processes import finish, ready, start
from tests.kit.waiting import until

pytestmark = pytest.mark.processes

SIZE = 1000
REPLY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\nConnection: close\r\n"
    b"X-OpenStack-Ironic-API-Minimum-Version: 1.1\r\nX-OpenStack-Ironic-API-Maximum-Version: 1.58\r\n\r\n"
    b'{"id": "v1"}'
)


class Servers(asyncio.Protocol):
    """A thousand backends in one: each is a base path. It can leave probes without an answer."""

    probed = 0
    answers = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        Servers.probed += 1
        if Servers.answers:
            self.transport.write(REPLY)
            self.transport.close()


@asynccontextmanager
async def servers(*, answers: bool = True) -> AsyncIterator[int]:
    """The port of the backends."""
    Servers.probed, Servers.answers = 0, answers
    server = await asyncio.get_running_loop().create_server(Servers, "127.0.0.1", 0, backlog=SIZE)
    async with server:
        yield server.sockets[0].getsockname()[1]


def backends(port: int) -> str:
    """One service with all of them."""
    items = "".join(
        f"      - {{name: b{number}, url: 'http://127.0.0.1:{port}/b{number}'}}\n" for number in range(SIZE)
    )
    return f"  baremetal:\n    dialect: ironic\n    backends:\n{items}"


def services(port: int) -> str:
    """One service for each of them."""
    return "".join(
        f"  s{number}:\n    dialect: ironic\n    match: {{path: /s{number}}}\n"
        f"    backends: [{{name: b, url: 'http://127.0.0.1:{port}/b{number}'}}]\n"
        for number in range(SIZE)
    )


def write(folder: Path, text: str) -> tuple[Path, str]:
    """The file, and the URL of the admin listener."""
    admin, file = free_port(), folder / "skewgate.yaml"
    file.write_text(
        f"listen: 127.0.0.1:{free_port()}\nadmin: {{listen: 127.0.0.1:{admin}}}\nservices:\n{text}"
    )
    return file, f"http://127.0.0.1:{admin}"


async def is_probed() -> bool:
    return Servers.probed > 0


async def all_probed() -> bool:
    return Servers.probed >= SIZE


async def stopped(process: asyncio.subprocess.Process) -> str:
    """Send SIGTERM; gives what was logged until the end."""
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    return ended.err


@pytest.mark.parametrize(
    "text, answers",
    [
        (backends, True),
        pytest.param(backends, False, marks=pytest.mark.load),
        pytest.param(services, True, marks=pytest.mark.load),
        pytest.param(services, False, marks=pytest.mark.load),
    ],
)
async def test_it_stops_in_the_first_round_of_probes(
    tmp_path: Path, text: Callable[[int], str], *, answers: bool
) -> None:
    async with servers(answers=answers) as port:
        process = await start("run", "-c", str(write(tmp_path, text(port))[0]))
        await until(is_probed, "a probe")
        log = await stopped(process)
    assert log.rstrip().endswith("stopped")
    assert Servers.probed < SIZE or not answers, "the first round had not ended"


@pytest.mark.load
async def test_it_stops_in_a_reload(tmp_path: Path) -> None:
    async with servers() as port, aiohttp.ClientSession() as session:
        file, admin = write(tmp_path, services(port))
        process = await start("run", "-c", str(file))
        await ready(session, admin)
        process.send_signal(signal.SIGHUP)
        log = await stopped(process)
    assert log.rstrip().endswith("stopped")


@pytest.mark.load
@pytest.mark.parametrize("text, most", [(backends, 3.0), (services, 4.0)])
async def test_all_are_known_for_a_bounded_price(
    tmp_path: Path, text: Callable[[int], str], most: float
) -> None:
    """CPU from the start of the process to its end, with wide room for a slow machine: it was more than a
    minute once, when each fact looked at all members."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    async with servers() as port:
        process = await start("run", "-c", str(write(tmp_path, text(port))[0]))
        await until(all_probed, "the first round")
        await stopped(process)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < most
