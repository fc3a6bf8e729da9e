"""`run` while nobody reads its standard streams: a frozen `docker logs`, `less`, a stopped log shipper."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, final

import aiohttp
import pytest

from gateway.runtime import compiled
from tests.cli.conftest import Write
from tests.cli.test_run import declared
from tests.kit.fleets import Fleet
from tests.kit.metrics import Scrape
from tests.kit.networks import free_port
from tests.kit.processes import ROOT, TIMEOUT, ready
from tests.kit.servers import serving

pytestmark = pytest.mark.processes

PATIENCE: Final = TIMEOUT
"""Seconds for the start or the end of a process, or for one request. A blocked event loop needs forever."""

LIBRARIES: Final = ("first", "second")
LINES: Final = 3_000
"""Lines that each of two libraries logs: 6 MB together, more than the gateway holds for a reader."""

NOISY: Final = f"""
import logging, sys, threading

def log(name):
    for number in range({LINES}):
        logging.getLogger(name).warning("line %d of {LINES} %s", number, "x" * 1000)

def on_command():
    for command in sys.stdin:
        threads = [threading.Thread(target=log, args=(name,), daemon=True) for name in {LIBRARIES}]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        logging.getLogger("third").warning("the libraries have logged everything")
        open(command.strip(), "x").close()

threading.Thread(target=on_command, daemon=True).start()
from gateway.__main__ import main
sys.exit(main())
"""
"""The command `skewgate`, in which two libraries log in threads of their own when a line comes on standard
input. It names the file that is made when they have ended."""


CLOSED: Final = """
import os, sys
os.closerange(0, 3)
os.execv(sys.executable, [sys.executable, "-P", "-m", "gateway", *sys.argv[1:]])
"""
"""The command `skewgate` without standard streams."""


@final
class Stream:
    """A pipe for a standard stream of a gateway. The test reads it when it wants to."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self._found = bytearray()

    def fill(self) -> None:
        """Leave no room for a single byte. The pipe stays blocking for the gateway."""
        filler = os.open(f"/proc/self/fd/{self.writer}", os.O_WRONLY | os.O_NONBLOCK)
        for size in (4096, 1):
            with suppress(BlockingIOError):
                while os.write(filler, b"\n" * size):
                    pass
        os.close(filler)

    def read(self) -> None:
        """Read what is there."""
        fcntl.fcntl(self.reader, fcntl.F_SETFL, os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while data := os.read(self.reader, 1 << 20):
                self._found += data

    def ends_with(self, text: str) -> bool:
        """Whether `text` is in one of the last lines that were read."""
        return text.encode() in self._found[-2000:]

    def lines(self) -> list[str]:
        """All lines that were read, without those of `fill`."""
        return [line for line in self._found.decode().split("\n") if line]

    def close(self) -> None:
        for fd in (self.reader, self.writer):
            with suppress(OSError):
                os.close(fd)


@final
class Run:
    """A process, the pipes that are its streams, and requests to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        session: aiohttp.ClientSession,
        port: int,
        out: Stream,
        err: Stream,
    ) -> None:
        self.process, self.session, self.port = process, session, port
        self.out, self.err = out, err

    async def ready(self, admin: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await ready(self.session, admin)
        except TimeoutError:
            raise AssertionError(f"not ready in {PATIENCE} s") from None

    async def until_read(self, text: str) -> None:
        """Read standard error until `text` is in one of its last lines."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not self.err.ends_with(text):
                    self.err.read()
                    await asyncio.sleep(0)
        except TimeoutError:
            raise AssertionError(f"{text!r} never came") from None

    async def served(self, number: int = 10) -> None:
        for _ in range(number):
            await self.answered(f"http://127.0.0.1:{self.port}/v1/nodes")

    async def answered(self, url: str, method: str = "GET") -> int:
        try:
            async with asyncio.timeout(PATIENCE), self.session.request(method, url) as response:
                await response.read()
                return response.status
        except TimeoutError:
            raise AssertionError(f"{method} {url}: no answer in {PATIENCE} s") from None

    async def code(self) -> int:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.process.wait()
        except TimeoutError:
            raise AssertionError(f"the process did not end in {PATIENCE} s") from None


GATEWAY: Final = ("-m", "gateway")


@asynccontextmanager
async def started(
    session: aiohttp.ClientSession,
    file: Path,
    *,
    port: int = 0,
    full: bool = False,
    command: tuple[str, ...] = GATEWAY,
    descriptor: int | None = None,
) -> AsyncIterator[Run]:
    """`run -c FILE` with pipes that nobody reads; `full`: there is no room in them from the start.
    `descriptor`: in place of both pipes."""
    out, err = Stream(), Stream()
    if full:
        out.fill()
        err.fill()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-P", *command, "run", "-c", str(file)),
        stdin=asyncio.subprocess.PIPE,
        stdout=out.writer if descriptor is None else descriptor,
        stderr=err.writer if descriptor is None else descriptor,
        cwd=ROOT,
        env={
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith("SKEWGATE_") or name == compiled.VARIABLE
            },
            "PYTHONPATH": str(ROOT),
        },
    )
    try:
        yield Run(process, session, port, out, err)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        out.close()
        err.close()


async def test_R_B8_requests_go_on_while_nobody_reads_the_logs(
    write: Write, session: aiohttp.ClientSession
) -> None:
    """From the first line to the last, and SIGTERM ends it with 0."""
    port, admin_port = free_port(), free_port()
    admin = f"http://127.0.0.1:{admin_port}"
    file = write(port, admin_port)
    async with started(session, file, port=port, full=True) as run:
        await run.ready(admin)
        await run.served()
        file.write_text("listen: nowhere\n" + "".join(f"key-{number}: 1\n" for number in range(100)))
        assert await run.answered(f"{admin}/-/reload", "POST") == 400
        await run.served()
        run.process.send_signal(signal.SIGTERM)
        assert await run.code() == 0


async def test_R_B8_what_a_stopped_reader_cost_is_told_in_its_place_and_counted(
    write: Write, session: aiohttp.ClientSession, fleet: Fleet, tmp_path: Path
) -> None:
    """Two libraries log more than the gateway holds. Then the reader goes on."""
    port, admin_port, ended = free_port(), free_port(), tmp_path / "ended"
    admin = f"http://127.0.0.1:{admin_port}"
    file = declared(write(port, admin_port), fleet.old.port)
    async with started(session, file, port=port, command=("-c", NOISY)) as run:
        await run.ready(admin)
        run.err.fill()
        assert run.process.stdin is not None
        run.process.stdin.write(f"{ended}\n".encode())
        try:
            async with asyncio.timeout(PATIENCE):
                while not ended.exists():
                    await run.served(1)
        except TimeoutError:
            raise AssertionError("what a library logs blocks it") from None
        async with session.get(f"{admin}/metrics") as response:
            counted = Scrape(await response.text()).total("skewgate_process_log_dropped_total")

        await run.until_read(" were lost ")
        run.process.send_signal(signal.SIGTERM)
        await run.until_read(": stopped")
        assert await run.code() == 0
    lines = run.err.lines()

    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ \w", line) for line in lines)
    (loss,) = (index for index, line in enumerate(lines) if " were lost " in line)
    told = re.search(r": (\d+) lines were lost because the reader of standard error stopped$", lines[loss])
    assert told is not None
    assert (lost := int(told[1])) == counted > 0
    before = [[line for line in lines[:loss] if f" {name}: line " in line] for name in LIBRARIES]
    for found in before:
        numbers = [int(line.split()[4]) for line in found]
        assert numbers == sorted(numbers)
    assert sum(map(len, before)) + lost == len(LIBRARIES) * LINES + 1
    assert [line.partition(": ")[2] for line in lines[loss + 1 :]] == [
        "stopping: finishing the requests in flight",
        "stopped",
    ]


async def test_R_B8_a_start_that_fails_ends_although_nobody_reads_why(
    write: Write, session: aiohttp.ClientSession
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        file = write(port=other.getsockname()[1])
        async with started(session, file, full=True) as run:
            assert await run.code() == 1


async def test_R_B8_a_second_signal_ends_it_although_nobody_reads_the_logs(
    write: Write, session: aiohttp.ClientSession
) -> None:
    requested = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        requested.set()
        await reader.read()

    port, admin_port = free_port(), free_port()
    async with serving(hang) as backend:
        file = declared(write(port, admin_port), backend.port)
        async with started(session, file, port=port) as run:
            await run.ready(f"http://127.0.0.1:{admin_port}")
            request = asyncio.ensure_future(run.served(1))
            await requested.wait()
            run.err.fill()
            run.process.send_signal(signal.SIGTERM)
            run.process.send_signal(signal.SIGINT)
            assert await run.code() == 1
            with pytest.raises((aiohttp.ClientError, AssertionError)):
                await request


def streams(pid: int) -> list[str]:
    """What the first three descriptors of a process are."""
    return [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in range(3)]


async def test_R_B8_no_socket_gets_the_number_of_a_closed_stream(
    write: Write, session: aiohttp.ClientSession
) -> None:
    """`run <&- >&- 2>&-`: log lines would go to whatever has the number."""
    port, admin_port = free_port(), free_port()
    async with started(session, write(port, admin_port), port=port, command=("-c", CLOSED)) as run:
        await run.ready(f"http://127.0.0.1:{admin_port}")
        assert streams(run.process.pid) == ["/dev/null"] * 3
        await run.served()
        run.process.send_signal(signal.SIGTERM)
        assert await run.code() == 0


@pytest.mark.parametrize("blocking", [True, False])
async def test_R_B8_two_streams_in_one_pipe_do_not_cut_each_others_lines(
    write: Write, session: aiohttp.ClientSession, blocking: bool
) -> None:
    """`2>&1`: what waits for the reader is more than the pipe holds. Another process that has the pipe may
    have made it non-blocking."""
    port, admin_port = free_port(), free_port()
    admin, pipe = f"http://127.0.0.1:{admin_port}", Stream()
    file = write(port, admin_port)
    os.set_blocking(pipe.writer, blocking)
    async with started(session, file, port=port, descriptor=pipe.writer) as run:
        run.err.close()
        run.err = pipe
        await run.ready(admin)
        pipe.fill()
        file.write_text("listen: nowhere\n" + "".join(f"key-{number}: 1\n" for number in range(100)))
        for _ in range(20):
            await run.answered(f"http://127.0.0.1:{port}/v1/nodes?{'x' * 1000}")
            assert await run.answered(f"{admin}/-/reload", "POST") == 400
        run.process.send_signal(signal.SIGTERM)
        await run.until_read(": stopped")
        assert await run.code() == 0
    lines = pipe.lines()
    pipe.close()

    assert all(re.match(r"\d{4}-\d\d-\d\dT|{.*}$", line) for line in lines)
    assert sum(line.startswith("{") for line in lines) == 20
    assert sum("reload refused" in line for line in lines) >= 20 * 100


@pytest.mark.parametrize("gone", [True, False], ids=["closed pipe", "full disk"])
async def test_R_B8_a_stream_that_fails_costs_lines_only(
    write: Write, session: aiohttp.ClientSession, gone: bool
) -> None:
    port, admin_port = free_port(), free_port()
    admin = f"http://127.0.0.1:{admin_port}"
    file = write(port, admin_port)
    reader, stream = os.pipe()
    os.close(reader)
    if not gone:
        os.close(stream)
        stream = os.open("/dev/full", os.O_WRONLY)
    async with started(session, file, port=port, descriptor=stream) as run:
        os.close(stream)
        await run.ready(admin)
        await run.served()
        assert await run.answered(f"{admin}/-/reload", "POST") == 200
        await run.served()
        async with session.get(f"{admin}/metrics") as response:
            counted = Scrape(await response.text()).total("skewgate_process_log_dropped_total")
        run.process.send_signal(signal.SIGTERM)
        assert await run.code() == 0
    assert counted > 0
