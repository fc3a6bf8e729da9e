"""What systemd is told: over a real datagram socket, by a path or by an abstract address."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.runtime.service_manager import MAX_STATUS, Moment, ServiceManager
from tests.cli.conftest import Call, Write
from tests.kit.networks import free_port
from tests.kit.processes import TIMEOUT, finish, ready, start

pytestmark = pytest.mark.processes

Message = dict[str, str]


class Manager:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    async def next(self) -> Message:
        """The next message."""
        data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._socket, 4096), TIMEOUT)
        return dict(line.split("=", 1) for line in data.decode().split("\n"))

    async def until(self, name: str) -> Message:
        """The next message that has `name`."""
        while name not in (message := await self.next()):
            pass
        return message

    def read_until(self, name: str) -> Message:
        """The next message that has `name`, in a thread."""
        self._socket.settimeout(TIMEOUT)
        while name not in (message := self._read()):
            pass
        return message

    def waiting(self) -> list[Message]:
        """All that was sent up to now."""
        found = []
        try:
            while True:
                found.append(self._read())
        except BlockingIOError:
            return found

    def _read(self) -> Message:
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().split("\n"))

    def close(self) -> None:
        self._socket.close()


@contextmanager
def listening(address: str) -> Iterator[Manager]:
    manager = Manager(address)
    try:
        yield manager
    finally:
        manager.close()


@asynccontextmanager
async def telling(**environ: str) -> AsyncIterator[ServiceManager]:
    subject = ServiceManager(environ, pid=7)
    try:
        yield subject
    finally:
        subject.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = (
        str(tmp_path / "notify") if request.param == "path" else f"@skewgate-{os.getpid()}-{tmp_path.name}"
    )
    with listening(address) as manager:
        yield manager


@pytest.mark.parametrize("manager, loop", [("path", "asyncio"), ("abstract", "uvloop")], indirect=["manager"])
async def test_the_life_of_a_gateway(
    write: Write, session: aiohttp.ClientSession, manager: Manager, call_main: Call, loop: str
) -> None:
    """READY, a reload that is refused, one that is not, a watchdog that is fed, and the end."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    admin = f"http://127.0.0.1:{(admin_port := free_port())}"
    port = free_port()
    file = write(port, admin_port, more="timeouts: {drain: 7s}")
    process = await start(
        *("run", "-c", str(file)),
        NOTIFY_SOCKET=manager.address,
        WATCHDOG_USEC="200000",
        SKEWGATE_LOOP=loop,
    )
    try:
        first = await manager.next()
        assert first["READY"] == "1", "nothing is told before"
        assert "WATCHDOG" not in first
        await ready(session, admin)  # it listened when it said so
        served = await manager.until("STATUS")
        assert served["STATUS"].startswith("1 of 1 services have an offer, configuration ")
        assert await manager.until("WATCHDOG")
        assert await manager.until("WATCHDOG"), "again and again"

        file.write_text("listen: nowhere\n")
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert (await call_main("reload", "--admin", admin)).code == 1
        begun = await manager.until("RELOADING")
        assert before <= int(begun["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        ended = await manager.until("READY")
        assert ended["STATUS"].startswith(f"the last reload was refused: {file}:1:1: error[missing-key]")

        write(port, admin_port, more="timeouts: {drain: 7s}", offer="{ceiling: '1.40'}")
        assert (await call_main("reload", "--admin", admin)).code == 0
        assert await manager.until("RELOADING")
        while not (await manager.until("READY"))["STATUS"].startswith("1 of 1 services"):
            pass  # who watches the file may have read the broken one as well
    finally:
        process.send_signal(signal.SIGTERM)
        ended_process = await finish(process)

    last = await manager.until("STOPPING")
    assert (last["STOPPING"], last["EXTEND_TIMEOUT_USEC"]) == ("1", "12000000")
    assert not any("READY" in message for message in manager.waiting())
    assert ended_process.code == 0, ended_process.err


async def test_a_watched_change_is_a_reload_to_the_manager(
    write: Write, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    with listening(str(tmp_path / "notify")) as manager:
        port, admin_port = free_port(), free_port()
        process = await start("run", "-c", str(write(port, admin_port)), NOTIFY_SOCKET=manager.address)
        await ready(session, f"http://127.0.0.1:{admin_port}")
        write(port, admin_port, offer="{ceiling: '1.40'}")
        await manager.until("RELOADING")
        await manager.until("READY")
        async with session.get(f"http://127.0.0.1:{admin_port}/status") as response:
            status = await response.json()
        process.send_signal(signal.SIGTERM)
        ended = await finish(process)

    assert status["services"]["baremetal"]["offer"]["max"] == "1.40"
    assert "a file of the configuration has changed: reloading" in ended.err


async def test_without_a_manager_nothing_happens() -> None:
    async with telling() as subject:
        subject.ready(lambda: "x")
        subject.reloading(Moment.BEGIN)
        subject.stopping(1.0)


@pytest.mark.parametrize("address", ["relative", "vsock:2:1234", "/nowhere/at/all", "/" + "x" * 200])
async def test_an_address_where_nobody_listens_is_one_warning(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with telling(NOTIFY_SOCKET=address) as subject:
        subject.ready(lambda: "x")
        subject.reloading(Moment.BEGIN)
        subject.reloading(Moment.END)
        subject.stopping(1.0)

    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_manager_that_does_not_read_holds_nothing_up(tmp_path: Path) -> None:
    """The kernel keeps a few messages. The rest is told together, once there is room, in its newest state."""
    with listening(str(tmp_path / "notify")) as manager:
        async with telling(NOTIFY_SOCKET=manager.address) as subject:
            texts = iter(f"status {number}" for number in range(1_000_000))
            subject.ready(lambda: next(texts))
            for _ in range(1000):
                subject.reloading(Moment.BEGIN)
                subject.reloading(Moment.END)
            found = manager.waiting()
            assert found[0]["READY"] == "1"
            subject.stopping(1.0)
            (last,) = manager.waiting()

    assert (last["STOPPING"], "READY" in last, "RELOADING" in last) == ("1", False, False)


async def test_what_was_not_taken_is_sent_with_the_next_tick(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    async with telling(NOTIFY_SOCKET=address, WATCHDOG_USEC="20000", WATCHDOG_PID="7") as subject:
        subject.ready(lambda: "fine")  # nobody listens yet
        with listening(address) as manager:
            message = await manager.next()

    assert (message["READY"], message["STATUS"]) == ("1", "fine")


def fill(subject: ServiceManager) -> None:
    """Send messages until the kernel takes no more."""
    subject.ready(lambda: "fine")
    for _ in range(1000):
        subject.reloading(Moment.BEGIN)
        subject.reloading(Moment.END)


async def test_who_has_taken_over_is_told_once_there_is_room(tmp_path: Path) -> None:
    """And nothing after it: this process is not the main one any more."""
    with listening(str(tmp_path / "notify")) as manager:
        async with telling(NOTIFY_SOCKET=manager.address, WATCHDOG_USEC="20000", WATCHDOG_PID="7") as subject:
            fill(subject)
            subject.hand_over(8)
            subject.stopping(1.0)
            assert not any("MAINPID" in message for message in manager.waiting())
            message = await manager.until("MAINPID")
            subject.stopping(1.0)
            assert manager.waiting() == []

    assert (message["MAINPID"], message.keys() & {"READY", "STOPPING"}) == ("8", set())


async def test_the_end_waits_until_the_manager_knows_who_has_taken_over(tmp_path: Path) -> None:
    """Else the manager would see its main process end, and end the new one with it."""
    with listening(str(tmp_path / "notify")) as manager, ThreadPoolExecutor(1) as other:
        async with telling(NOTIFY_SOCKET=manager.address) as subject:
            fill(subject)
            subject.hand_over(8)
            found = other.submit(manager.read_until, "MAINPID")
            subject.close()

        assert found.result()["MAINPID"] == "8"


async def test_the_status_is_one_printable_line(tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as manager:
        async with telling(NOTIFY_SOCKET=manager.address) as subject:
            subject.ready(lambda: "a\nREADY=0\x1b[31m" + "ä" * 1000)
            (message,) = manager.waiting()

    assert message["READY"] == "1"
    assert message["STATUS"].startswith("a READY=0 [31m")
    assert len(message["STATUS"]) == MAX_STATUS


@pytest.mark.parametrize(
    "environ, fed",
    [
        ({"WATCHDOG_USEC": "20000"}, True),
        ({"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "7"}, True),
        ({"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "8"}, False),
        ({"WATCHDOG_USEC": "0"}, False),
        ({"WATCHDOG_USEC": "-5"}, False),
        ({"WATCHDOG_USEC": "soon"}, False),
        ({"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "me"}, False),
        ({}, False),
    ],
)
async def test_only_the_watched_process_feeds_the_watchdog(
    tmp_path: Path,
    environ: dict[str, str],
    fed: bool,
) -> None:
    with listening(str(tmp_path / "notify")) as manager:
        async with telling(NOTIFY_SOCKET=manager.address, **environ) as subject:
            subject.ready(lambda: "x")
            await manager.next()
            if fed:
                assert (await manager.next())["WATCHDOG"] == "1"
            else:
                assert subject.interval > 1
